// Source to discard.
define($LIMIT 1000000);
source :: InfiniteSource(DATA \<02 00 00 00 00 01 02 00 00 00 00 09 08 00
    45 00 00 2e 00 00 00 00 40 11 8e 79 c0 00 02 09 c6 33 64 09
    00 09 00 09 00 1a 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00>,
    LIMIT $LIMIT, BURST 32, STOP true)
    -> end :: Discard;
