// A scrubbing router of two ports: customers on one, the world on the other, and what is wrong with sources ends here.
//
//   eth0  198.51.100.1/24  02:00:00:00:00:01  customers, 192.0.2.0/24 of them behind 198.51.100.7
//   eth1  203.0.113.1/24   02:00:00:00:00:02  the world, by 203.0.113.254
//
// It is the router of ip-router-2.click with three checks between a port and the route lookup:
//
//   customers  strict: a source that this router would not send to by eth0 is forged (RFC 3704, BCP 38)
//   lists      from the world: sources to let pass, else to drop; some are only marked
//   blackhole  from the world, loose: a source whose route leads to output 3 ends, as packets to it do (RFC 5635)
//
// While it runs, in another terminal (telnet 127.0.0.1 1234):
//
//   write lists.add attack 45.128.0.0/16       one more prefix; `remove` takes it out again
//   write lists.load attack lists/attack.txt   a whole list, exchanged at once; a prefix a line, .gz too
//   read lists.count                           packets and bytes of each list
//   write rt.add 192.0.2.66/32 3               a blackhole for a victim, or for an attacker

ControlSocket(TCP, 1234);

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

rt :: RadixIPLookup(
    $ADDR0/32 0, 198.51.100.255/32 0, 198.51.100.0/32 0,   // this router, as eth0 knows it
    $ADDR1/32 0, 203.0.113.255/32 0, 203.0.113.0/32 0,     // and as eth1 does
    255.255.255.255/32 0, 0.0.0.0/32 0,
    $NET0 1,
    192.0.2.0/24 198.51.100.7 1,
    $NET1 2,
    192.88.99.0/24 3,                                      // to nowhere, in both directions
    0.0.0.0/0 $UPSTREAM 2,
);

// IPv4 packets of each port, without their Ethernet header.
in0 -> Strip(14)
    -> CheckIPHeader(INTERFACES $ADDR0/24 $ADDR1/24)
    -> customers :: UrpfCheck(rt, MODE strict, OUTPUTS 1)
    -> rt;
in1 -> Strip(14)
    -> CheckIPHeader(INTERFACES $ADDR0/24 $ADDR1/24)
    -> lists :: SourceFilter(
        // Or `FILE lists/partners.txt`, any number of prefixes.
        partners pass 45.0.2.0/24 45.0.3.0/24,
        attack drop 45.0.0.0/16 102.0.0.0/8,
        bogons drop 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 198.18.0.0/15,
        watched mark 9 193.0.0.0/16)
    -> blackhole :: UrpfCheck(rt, MODE loose, ALLOW_DEFAULT true, BLACKHOLE 3)
    -> rt;

// What is for the router itself: pings are answered, and the answers routed; the rest is counted.
host :: ICMPPingResponder(TTL 64) -> rt;
host [1] -> rest :: Discard;
rt => host, out0, out1, nowhere :: Discard;

// Errors are packets of this router, and need no check.
out0, out1 -> rt;

// Requests are answered at once; replies are for whoever asked, and for the host, which may ask as well.
in0 [1] -> [2] out0;
in1 [1] -> [2] out1;
replies :: Tee(3);
in0 [2], in1 [2] -> replies => [1] out0, [1] out1, host;
