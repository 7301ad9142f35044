// A compound, a library, a push and a pull.
require(library lib.click);
elementclass Buffered { $size | input -> Queue($size) -> Unqueue -> output }
InfiniteSource(LIMIT 5) -> b :: Buffered(7) -> c :: Named -> Discard;
