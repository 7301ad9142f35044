define($capacity 200);
Idle -> Queue($capacty) -> ToDevice(eth0);
