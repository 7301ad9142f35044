// IPv6 packets by a route table: to a prefix, to others, and one whose hop limit is used up.
InfiniteSource(\<01 02 03 04>, LIMIT 1)
    -> UDPIP6Encap(2001:db8::1, 5, 2001:db8:7::9, 7)
    -> CheckIP6Header
    -> rt :: LookupIP6Route(2001:db8:7::/48 fe80::7 0, ::/0 1)
    -> hop :: DecIP6HLIM
    -> IP6Print(out) -> Discard;
InfiniteSource(\<01 02 03 04>, LIMIT 1)
    -> IP6Encap(udp, 2001:db8::2, 2001:db8:7::9, HLIM 1)
    -> CheckIP6Header -> rt;
rt [1] -> IP6Print(default) -> Discard;
hop [1] -> IP6Print(expired) -> c :: Counter -> Discard;
InfiniteSource(\<01 02 03 04>, LIMIT 1)
    -> IP6Encap(58, 2001:db8::3, 2001:db8:9::9)
    -> SetIP6DSCP(46) -> CheckIP6Header -> IP6Mirror -> rt;
Script(wait 1ms, print "$(c.count) expired", stop);

// expect 1 expired
// error out: 2001:db8::1 -> 2001:db8:7::9: plen 12, next 17, hlim 249
// error expired: 2001:db8::2 -> 2001:db8:7::9: plen 4, next 17, hlim 1
// error default: 2001:db8:9::9 -> 2001:db8::3: plen 4, next 58, hlim 250
