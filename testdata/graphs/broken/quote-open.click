Idle -> Print("hello) -> Discard;
