t :: Tee;
t [,1] -> Discard;
