// The later route of a prefix counts.
Idle -> rt :: StaticIPLookup(10/8 0, 11/8 192.0.2.1 1, 10/8 1);
rt => Discard, Discard;
