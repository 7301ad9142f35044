a, b :: Idle;
d :: Discard;
a, b;
a -> d; b -> d;
