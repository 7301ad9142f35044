// Two traces become one, in order of time.
a :: FromIPSummaryDump(DATA "!data timestamp ip_src sport payload
1.5 10.0.0.1 7 one
2.5 10.0.0.1 8 \"and three\"
");
b :: FromIPSummaryDump(DATA "!data timestamp ip_src ip_proto ip_ttl
2 10.0.0.2 U 9
");
a -> s :: TimeSortedSched(STOP true)
  -> IPPrint(x)
  -> ToIPSummaryDump(-, FIELDS timestamp ip_src ip_proto sport ip_ttl ip_len payload);
b -> [1] s;
DriverManager(pause, print s.well_ordered);

// expect !IPSummaryDump 1.3
// expect !data timestamp ip_src ip_proto sport ip_ttl ip_len payload
// expect 1.500000 10.0.0.1 T 7 100 43 "one"
// expect 2.000000 10.0.0.2 U 0 9 28 ""
// expect 2.500000 10.0.0.1 T 8 100 49 "and three"
// expect true
// error x: 1.500000: 10.0.0.1.7 > 0.0.0.0.0: . 0:3(3,43,43) win 0
// error x: 2.000000: 10.0.0.2.0 > 0.0.0.0.0: udp 8
// error x: 2.500000: 10.0.0.1.8 > 0.0.0.0.0: . 0:9(9,49,49) win 0
