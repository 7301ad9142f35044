Idle -> d :: Discard;
Idle -> [1] d;
