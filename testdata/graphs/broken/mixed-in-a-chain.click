FromDevice(eth0) -> Counter -> Print -> Counter -> Unqueue -> Discard;
