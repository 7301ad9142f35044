FromDevice(eth0) -> ToDevice(eth1);
