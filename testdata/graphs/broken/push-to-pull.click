FromDevice(eth0) -> Unqueue -> Discard;
