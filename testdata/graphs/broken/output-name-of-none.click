Idle -> c :: Counter -> Discard;
c [rest] -> Discard;
