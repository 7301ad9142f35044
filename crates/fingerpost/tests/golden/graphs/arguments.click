Idle -> q :: Queue(many) -> Unqueue(BRUST 2) -> Discard;
