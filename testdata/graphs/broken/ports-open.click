t :: Tee;
t [1 -> Discard;
Idle -> t -> Discard;
