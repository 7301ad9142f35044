elementclass Limit { N $n | input -> Queue($n) -> output }
Idle -> Limit -> ToDevice(eth0);
