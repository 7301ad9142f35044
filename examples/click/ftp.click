// The client names its own address in PORT; the server reads that of the router, and numbers behind the command are moved.
IPRewriterPatterns(router 203.0.113.1 5000-5999# - -);
nat :: TCPRewriter(pattern router 0 0);

FromIPSummaryDump(DATA "!data src sport dst dport tcp_seq tcp_ack payload tcp_opt
192.168.100.100 30 198.51.100.7 21 0 0 \"USER x\\n\" .
192.168.100.100 30 198.51.100.7 21 7 0 \"PORT 192,168,100,100,200,200\\n\" .
192.168.100.100 30 198.51.100.7 21 36 0 \"QUIT\\n\" .
198.51.100.7 21 203.0.113.1 5000 0 32 \"\" sack7-32
", CHECKSUM true, STOP true)
    -> FTPPortMapper(nat, nat, 0)
    -> nat
    -> CheckIPHeader
    -> CheckTCPHeader
    -> ToIPSummaryDump(-, HEADER false, FIELDS dst dport tcp_seq tcp_ack payload tcp_opt);

// expect 198.51.100.7 21 0 0 "USER x\n" .
// expect 198.51.100.7 21 7 0 "PORT 203,0,113,1,19,137\n" .
// expect 198.51.100.7 21 31 0 "QUIT\n" .
// expect 192.168.100.100 30 0 37 "" sack7-37
