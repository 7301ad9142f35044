Idle, -> Discard;
