c :: ;
Idle -> Discard;
