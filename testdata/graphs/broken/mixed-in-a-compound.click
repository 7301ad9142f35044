elementclass Count { input -> Counter -> output }
FromDevice(eth0) -> c :: Count -> Unqueue -> Discard;
