a, b :: Idle;
a, b -> Discard, Discard;
