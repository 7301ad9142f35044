c : Counter;
Idle -> c -> Discard;
