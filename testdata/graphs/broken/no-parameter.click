elementclass Limit { $n, | input -> output }
