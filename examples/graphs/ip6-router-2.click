// An IPv6 router of two ports, after the IPv4 one of ip-router-2.click.
//
//   eth0  2001:db8:1::1/64  fe80::1:1  02:00:00:00:00:01
//   eth1  2001:db8:2::1/64  fe80::2:1  02:00:00:00:00:02, and the default route by fe80::fe
//
// No packet is cut into fragments on its way, so there is a check of its length instead; and link-local
// addresses mean something on their own link only (RFC 4007), so they are not routed.

define($ADDR0 2001:db8:1::1, $NET0 2001:db8:1::/64, $LINK0 fe80::1:1, $MAC0 02:00:00:00:00:01);
define($ADDR1 2001:db8:2::1, $NET1 2001:db8:2::/64, $LINK1 fe80::2:1, $MAC1 02:00:00:00:00:02);
define($UPSTREAM fe80::fe);

// What comes in at a port: 0 IPv6 packets, 1 what is to be answered by this port, 2 advertisements.
elementclass Arrive { $port, $color, $addr, $link, $mac |
    FromDevice($port)
        -> sort :: Classifier(12/86dd 20/3aff 54/87, 12/86dd 20/3aff 54/88, 12/86dd, -);
    sort [0] -> NDAdvertiser($addr $link $mac) -> [1] output;
    sort [1] -> [2] output;
    sort [2] -> Paint($color) -> [0] output;
    sort [3] -> Discard;
}

// What leaves by a port. Inputs: 0 packets, 1 advertisements, 2 what is ready to be sent. Outputs: errors.
elementclass Leave { $port, $addr, $mac, MTU $mtu |
    input [0]
        -> DropBroadcasts
        -> scope :: IPClassifier(src net fe80::/10, -);
    scope [1]
        -> hops :: DecIP6HLIM
        -> fits :: CheckLength(${mtu-1500})
        -> ask :: NDSolicitor($addr/64, $mac)
        -> queue :: Queue(200)
        -> ToDevice($port);
    input [1] -> [1] ask;
    input [2] -> queue;
    ask [queries] -> queue;

    scope [0] -> ICMP6Error($addr, unreachable, 2, ALL 1200 350) -> output;
    hops [expired] -> ICMP6Error($addr, timeexceeded, ALL 1200 350) -> output;
    fits [long] -> ICMP6Error($addr, packettoobig, PMTU ${mtu-1500}, TOO_BIG 2000 1000) -> output;
    ask [failed] -> ICMP6Error($addr, unreachable, 3, ALL 1200 350) -> output;
}

in0 :: Arrive(eth0, 1, $ADDR0, $LINK0, $MAC0);
in1 :: Arrive(eth1, 2, $ADDR1, $LINK1, $MAC1);
out0 :: Leave(eth0, $ADDR0, $MAC0);
out1 :: Leave(eth1, $ADDR1, $MAC1, MTU 1400);

rt :: BSDIP6Lookup(
    $ADDR0/128 0, 2001:db8:1::/128 0,     // this router, as eth0 knows it, and any router there (RFC 4291, 2.6.1)
    $ADDR1/128 0, 2001:db8:2::/128 0,     // and as eth1 does
    fe80::/10 0, ff00::/8 0,
    $NET0 1,
    $NET1 2,
    ::/0 $UPSTREAM 2,
);

// All IPv6 packets, without their Ethernet header.
in0, in1 -> Strip(14) -> CheckIP6Header(MARTIANS true) -> rt;

// What is for the router itself: pings are answered, and the answers routed; the rest is counted.
host :: ICMPPingResponder(TTL 64) -> rt;
host [1] -> rest :: Discard;
rt => host, out0, out1;

// Errors are packets of this router, and need no check.
out0, out1 -> rt;

// Solicitations are answered at once; what neighbors say is for whoever asked.
in0 [1] -> [2] out0;
in1 [1] -> [2] out1;
in0 [2] -> [1] out0;
in1 [2] -> [1] out1;
