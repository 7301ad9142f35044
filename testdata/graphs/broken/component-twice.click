c/x :: Idle;
c :: { x :: Idle };
