// A group stands where an element does, and its elements belong to the body around it.
elementclass Mark { $color | -> Paint($color) -> }

a :: InfiniteSource(\<11>, LIMIT 1), b :: InfiniteSource(\<22>, LIMIT 1)
    => ( [0] -> Mark(1) -> first :: Counter -> [1];
         [1] -> Mark(2) -> second :: Counter -> [0] )
    => x :: Print(x), y :: Print(y);
x, y -> Discard;
Script(wait 1ms, print "$(first.count) $(second.count)", stop);

// expect 1 1
// error y:    1 | 11
// error x:    1 | 22
