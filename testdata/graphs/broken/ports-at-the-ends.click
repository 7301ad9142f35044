[1] Idle -> Discard [0];
