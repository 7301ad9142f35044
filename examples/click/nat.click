// Two hosts of 192.168.0.0/16 share 203.0.113.1. What comes from outside passes only as a reply.
AddressInfo(outside 203.0.113.1);

nat :: IPRewriter(pattern outside 5000-5001# - - 0 1, drop, REPLY_ANNO PAINT);

FromIPSummaryDump(DATA "!data src sport dst dport proto link
192.168.0.1 40 198.51.100.7 80 T 1
192.168.0.2 40 198.51.100.7 80 T 2
192.168.0.1 40 198.51.100.7 80 T 1
192.168.0.3 40 198.51.100.7 80 T 3
192.168.0.3 40 198.51.100.8 53 U 3
", CHECKSUM true, STOP true)
    -> [0] nat [0]
    -> CheckIPHeader -> t :: CheckTCPHeader -> out :: ToIPSummaryDump(-, HEADER false, FIELDS direction src sport dst dport);
t [1] -> CheckUDPHeader -> out;

replies :: FromIPSummaryDump(DATA "!data src sport dst dport proto link
198.51.100.7 80 203.0.113.1 5001 T 0
198.51.100.8 53 203.0.113.1 5000 U 0
198.51.100.7 80 203.0.113.1 5002 T 0
198.51.100.9 80 203.0.113.1 5000 T 0
", CHECKSUM true, ACTIVE false, STOP true)
    -> CheckIPHeader -> [1] nat [1]
    -> back :: CheckTCPHeader -> out;
back [1] -> CheckUDPHeader -> out;

DriverManager(pause, write replies.active true, pause,
    print "$(nat.size) flows, $(nat.mapping_failures) without a port", print nat.patterns);

// error t: TCP header check failed: not TCP
// error back: TCP header check failed: not TCP
// expect < 203.0.113.1 5000 198.51.100.7 80
// expect 2 203.0.113.1 5001 198.51.100.7 80
// expect < 203.0.113.1 5000 198.51.100.7 80
// expect 3 203.0.113.1 5000 198.51.100.8 53
// expect 2 198.51.100.7 80 192.168.0.2 40
// expect 3 198.51.100.8 53 192.168.0.3 40
// expect 3 flows, 1 without a port
// expect 203.0.113.1 5000-5001# - - [3]
// expect <drop>
