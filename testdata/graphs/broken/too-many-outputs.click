Idle -> c :: Counter -> Discard;
c [1] -> Discard;
