// A script counts to three, calls another one, and reads and writes handlers.
define($LIMIT 3)

q :: Queue(7);
Idle -> q -> Idle;

double :: Script(TYPE PASSIVE, return $(mul 2 $1));

Script(
    init i 0,
    label next,
    set i $(add $i 1),
    print "$i twice is $(double.run $i)",
    wait 100ms,
    goto next $(lt $i $LIMIT),
    read q.capacity,
    write q.capacity $(sprintf "%d" $(add $(q.capacity) 1)),
    print q.capacity,
    print '$i is $i here',
    print $(if $(eq $i 3) three $i),
    stop);

// expect 1 twice is 2
// expect 2 twice is 4
// expect 3 twice is 6
// expect 8
// expect $i is $i here
// expect three
// error q.capacity:
// error 7
