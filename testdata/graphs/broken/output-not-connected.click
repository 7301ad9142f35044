Idle -> Counter;
