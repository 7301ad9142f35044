elementclass Limit { $n, $m | input -> Queue($n) -> output }
Idle -> Limit(5) -> ToDevice(eth0);
