t :: Tee;
t [100000] -> Discard;
