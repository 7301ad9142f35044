source :: Idle;
sorce -> Discard;
