eth/0 :: Idle;
