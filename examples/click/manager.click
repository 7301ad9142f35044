// The first source ends; then the second one is let go, and its end is that of the router.
InfiniteSource(LIMIT 3, STOP true) -> c :: Counter -> d :: Discard;
second :: InfiniteSource(LIMIT 4, ACTIVE false, STOP true) -> c;

DriverManager(
    pause,
    print c.count,
    write second.active true,
    wait_stop,
    print c.count);

// expect 3
// expect 7
