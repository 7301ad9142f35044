c :: Counter;
Idle -> c -> Discard;
c :: Counter;
