Idle -> Qeue(200) -> Discard;
