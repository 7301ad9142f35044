s :: Suppressor;
Idle -> s -> Discard;
Idle -> [1] s;
