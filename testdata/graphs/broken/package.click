require(package fastclick);
Idle -> Discard;
