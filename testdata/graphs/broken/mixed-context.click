FromDevice(eth0) -> c :: Counter -> ToDevice(eth1);
