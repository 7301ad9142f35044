Idle -> Counter -> c :: d :: Print -> Discard;
