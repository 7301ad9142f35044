to-host :: Counter;
Idle -> to-host -> Discard;
