FromDevice(eth0) -> Counter -> Print -> Counter -> ToDevice(eth1);
