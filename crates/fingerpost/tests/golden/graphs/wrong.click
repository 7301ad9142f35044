// What is wrong here is told in one run.
q :: Queue(many) -> Unqueue -> Discrad;
Idle -> c :: Counter(1);
c -> q; c -> q
