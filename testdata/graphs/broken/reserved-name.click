define :: Counter;
Idle -> require -> Discard;
