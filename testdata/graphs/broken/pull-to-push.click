FromDevice(eth0) -> Queue -> ToHost;
