elementclass Limit { $n input -> Queue($n) -> output }
