// A filter of six rules. The last one lets all packets pass.
define($LIMIT 1000000);
source :: InfiniteSource(DATA \<02 00 00 00 00 01 02 00 00 00 00 09 08 00
    45 00 00 2e 00 00 00 00 40 11 8e 79 c0 00 02 09 c6 33 64 09
    00 09 00 09 00 1a 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00>,
    LIMIT $LIMIT, BURST 32, STOP true)
    -> Strip(14) -> CheckIPHeader
    -> IPFilter(deny src net 10.0.0.0/8, deny src net 192.168.0.0/16, allow dst tcp port 80, allow icmp type echo,
        deny dst udp port 9 and dst net 64.0.0.0/4, allow ip proto udp)
    -> end :: Discard;
