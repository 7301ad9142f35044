// A DNS responder: who requests the address of a.example gets 192.0.2.53, in a packet made of the query.
query :: InfiniteSource(\<4500 0037 0000 0000 4011 0000 0a000001 0a000035  9c40 0035 0023 0000
    1234 0100 0001 0000 0000 0000  0161 07 6578616d706c65 00 0001 0001>, LIMIT 1)
    -> wire :: Null
    -> SetIPChecksum -> SetUDPChecksum -> CheckIPHeader -> CheckUDPHeader
    -> IPClassifier(dst udp port 53)
    -> question :: Classifier(40/0161076578616d706c650000010001, -)
    -> IPMirror
    -> StoreData(30, \<8180 0001 0001>)                         // a reply, with one answer
    -> Pad(71)
    -> StoreData(55, \<c00c 0001 0001 0000003c 0004 c0000235>)  // of a minute
    -> StoreData(2, \<0047>) -> StoreData(24, \<0033>)          // the lengths of IP and UDP
    -> SetIPChecksum -> SetUDPChecksum
    -> CheckIPHeader -> CheckUDPHeader
    -> ToIPSummaryDump(-, HEADER false, FIELDS src sport dst dport udp_len)
    -> Strip(67) -> Print(address, 4) -> Discard;
other :: InfiniteSource(\<4500 0037 0000 0000 4011 0000 0a000001 0a000035  9c40 0035 0023 0000
    1234 0100 0001 0000 0000 0000  0162 07 6578616d706c65 00 0001 0001>, LIMIT 1) -> wire;
question [1] -> unknown :: Counter -> Discard;
Script(wait 1ms, print "$(unknown.count) of another name", stop);

// expect 10.0.0.53 53 10.0.0.1 40000 51
// expect 1 of another name
// error address:    4 | c0000235
