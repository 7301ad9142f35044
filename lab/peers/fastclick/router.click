// Click's IP router with two interfaces, without ARP and queues: what comes in by the second leaves by the first.
define($LIMIT 1000000);
source :: InfiniteSource(DATA \<02 00 00 00 00 01 02 00 00 00 00 09 08 00
    45 00 00 2e 00 00 00 00 40 11 8e 79 c0 00 02 09 c6 33 64 09
    00 09 00 09 00 1a 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00>,
    LIMIT $LIMIT, BURST 32, STOP true)
    -> c :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
end :: Discard;
c[0] -> ARPResponder(192.0.2.1 02:00:00:00:00:02) -> Discard;
c[1] -> Discard;
c[2] -> Paint(2) -> Strip(14) -> CheckIPHeader(INTERFACES 198.51.100.1/24 192.0.2.1/24)
    -> rt :: StaticIPLookup(198.51.100.1/32 0, 198.51.100.255/32 0, 198.51.100.0/32 0, 192.0.2.1/32 0, 192.0.2.255/32 0,
        192.0.2.0/32 0, 198.51.100.0/24 1, 192.0.2.0/24 2, 255.255.255.255/32 0.0.0.0 0, 0.0.0.0/0 198.51.100.2 1);
c[3] -> Discard;
rt[0] -> Discard;
rt[1] -> DropBroadcasts -> cp1 :: PaintTee(1) -> gio1 :: IPGWOptions(198.51.100.1) -> FixIPSrc(198.51.100.1)
    -> dt1 :: DecIPTTL -> fr1 :: IPFragmenter(1500) -> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:11) -> end;
dt1[1] -> ICMPError(198.51.100.1, timeexceeded) -> rt;
fr1[1] -> ICMPError(198.51.100.1, unreachable, needfrag) -> rt;
gio1[1] -> ICMPError(198.51.100.1, parameterproblem) -> rt;
cp1[1] -> ICMPError(198.51.100.1, redirect, host) -> rt;
rt[2] -> DropBroadcasts -> cp2 :: PaintTee(2) -> gio2 :: IPGWOptions(192.0.2.1) -> FixIPSrc(192.0.2.1)
    -> dt2 :: DecIPTTL -> fr2 :: IPFragmenter(1500) -> EtherEncap(0x0800, 02:00:00:00:00:02, 02:00:00:00:00:12) -> end;
dt2[1] -> ICMPError(192.0.2.1, timeexceeded) -> rt;
fr2[1] -> ICMPError(192.0.2.1, unreachable, needfrag) -> rt;
gio2[1] -> ICMPError(192.0.2.1, parameterproblem) -> rt;
cp2[1] -> ICMPError(192.0.2.1, redirect, host) -> rt;
