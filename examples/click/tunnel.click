// Packets of one site reach another inside UDP packets: what is sent, and what comes out at the other end.
FromIPSummaryDump(DATA "!data src sport dst dport proto
10.1.0.1 5 10.2.0.1 80 T
10.1.0.2 6 10.2.0.1 53 U
", CHECKSUM true, STOP true)
    -> UDPIPEncap(192.0.2.1, 4000, 198.51.100.1, 4000)
    -> link :: Tee
    -> ToIPSummaryDump(-, HEADER false, FIELDS src sport dst dport proto);
link [1] -> CheckIPHeader -> CheckUDPHeader -> StripIPHeader -> Strip(8)
    -> CheckIPHeader
    -> ToIPSummaryDump(-, HEADER false, FIELDS src sport dst dport proto);

// expect 192.0.2.1 4000 198.51.100.1 4000 U
// expect 10.1.0.1 5 10.2.0.1 80 T
// expect 192.0.2.1 4000 198.51.100.1 4000 U
// expect 10.1.0.2 6 10.2.0.1 53 U
