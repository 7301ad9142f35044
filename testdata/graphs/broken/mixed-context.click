FromDevice(eth0) -> c :: Counter -> Unqueue -> Discard;
