FromDevice(eth0) -> Queue -> ToPorts;
