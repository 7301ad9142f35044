in :: FromDevice(eth0);
in -> Counter -> Discard;
in -> Print -> Discard;
