// An IPv4 router of two ports, as Click's documentation describes one.
//
//   eth0  198.51.100.1/24  02:00:00:00:00:01
//   eth1  203.0.113.1/24   02:00:00:00:00:02, and the default route by 203.0.113.254
//
// Packets go from the left of the file to its right: a port sorts what it gets, all IPv4 meets in one
// route lookup, and each port has its way out. Whatever cannot go on comes back to the lookup as an
// ICMP error, and is routed like any other packet.

define($ADDR0 198.51.100.1, $NET0 198.51.100.0/24, $MAC0 02:00:00:00:00:01);
define($ADDR1 203.0.113.1, $NET1 203.0.113.0/24, $MAC1 02:00:00:00:00:02);
define($UPSTREAM 203.0.113.254);

// What comes in at a port: 0 IPv4 packets, 1 what is to be answered by this port, 2 ARP replies.
elementclass Arrive { $port, $color, $addr, $mac |
    FromDevice($port)
        -> sort :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    sort [0] -> ARPResponder($addr $mac) -> [1] output;
    sort [1] -> [2] output;
    sort [2] -> Paint($color) -> [0] output;
    sort [3] -> Discard;
}

// What leaves by a port. Inputs: 0 packets, 1 ARP replies, 2 what is ready to be sent. Outputs: errors.
elementclass Leave { $port, $color, $addr, $mac, MTU $mtu |
    input [0]
        -> DropBroadcasts
        -> redirect :: PaintTee($color)
        -> options :: IPGWOptions($addr)
        -> FixIPSrc($addr)
        -> ttl :: DecIPTTL
        -> fragment :: IPFragmenter(${mtu-1500})
        -> ask :: ARPQuerier($addr, $mac)
        -> queue :: Queue(200)
        -> ToDevice($port);
    input [1] -> [1] ask;
    input [2] -> queue;

    redirect [1] -> ICMPError($addr, redirect, host, ALL 1200 350) -> output;
    options [1] -> ICMPError($addr, parameterproblem, ALL 1200 350) -> output;
    ttl [expired] -> ICMPError($addr, timeexceeded, ALL 1200 350) -> output;
    fragment [too_big] -> ICMPError($addr, unreachable, needfrag, TOO_BIG 2000 1000) -> output;
}

in0 :: Arrive(eth0, 1, $ADDR0, $MAC0);
in1 :: Arrive(eth1, 2, $ADDR1, $MAC1);
out0 :: Leave(eth0, 1, $ADDR0, $MAC0);
out1 :: Leave(eth1, 2, $ADDR1, $MAC1, MTU 1500);

rt :: StaticIPLookup(
    $ADDR0/32 0, 198.51.100.255/32 0, 198.51.100.0/32 0,   // this router, as eth0 knows it
    $ADDR1/32 0, 203.0.113.255/32 0, 203.0.113.0/32 0,     // and as eth1 does
    255.255.255.255/32 0, 0.0.0.0/32 0,
    $NET0 1,
    $NET1 2,
    0.0.0.0/0 $UPSTREAM 2,
);

// All IPv4 packets, without their Ethernet header.
ip :: Strip(14)
    -> CheckIPHeader(INTERFACES $ADDR0/24 $ADDR1/24)
    -> rt;
in0, in1 -> ip;

// What is for the router itself: pings are answered, and the answers routed; the rest is counted.
host :: ICMPPingResponder(TTL 64) -> rt;
host [1] -> rest :: Discard;
rt => host, out0, out1;

// Errors are packets of this router, and need no check.
out0, out1 -> rt;

// Requests are answered at once; replies are for whoever asked, and for the host, which may ask as well.
in0 [1] -> [2] out0;
in1 [1] -> [2] out1;
replies :: Tee(3);
in0 [2], in1 [2] -> replies => [1] out0, [1] out1, host;
