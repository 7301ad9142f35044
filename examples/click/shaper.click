// The source waits while the queue is full: nothing is lost, and the rate is that of the shaper.
s :: InfiniteSource(LIMIT 200, STOP true) -> q :: Queue(20) -> u :: RatedUnqueue(100) -> c :: Counter -> Discard;
Script(wait 1s, print "$(q.drops) lost, $(unquote $(if $(and $(ge $(c.count) 95) $(le $(c.count) 105)) 'about 100' $(c.count))) passed", stop);

// expect 0 lost, about 100 passed
