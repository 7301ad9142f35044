t :: Tee;
Idle -> t;
t [0] -> Discard;
t [2] -> Discard;
t [5] -> Discard;
