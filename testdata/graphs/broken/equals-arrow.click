Idle = Discard;
