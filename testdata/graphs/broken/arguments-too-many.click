elementclass Limit { $n, BURST $m | input -> Queue($n, ${m-1}) -> output }
Idle -> Limit(5, BRUST 6) -> ToDevice(eth0);
