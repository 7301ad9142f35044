t :: Tee;
t [3-1] -> Discard;
