// Packets of 100 bytes and of 500: each input of DRRSched gets half of the link, in bytes.
InfiniteSource(\<01>, LENGTH 100) -> Queue(50) -> [0] d :: DRRSched(500)
    -> BandwidthRatedUnqueue(100kBps)
    -> c :: Classifier(0/01, 0/02);
InfiniteSource(\<02>, LENGTH 500) -> Queue(50) -> [1] d;
c [0] -> small :: Counter -> Discard;
c [1] -> large :: Counter -> Discard;
Script(wait 2s,
    set small $(small.byte_count), set large $(large.byte_count),
    print "$(gt $small 95000) $(gt $large 95000) $(le $(sub $small $large) 2500) $(le $(sub $large $small) 2500)", stop);

// expect true true true true
