Idle -> FromDevice(eth0) -> Discard;
