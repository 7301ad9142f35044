// A queue is sent twice what leaves it. RED drops packets early: the queue stays short, and no packet finds it full.
RatedSource(RATE 2000, LIMIT 4000)
    -> red :: RED(20, 60, 0.2)
    -> q :: Queue(200)
    -> RatedUnqueue(1000)
    -> c :: Counter
    -> Discard;
Script(wait 2s,
    print "below 100 packets: $(lt $(q.highwater_length) 100), dropped by the queue: $(q.drops)",
    print "RED dropped about half: $(gt $(red.drops) 1500)", stop);

// expect below 100 packets: true, dropped by the queue: 0
// expect RED dropped about half: true
