a/ :: Idle;
