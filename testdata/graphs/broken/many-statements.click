src :: FromDevic(eth0);
src -> Counter [ -> Discard;
elementclass Limit { $n | input -> Queue($m) -> output }
Idle -> Limit() -> ToDevice(eth0);
Idle -> -> Discard;
x -> Discard;
FromDevice(eth1) -> Unqueue -> Discard;
