Idle -> Discard; /* to be continued
Idle -> Discard;
