out :: ToDevice(eth1);
FromDevice(eth0) -> Queue -> out;
FromDevice(eth1) -> Queue -> out;
