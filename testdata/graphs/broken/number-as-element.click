Idle -> 7 -> Discard;
Idle -> Counter 5 -> Discard;
