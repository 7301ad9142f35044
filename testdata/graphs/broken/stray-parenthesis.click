Idle -> Counter) -> Discard;
