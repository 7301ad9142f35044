// Three ports share the way out by turns: what is pushed waits in queues, what is pulled goes by turns.

define($LENGTH 200);

// Packets of a port, counted, with so many waiting.
elementclass Waiting { $port, LENGTH $length |
    FromDevice($port) -> Counter -> queue :: Queue(${length-1000}) -> output;
}

turns :: RoundRobinSched -> Counter -> ToDevice(eth0);

Waiting(eth1, LENGTH $LENGTH), Waiting(eth2, LENGTH $LENGTH), Waiting(eth3) => [0,] turns;
