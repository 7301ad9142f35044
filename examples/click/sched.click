// Three sources have turns in the ratio 4 : 2 : 1.
InfiniteSource(\<01>, LIMIT 4) -> s :: StrideSched(4, 2, 1);
InfiniteSource(\<02>, LIMIT 2) -> [1] s;
InfiniteSource(\<03>, LIMIT 1) -> [2] s;
s -> Print -> u :: Unqueue -> Discard;
Script(wait 1ms, print u.count, stop);

// expect 7
// error    1 | 01
// error    1 | 01
// error    1 | 02
// error    1 | 01
// error    1 | 01
// error    1 | 02
// error    1 | 03
