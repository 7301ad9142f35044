input :: Idle;
