// IPv6 packets by a route table; one whose hop limit is used up is reported to its sender.
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
hop [1] -> ICMP6Error(2001:db8::ff, timeexceeded) -> IP6Print(error) -> c :: Counter -> Discard;
Script(wait 1ms, print "$(c.count) error", stop);

// expect 1 error
// error out: 2001:db8::1 -> 2001:db8:7::9: plen 12, next 17, hlim 249
// error error: 2001:db8::ff -> 2001:db8::2: plen 52, next 58, hlim 255
