elementclass Limit { BURST $m | input -> Queue($m) -> output }
Idle -> Limit(BURST 5, BURST 6) -> ToDevice(eth0);
