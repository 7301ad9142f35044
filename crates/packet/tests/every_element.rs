//! What holds for every element of the registry: how packets are divided into batches changes nothing, nor how flows
//! are divided among workers, and none is lost. Each graph below is run twice with the same packets: once as one batch
//! and once in pieces, once by one worker and once by three.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fingerpost_packet::element::click::only::console;
use fingerpost_packet::frame::FLAG_GENERATED;
use fingerpost_packet::frame::wire::nd::Nd;
use fingerpost_packet::graph::Graph;
use fingerpost_packet::testing::{Rig, World, batch, fill_ip4_checksum, frame_v4, frame_v6};
use fingerpost_packet::{DropReason, ELEMENTS, router_graph};
use fingerpost_route::{ForwardingAction, Mac, UrpfMode};
use proptest::prelude::*;

/// A graph, and whether an output may get its packets in another order: where packets are made, they follow those
/// of the batch that only pass.
struct Subject {
    text: &'static str,
    any_order: bool,
}

const fn ordered(text: &'static str) -> Subject {
    Subject { text, any_order: false }
}

const fn makes(text: &'static str) -> Subject {
    Subject { text, any_order: true }
}

const GRAPHS: &[Subject] = &[
    makes(router_graph::TEXT),
    makes("FromPorts -> e :: EtherInput; e [ip4] -> i4 :: IP4Input; e [ip6] -> i6 :: IP6Input; e [2] -> Discard;
        e [3] -> Discard; i4 [0] -> u :: IPUrpf -> t :: ToPorts; i4 [1] -> [1] u; i4 [2] -> [2] u;
        i6 [0] -> [3] u; i6 [1] -> [4] u; u [1] -> t; u [2] -> t; u [3] -> t; u [4] -> t"),
    makes("FromPorts -> e :: EtherInput; e [ip4] -> i4 :: IP4Input; e [ip6] -> i6 :: IP6Input; e [2] -> Discard;
        e [3] -> Discard; i4 [0] -> l4 :: IP4FIBLookup -> n4 :: IP4NextHop -> t :: ToPorts; i4 [1] -> Discard;
        i4 [2] -> Discard; i6 [0] -> l6 :: IP6FIBLookup -> n6 :: IP6NextHop -> t; i6 [1] -> Discard;
        n4 [1] -> Discard; n4 [2] -> Discard; n4 [3] -> Discard; n4 [turn] -> r :: IPRedirects -> [2] n4; Idle -> [1] n4;
        n6 [1] -> Discard; n6 [2] -> Discard; n6 [turn] -> [1] r; r [1] -> [1] n6;
        r [2] -> l4; r [3] -> l6; r [4] -> t"),
    makes("FromPorts -> e :: EtherInput; e [ip4] -> i4 :: IP4Input; e [ip6] -> i6 :: IP6Input; e [2] -> Discard;
        e [3] -> Discard; i4 [0] -> f :: IPSourceFilter -> t :: ToPorts; i4 [1] -> [1] f; i4 [2] -> [2] f;
        i6 [0] -> [3] f; i6 [1] -> [4] f; f [1] -> t; f [2] -> t; f [3] -> t; f [4] -> t"),
    makes("FromPorts -> e :: EtherInput; e [ip4] -> i4 :: IP4Input; e [ip6] -> i6 :: IP6Input; e [2] -> Discard;
        e [3] -> Discard; i4 [0] -> s :: IPSampler -> t :: ToPorts; i4 [1] -> [1] s; i4 [2] -> [2] s;
        i6 [0] -> [3] s; i6 [1] -> [4] s; s [1] -> t; s [2] -> t; s [3] -> t; s [4] -> t"),
    makes("FromPorts -> e :: EtherInput; e [ip4] -> i4 :: IP4Input; e [ip6] -> i6 :: IP6Input; e [2] -> Discard;
        e [3] -> Discard; i4 [0] -> f :: IPAccessIn -> o :: IPAccessOut -> t :: ToPorts; i4 [1] -> [1] f; i4 [2] -> [2] f;
        i6 [0] -> [3] f; i6 [1] -> [4] f; f [1] -> t; f [2] -> t; f [3] -> [1] o; f [4] -> t; o [1] -> t"),
    makes("FromPorts -> e :: EtherInput; e [ip4] -> i4 :: IP4Input; e [ip6] -> i6 :: IP6Input; e [2] -> Discard;
        e [3] -> Discard; i4 [0] -> f :: IPPolicerIn -> o :: IPPolicerOut -> t :: ToPorts; i4 [1] -> [1] f; i4 [2] -> [2] f;
        i6 [0] -> [3] f; i6 [1] -> [4] f; f [1] -> t; f [2] -> t; f [3] -> [1] o; f [4] -> t; o [1] -> t"),
    ordered("FromDevice(a) -> c :: Counter -> ToDevice(b)"),
    ordered("FromDevice(a) -> EtherMirror -> ToDevice(a)"),
    ordered("FromDevice(a) -> Queue(2000) -> Counter -> ToDevice(b)"),
    ordered("FromDevice(a) -> Queue(2000) -> Unqueue(7) -> ToDevice(b)"),
    ordered("FromDevice(a) -> SimpleQueue(2000) -> Unqueue -> NotifierQueue(2000) -> Unqueue -> FullNoteQueue(2000) -> Unqueue
        -> QuickNoteQueue(2000) -> Unqueue -> ThreadSafeQueue(2000) -> Unqueue -> FrontDropQueue(2000) -> ToDevice(b)"),
    makes("FromDevice(a) -> q :: MixedQueue(2000) -> ToDevice(b); FromDevice(c) -> [1] q"),
    ordered("FromDevice(a) -> Queue(2000) -> Discard; Idle -> ControlSocket@9 :: Idle -> Discard"),
    ordered("FromDevice(a) -> c :: Classifier(12/0806, 12/0800, 12/86dd, -);
        c [0] -> Queue(2000) -> [0] r :: RoundRobinSched -> ToDevice(b); c [1] -> Queue(2000) -> [1] r;
        c [2] -> Queue(2000) -> [0] p :: PrioSched -> ToDevice(c); c [3] -> Queue(2000) -> [1] p"),
    makes("FromDevice(a) -> t :: Tee(3); t [0] -> ToDevice(b); t [1] -> Discard; t [2] -> ToDevice(c)"),
    ordered("InfiniteSource(LIMIT 0) -> Discard; FromDevice(a) -> Discard"),
    ordered("FromDevice(a) -> DropCause; ControlSocket(TCP, 0)"),
    ordered("FromDevice(a) -> Strip(14) -> CheckIPHeader(INTERFACES 10.0.0.1/24 10.0.1.1/24) -> d :: DecIPTTL
        -> EtherEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2) -> ToDevice(b); d [expired] -> ToDevice(c)"),
    ordered("FromDevice(a) -> Strip(14) -> x :: CheckIP6Header -> d :: DecIP6HLIM -> Unstrip(14) -> ToDevice(b);
        d [expired] -> ToDevice(c); x [1] -> ToDevice(d)"),
    makes("FromDevice(a) -> Strip(14) -> CheckIPHeader -> FixIPSrc(10.0.0.1) -> o :: IPGWOptions(10.0.1.1)
        -> f :: IPFragmenter(576) -> ToDevice(b);
        o [1] -> ICMPError(10.0.0.1, parameterproblem) -> ToDevice(c);
        f [1] -> ICMPError(10.0.0.1, unreachable, needfrag) -> ToDevice(c)"),
    makes("FromDevice(a) -> Strip(14) -> CheckIP6Header -> d :: DecIP6HLIM -> Discard;
        d [1] -> ICMP6Error(2001:db8::1, timeexceeded) -> ToDevice(b)"),
    makes("FromDevice(a) -> i :: IPInputCombo(1, INTERFACES 10.0.0.1/24) -> SetIPDSCP(10)
        -> Print(x, ACTIVE false) -> o :: IPOutputCombo(1, 10.0.0.1, 576) -> ToDevice(b);
        i [1] -> ToDevice(c); o [1] -> ToDevice(d); o [2] -> ToDevice(e); o [3] -> ToDevice(f); o [4] -> ToDevice(g)"),
    ordered("FromDevice(a) -> Strip(14) -> p :: ICMPPingResponder -> ToDevice(b); p [1] -> ToDevice(c)"),
    makes("FromDevice(a) -> c :: Classifier(12/0806, -) -> r :: ARPResponder(0/0 2:0:0:0:0:1) -> ToDevice(b);
        c [1] -> Strip(14) -> CheckIPHeader -> q :: ARPQuerier(10.0.0.1/24, 2:0:0:0:0:1) -> ToDevice(c);
        r [1] -> [1] q; q [1] -> ToDevice(d); q [2] -> ToDevice(e)"),
    makes("FromDevice(a) -> c :: Classifier(12/86dd 20/3aff 54/87, 12/86dd, -)
        -> n :: NDAdvertiser(2001:db8::/32 2:0:0:0:0:1) -> ToDevice(b); n [1] -> [1] q; c [2] -> Discard;
        c [1] -> Strip(14) -> CheckIP6Header -> CheckLength(1400) -> q :: NDSolicitor(2001:db8::1/32, 2:0:0:0:0:1) -> ToDevice(c);
        q [1] -> ToDevice(d); q [2] -> ToDevice(e)"),
    ordered("FromDevice(a) -> DropBroadcasts -> Paint(3) -> s :: PaintSwitch; s [0] -> Discard; s [1] -> Discard;
        s [2] -> Discard; s [3] -> ToDevice(b)"),
    makes("FromDevice(a) -> Paint(3) -> t :: PaintTee(3) -> ToDevice(b); t [1] -> ToDevice(c)"),
    ordered("FromDevice(a) -> Strip(14) -> MarkIPHeader@9 :: CheckIPHeader
        -> c :: IPClassifier(icmp, udp port 53, src net 10.0.0.0/8 and tcp, -);
        c [0] -> ToDevice(b); c [1] -> ToDevice(c); c [2] -> ToDevice(d);
        c [3] -> f :: IPFilter(deny ip ttl < 5, 1 udp, allow all) -> ToDevice(e); f [1] -> ToDevice(f)"),
    ordered("FromDevice(a) -> Strip(14) -> CheckIPHeader -> a :: StaticIPLookup(0/0 0, 198.51.100.0/24 1)
        -> b :: LinearIPLookup(192/2 0, 10/8 1, 8/8 - 0) -> SortedIPLookup(0/0 0) -> c :: RadixIPLookup(0/0 192.0.2.9 0, 8.8.8.8/32 1)
        -> d :: DirectIPLookup(192.0.2.0/24 198.51.100.3 0) -> e :: RangeIPLookup(198.51.100.3/32 0)
        -> f :: DXRIPLookup(0/0 0, 198.51.100.0/28 1) -> Discard; f [1] -> g :: BSDIPLookup(0/0 0)
        -> h :: IPLookup(0/0 0, ALGORITHM bc18) -> ToDevice(b);
        a [1] -> ToDevice(c); b [1] -> ToDevice(d); c [1] -> ToDevice(e)"),
    ordered("FromDevice(a) -> Strip(14) -> CheckIP6Header -> a :: BSDIP6Lookup(2001:db8:5::/48 fe80::7 0, ::/0 1)
        -> b :: IP6Lookup(fe80::/10 0) -> ToDevice(b); a [1] -> ToDevice(c)"),
    ordered("FromDevice(a) -> Strip(14) -> SourceFilter(own pass 10.0.0.0/24, lan mark 4 10.0.0.0/8 2001:db8::/32)
        -> s :: SourceFilter(bad drop 10.0.0.0/8 2001:db8::9, all count 0/0 ::/0, DEFAULT drop) -> ToDevice(b);
        s [drop] -> SourceFilter(x drop 10.0.0.9) -> ToDevice(c)"),
    ordered("FromDevice(a) -> Strip(14) -> c :: PrefixCounter(10.0.0.0/24, 2001:db8::/64 x) -> ToDevice(b);
        c [rest] -> PrefixCounter(0/0, ADDRESS src) -> ToDevice(c)"),
    ordered("FromDevice(a) -> Strip(14) -> s :: SourceFilter(all limit 1000 0/0 ::/0, some limit 1Mbps 10/8) -> ToDevice(b);
        s [drop] -> ToDevice(c)"),
    makes("FromDevice(a) -> Strip(14) -> CheckIPHeader -> IPFragmenter(300, HONOR_DF false) -> r :: IPReassembler(HIMEM 9000)
        -> ToDevice(b); r [incomplete] -> ToDevice(c)"),
    makes("FromDevice(a) -> Strip(14) -> CheckIPHeader -> r :: IPReassembler -> ToDevice(b)"),
    ordered("FromDevice(a) -> Strip(14) -> Paint(1) -> u :: UrpfCheck(rt more rt6, MODE feasible, BLACKHOLE 2) -> ToDevice(b);
        u [fail] -> UrpfCheck(rt, MODE loose) -> ToDevice(c); rt :: DXRIPLookup(10.0.0.0/24 1, 0/0 0);
        more :: IPLookup(10.0.0.0/8 2); rt6 :: IP6Lookup(2001:db8::/32 0);
        Idle -> rt => Discard, Discard; Idle -> more => Discard, Discard, Discard; Idle -> rt6 -> Discard"),
    ordered("FromDevice(a) -> d :: VLANDecap -> VLANEncap(VLAN_ID 9, VLAN_PCP 3) -> VLANEncap(ANNO, ETHERTYPE 0x88a8)
        -> s :: StripEtherVLANHeader(-1) -> SetVLANAnno(0x6007) -> EtherVLANEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2, ANNO)
        -> ToDevice(b); s [untagged] -> StripEtherVLANHeader(3) -> ToDevice(c)"),
    ordered("FromDevice(a) -> m :: Meter(10, 20) -> BandwidthMeter(1Mbps) -> s :: RatedSplitter(1000)
        -> Queue(2000) -> RatedUnqueue(500) -> ToDevice(b); m [1] -> Discard; m [2] -> Discard;
        s [1] -> t :: BandwidthRatedSplitter(200kBps, BURST_BYTES 9000) -> Queue(2000) -> BandwidthRatedUnqueue(8Mbps)
        -> ToDevice(c); t [1] -> Queue(2000) -> Shaper(2000) -> BandwidthShaper(1MBps) -> ToDevice(d)"),
    ordered("FromDevice(a) -> Queue(2000) -> DelayShaper(1ms, CAPACITY 9) -> DelayUnqueue(0) -> ToDevice(b);
        RatedSource(LIMIT 5, RATE 1000) -> Discard; RandomSource(60, 0) -> s :: Switch(-1) -> Discard"),
    ordered("FromDevice(a) -> PanicAfter(1000000) -> ToDevice(b)"),
    ordered("FromDevice(a) -> Align(4, 0) -> AverageCounter -> SetTimestamp(1) -> MarkIPHeader(14) -> IPMirror -> ToDevice(b);
        ClickyInfo(); ScheduleInfo(x 2)"),
    ordered("FromDevice(a) -> Null -> PushNull -> MarkIPHeader(14) -> MarkIP6Header(14) -> Truncate(600) -> Queue(2000) -> PullNull
        -> ToDevice(b); AddressInfo(x 10.0.0.1); PortInfo(y 80); DriverManager(pause)"),
    ordered("FromDevice(a) -> Strip(14) -> t :: CheckTCPHeader -> IPPrint(ACTIVE false) -> ToDevice(b);
        t [bad] -> u :: CheckUDPHeader -> ToDevice(c); u [bad] -> i :: CheckICMPHeader -> ToDevice(d); i [bad] -> ToDevice(e);
        FromDevice(f) -> ARPPrint(ACTIVE false) -> ToDevice(g)"),
    ordered("FromDevice(a) -> y :: Bypass -> ToDevice(b); y [1] -> Counter(COUNT_CALL 3 y.active false) -> [1] y;
        FromDevice(d) -> McastSocket(233.252.0.0, 1234) -> ToDevice(e)"),
    makes("FromDevice(a) -> Script(TYPE PACKET, goto x $(eq 1 2), return 0, label x) -> h :: Hub [1] -> ToDevice(b);
        h [2] -> ToDevice(c); FromDevice(d) -> [1] h [0] -> ToDevice(d); FromDevice(e) -> [2] h"),
    makes("FromDevice(a) -> Strip(14) -> IPEncap(tcp, 10.0.0.1, 10.0.0.2) -> UDPIPEncap(10.0.0.1, 1, 10.0.0.2, 2)
        -> ICMPIPEncap(10.0.0.1, 10.0.0.2) -> DynamicUDPIPEncap(10.0.0.1, 1, 10.0.0.2, 2) -> r :: RoundRobinSwitch -> d :: Discard; r [1] -> d; r [2] -> d"),
    ordered("FromDevice(a) -> Strip(14) -> rw :: IPRewriter(keep 0 1, pass 2) -> u :: UDPRewriter(keep 0 0) -> t :: TCPRewriter(pass 0)
        -> f :: FTPPortMapper(t, t, 0) -> p :: IPAddrPairRewriter(keep 0 0) -> a :: IPAddrRewriter(keep 0 0) -> ToDevice(b);
        rw [1] -> ToDevice(c); rw [2] -> i :: ICMPRewriter(rw) -> ToDevice(d); i [1] -> ToDevice(e); FromDevice(x) -> [1] rw;
        IPRewriterPatterns(x 10.0.0.1 1-9 - -); RoundRobinIPMapper(10.0.0.1 1-9 - - 0 1)"),
    ordered("FromDevice(a) -> Strip(14) -> MarkIPHeader -> rw :: UDPRewriter(m) -> ToDevice(b); rw [1] -> ToDevice(c);
        m :: SourceIPHashMapper(8 7, - - 10.0.0.7 - 0 1 1, - - 10.0.0.8 - 1 0 2)"),
    makes("FromDevice(a) -> c :: Classifier(12/0806, 12/0800); c [0] -> [1] q; t :: ARPTable;
        c [1] -> Strip(14) -> CheckIPHeader -> q :: ARPQuerier(10.0.0.1/24, 2:0:0:0:0:1, TABLE t) -> ToDevice(c)"),
    ordered("FromDevice(a) -> s :: StoreIPAddress(10.0.0.7, src) -> SetIPAddress(10.9.9.9) -> GetIPAddress(16)
        -> SetRandIPAddress(10.0.0.0/8) -> ToDevice(b); s [1] -> SetIP6Address(fe80::1) -> GetIP6Address(22) -> ToDevice(c);
        FromHost(d, 10.0.0.1/24) -> ToHost; PollDevice(e) -> ToHostSniffers; FromDPDKDevice(f) -> ToDPDKDevice(g)"),
    ordered("FromDevice(a) -> Strip(14) -> MarkIPHeader -> c :: Classifier(0/60%f0, 0/40%f0, -);
        c [0] -> IP6Mirror -> SetIP6DSCP(9) -> l :: LookupIP6Route(2001:db8::/32 0, ::/0 1) => ToDevice(b), Discard;
        c [1] -> SetIPChecksum -> u :: SetUDPChecksum -> IP6Encap(tcp, fe80::1, fe80::2) -> UDPIP6Encap(fe80::1, 1, fe80::2, 2) -> ToDevice(c);
        u [1] -> SetTCPChecksum -> StripIPHeader -> UnstripIPHeader -> StripToNetworkHeader -> MarkMACHeader -> ToDevice(d); c [2] -> Discard"),
    ordered("FromDevice(a) -> Strip(14) -> t :: CheckIP6Header -> [0] a :: AddressTranslator(0, 1, 1, 0, ::10.0.0.1 5 900)
        -> ProtocolTranslator64 -> ToDevice(b); t [1] -> CheckIPHeader -> ProtocolTranslator46 -> [1] a [1] -> ToDevice(c)"),
    makes("FromDevice(a) -> c :: Classifier(12/86dd 20/3aff 54/87, 12/86dd, -)
        -> IP6NDAdvertiser(2001:db8::/32 2:0:0:0:0:1) -> [1] q; c [2] -> Discard;
        c [1] -> Strip(14) -> q :: IP6NDSolicitor(2001:db8::1, 2:0:0:0:0:1) -> ToDevice(c)"),
    ordered("FromDevice(a) -> c :: Classifier(12/0806, 12/0800, 12/86dd, -); c [0] -> Queue(2000) -> [0] d :: DRRSched(100) -> ToDevice(b);
        c [1] -> Queue(2000) -> [1] d; c [2] -> Queue(2000) -> [0] p :: PullSwitch(0) -> SpinlockAcquire(x) -> SpinlockRelease(x) -> ToDevice(c);
        Idle -> Queue -> [1] p; c [3] -> Queue(2000) -> [0] s :: StaticPullSwitch(0) -> [0] t :: SimplePullSwitch(0) -> ToDevice(d);
        Idle -> Queue -> [1] s; Idle -> Queue -> [1] t; StaticThreadSched(d 1); BalancedThreadSched(); SpinlockInfo(x);
        FromDevice(e) -> SpinlockPush(x) -> ToDevice(e)"),
    makes("FromDevice(a) -> Queue(2000) -> t :: PullTee -> ToDevice(b); t [1] -> ToDevice(c)"),
    ordered("FromDevice(a) -> RED(4, 9, 0.3) -> AdaptiveRED(20) -> Queue(2000) -> Idle"),
    ordered("FromDevice(a) -> Discard; FromDevice(b) -> Queue -> CoDel -> Discard"),
    ordered("FromDevice(a) -> Queue(2000) -> LinkUnqueue(0, 10Gbps) -> ToDevice(b)"),
    ordered("FromDevice(a) -> ToDevice(b); QuitWatcher(f);
        f :: FastUDPFlows(0, 0, 60, 2:0:0:0:0:1, 10.0.0.1, 2:0:0:0:0:2, 10.0.0.2, 3, 9) -> Discard;
        FastUDPSource(0, 0, 64, 2:0:0:0:0:1, 10.0.0.1, 5, 2:0:0:0:0:2, 10.0.0.2, 6) -> Discard;
        FastUDPSourceIP6(0, 0, 90, 2:0:0:0:0:1, fe80::1, 5, 2:0:0:0:0:2, fe80::2, 6) -> Discard"),
    ordered("FromDevice(a) -> s :: RandomSample(.5) -> RandomBitErrors(.01) -> ToDevice(b); s [1] -> r :: RandomSwitch -> ToDevice(c); r [1] -> ToDevice(d)"),
    ordered("FromDevice(a) -> ICMPPingSource(10.0.0.1, 10.0.0.2, ACTIVE false, VERBOSE false) -> ToDevice(b);
        ICMPSendPings(10.0.0.1, 10.0.0.2, ACTIVE false) -> Discard"),
    ordered("FromDevice(a) -> Strip(14) -> t :: KernelTun(10.0.0.1/8) -> ToDevice(b); t [1] -> Discard; FromDevice(c) -> KernelTap(10.0.0.2/8) -> Discard;
        FromSocket(TCP, 0.0.0.0, 80) -> Socket(TCP, 0.0.0.0, 81) -> ToSocket(UDP, 10.0.0.1, 53)"),
    ordered("FromDevice(a) -> Strip(14) -> rw :: ICMPPingRewriter(pattern 10.9.9.9 - - - 0 1) -> ToDevice(b); rw [1] -> ToDevice(c)"),
    makes("FromDevice(a) -> f :: HostEtherFilter(2:0:0:0:0:1) -> EtherRewrite(2:0:0:0:0:1, 2:0:0:0:0:2) -> s :: StoreEtherAddress(2:0:0:0:0:3, dst)
        -> EnsureEther(0x0800) -> ToDevice(b); f [1] -> ToDevice(c); s [1] -> ToDevice(d);
        FromDevice(e) -> ToyTCP(80) -> ToDevice(f); SchedOrderTest(1, SIZE 3)"),
    makes("FromDevice(a) -> Strip(14) -> WebGen(10.0.0.0/8, 10.0.0.9) -> ToDevice(b)"),
    makes("FromDevice(a) -> Strip(14) -> TCPReflector -> ToDevice(b)"),
    ordered("FromDevice(a) -> s :: StrideSwitch(3, 1) -> ToDevice(b); s [1] -> ToDevice(c)"),
    ordered("FromDevice(a) -> StaticSwitch(0) -> h :: HashSwitch(26, 8) -> ToDevice(b); h [1] -> ToDevice(c);
        FromDevice(b) -> InputSwitch(0) -> Queue(2000) -> r :: RoundRobinUnqueue(3) -> ToDevice(d); Idle -> Queue -> [1] r [1] -> Discard"),
    ordered("FromDevice(a) -> Queue(2000) -> Unqueue2(7) -> Queue(2000) -> TimedUnqueue(1s, 3) -> Queue(2000) -> Burster(1s) -> ToDevice(b)"),
    ordered("FromDevice(a) -> Pad(70) -> Resize(0, 4) -> StoreData(12, \\<0800>) -> MarkIPHeader(14) -> TruncateIPPayload(40) -> EraseIPPayload
        -> ToDevice(b)"),
    ordered("FromDevice(a) -> SetAnnoByte(PAINT, 4) -> c :: CheckPaint(4) -> SetPacketType(HOST) -> Strip(14) -> MarkIPHeader -> SetIPECN(ect1)
        -> MarkIPCE -> ToDevice(b); c [1] -> Discard"),
    ordered("FromDevice(a) -> MarkIPHeader(14) -> i :: AggregateIP(ip dst/8) -> AggregatePacketCounter -> AggregateCounter
        -> f :: AggregateFilter(0 10 192, 1 all) -> ToDevice(b); f [1] -> ToDevice(c); i [1] -> AggregateLength -> AggregatePaint -> ToDevice(d)"),
    ordered("FromDevice(a) -> MarkIPHeader(14) -> i :: AggregateIPFlows -> f :: AggregateFirst -> ToDevice(b); f [1] -> p :: AggregateIPAddrPair -> ToDevice(c);
        i [1] -> ToDevice(d); p [1] -> ToDevice(e)"),
    ordered("FromDevice(a) -> MarkIPHeader(14) -> AggregateIP(ip dst) -> l :: AggregateLast -> ToDevice(b); l [1] -> ToDevice(c)"),
    ordered("FromDevice(a) -> SetTimestamp(7) -> f :: TimeFilter(START 5, END 9) -> TimeRange -> AdjustTimestamp(1) -> SetTimestampDelta(RANGE)
        -> StoreTimestamp(0) -> ToDevice(b); f [1] -> TimestampAccum -> ToDevice(c)"),
    ordered("FromDevice(a) -> StoreUDPTimeSeqRecord(14, DELTA true) -> ToDevice(b)"),
    ordered("FromDevice(a) -> Null1 -> Null2 -> Null3 -> Null4 -> Null5 -> Null6 -> Null7 -> Null8 -> s :: StripEtherVlanHeader(-1) -> SetVlanAnno(3)
        -> EtherVlanEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2, ANNO) -> DiscardNoFree; s [1] -> Strip(14) -> CheckIPHeader2
        -> ICMPPingEncap(10.0.0.1, 10.0.0.2) -> ToDevice(b); SimpleIdle -> Queue -> p :: SimplePrioSched -> Discard;
        AlignmentInfo(); AnnotationInfo(); DevirtualizeInfo(); FlowInfo(); IPFieldInfo(); IPNameInfo()"),
    ordered("FromDevice(a) -> c :: Classifier(12/0800, -) -> Queue(2000) -> s :: StrideSched(3, 2) -> ToDevice(b);
        c [1] -> Queue(2000) -> [1] s; FromDevice(c) -> Queue(2000) -> TimeSortedSched -> ToDevice(d);
        TimedSource(1s, LIMIT 0) -> Queue -> TimedSink(1s)"),
    ordered("FromDevice(a) -> s :: EtherSwitch -> ToDevice(b); FromDevice(c) -> [1] s [1] -> ToDevice(d)"),
    makes("FromDevice(a) -> SetCRC32 -> CheckCRC32 -> CheckPacket(LENGTH_GE 0) -> GetEtherAddress(0, src) -> SetEtherAddress(6, 2:0:0:0:0:1)
        -> StoreEtherAddress(dst, ANNO 6) -> u :: UpstreamNotifier -> MarkIPHeader(14) -> t :: TCPFragmenter(500) -> s :: Suppressor -> ToDevice(b);
        FromDevice(c) -> [1] s [1] -> c :: CheckARPHeader(14) -> f :: IP6Fragmenter(100) -> ToDevice(d); c [1] -> Discard;
        f [1] -> NeighborhoodTest -> ToDevice(e); RandomSeed(7); h :: HandlerTask(h.reschedule false); NullTask(LIMIT 3); TimerTest(DELAY 1000s)"),
    ordered("FromDevice(a) -> MarkIPHeader(14) -> n :: AnonymizeIPAddr(SEED false) -> m :: IPRateMonitor(BYTES, .5, 1000000)
        -> b :: Block(9) -> c :: CompareBlock(1, 0, 9) -> ToDevice(b); FromDevice(c) -> [1] m [1] -> ToDevice(d);
        n [1] -> ToDevice(e); b [1] -> ToDevice(f); c [1] -> ToDevice(g)"),
    makes("FromDevice(a) -> Strip(14) -> d :: NotifierDebug -> Reframe -> b :: Clipboard(1/3) -> ToDevice(b);
        FromDevice(c) -> Reframe(FLEN 0, ADD 9) -> Unqueue -> [1] b [1] -> ToDevice(d)"),
    ordered("FromDevice(a) -> s :: CPUSwitch -> q :: CPUQueue(2000) -> ToDevice(b); q [1] -> Unqueue(ACTIVE false) -> ToDevice(c);
        s [1] -> q"),
    makes("FromDevice(a) -> s :: ListenEtherSwitch -> ToDevice(b); FromDevice(c) -> [1] s [1] -> ToDevice(d); s [2] -> ToDevice(e)"),
    makes("FromDevice(a) -> t :: Tee -> Queue(2000) -> c :: ComparePackets -> ToDevice(b); t [1] -> Queue(2000) -> [1] c [1] -> ToDevice(d);
        FromTcpdump(../../testdata/click/tcpdump.txt) -> ToDevice(e)"),
    // Files: whoever writes one passes what it writes, and packets of one come beside those that are received.
    ordered("FromDevice(a) -> ToDump(/dev/null) -> MarkIPHeader(14) -> ToIPSummaryDump(/dev/null, FIELDS ip_src ip_len sport payload)
        -> ToDevice(b); FromDump(../../testdata/packets/bad.pcap) -> ToDevice(c)"),
    ordered("FromDevice(a) -> Strip(14) -> IP6Print -> ToDevice(b); Message(x);
        FromIPSummaryDump(DATA \"!data src dst dport\n1.0.0.1 2.0.0.2 7\n1.0.0.3 - -\n\") -> Queue(1) -> Unqueue -> ToDevice(c);
        FromDevice(d) -> ToDump(/dev/null); FromDevice(e) -> ToIPSummaryDump(/dev/null)"),
    ordered("FromDevice(a) -> MarkIPHeader(14) -> i :: AggregateIPFlows -> ToIPFlowDumps(-, NOTIFIER i) -> ToDevice(b);
        i [1] -> ToIPFlowDumps(/dev/null) -> ToDevice(c); FromDevice(d) -> ToIPFlowDumps(/dev/null)"),
];

/// Classes that no graph here can have: `ErrorElement` and `Error` refuse every configuration, and the other is only
/// built in on demand; its element is that of the other route tables.
const ELSEWHERE: &[&str] = &["Error", "ErrorElement", "PoptrieIPLookup"];

fn world() -> World {
    let mut world = World::new();
    world.ports.ports[0].as_mut().unwrap().urpf = Some(UrpfMode::Strict);
    world.neighbor(4, 1);
    world.neighbor(5, 0);
    world.neighbor(6, 2);
    world.action("10.0.0.0/24", ForwardingAction::Adjacency(5));
    world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
    world.action("198.51.100.0/24", ForwardingAction::Adjacency(6));
    world.action("203.0.113.0/24", ForwardingAction::Glean(1));
    world.action("2001:db8::/64", ForwardingAction::Adjacency(5));
    world.action("2001:db8:5::/48", ForwardingAction::Adjacency(6));
    world.action("2001:db8:6::/48", ForwardingAction::Blackhole);
    world
}

/// Frames of all kinds, and all that are bad.
fn corpus() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for dst in ["192.0.2.1", "198.51.100.9", "203.0.113.5", "10.0.0.1", "8.8.8.8", "224.0.0.5"] {
        for (ttl, protocol, len) in
            [(64, 17, 30), (1, 6, 40), (2, 1, 1480), (64, 17, 1300), (3, 17, 0)]
        {
            let mut payload = vec![u8::try_from(len % 250).unwrap(); len];
            if len > 4 {
                payload[..4].copy_from_slice(&[0, 53, 0, 53]);
            }
            let mut frame = frame_v4("10.0.0.9", dst, ttl, protocol, &payload);
            if len == 1300 {
                frame[20] |= 0x40;
                fill_ip4_checksum(&mut frame);
            }
            frames.push(frame);
        }
    }
    for dst in ["2001:db8:5::1", "2001:db8:6::1", "2001:db8:7::1", "ff02::1", "fe80::1"] {
        for (hops, next, len) in [(64, 17, 30), (1, 6, 40), (64, 58, 1440)] {
            frames.push(frame_v6("2001:db8::9", dst, hops, next, &vec![7; len]));
        }
    }
    // With a record route option that has room, and one that is cut short.
    for option in [[7, 7, 4, 0, 0, 0, 0, 0], [7, 9, 4, 0, 0, 0, 0, 0]] {
        let mut frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &option);
        frame[14] = 0x47;
        fill_ip4_checksum(&mut frame);
        frames.push(frame);
    }
    // To everybody, and to nobody here.
    for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 5], [2, 0, 0, 0, 7, 7]] {
        let mut frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 30]);
        frame[..6].copy_from_slice(&mac);
        frames.push(frame);
    }
    let mut arp = vec![0; 60];
    arp[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 9, 9, 8, 6]);
    arp[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    frames.push(arp);
    // Solicitations of an address and by nobody, and an advertisement.
    for (kind, src, dst) in [(135, 0, 0xff02 << 112 | 0x1_ff00_0007), (135, 1, 2), (136, 1, 2)] {
        let host = |n: u128| if n > 0 && n < 9 { (0x2001_0db8 << 96) | n } else { n };
        let (src, dst, target) = (host(src), host(dst), host(7));
        let link = (src > 0).then_some(Mac([2, 0, 0, 0, 9, 9]));
        let nd = Nd { kind, flags: 0x60, src, dst, target, link };
        let mut frame = frame_v6("::", "::", 255, 58, &[0; 32]);
        assert!(nd.write(&mut frame, 14));
        frames.push(frame);
    }
    // Fragments of two packets, one of which they do not make whole.
    for (id, word) in [(1, 0x2000_u16), (1, 10), (2, 0x2000), (2, 9), (3, 20)] {
        let mut frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[id; 80]);
        frame[19] = id;
        frame[20..22].copy_from_slice(&word.to_be_bytes());
        fill_ip4_checksum(&mut frame);
        frames.push(frame);
    }
    // In a VLAN, and in a VLAN of a VLAN, that no host is in who looks for IP at the usual place.
    let mut tagged = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 30]);
    for kind in [[0x81, 0], [0x88, 0xa8]] {
        tagged.splice(12..12, [kind[0], kind[1], 0x60, 7]);
        frames.push(tagged.clone());
    }
    frames.push(tagged[..17].to_vec());
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/packets/bad.pcap");
    let file = std::fs::File::open(bad).unwrap();
    let mut reader = pcap_file::pcap::PcapReader::new(file).unwrap();
    while let Some(record) = reader.next_packet() {
        frames.push(record.unwrap().data.into_owned());
    }
    frames
}

/// What came out, by port, and what was dropped, by reason.
#[derive(PartialEq, Debug)]
struct Outcome {
    sent: BTreeMap<u16, Vec<Vec<u8>>>,
    dropped: Vec<(&'static str, u64)>,
    held: usize,
}

/// Runs frames received on the first device, in batches of these sizes.
fn run(subject: &Subject, frames: &[&[u8]], sizes: &[usize]) -> Outcome {
    console::collect();
    let mut rig = Rig::new(&world(), subject.text);
    let mut rest = frames;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*sizes.next().unwrap()).clamp(1, 256).min(rest.len()));
        let batch = batch(&rig.bench.pool, 0, now.iter().copied());
        rig.graph.receive(0, batch, &mut rig.bench.round());
        rest = later;
    }
    while rig.graph.poll(&mut rig.bench.round()) {}
    let held = rig.graph.held();
    let counters = &rig.bench.counters;
    let dropped: u64 = DropReason::ALL.iter().map(|&reason| rig.dropped(reason)).sum();
    // Made, and read from files.
    let made = usize::try_from(counters.generated.read() + counters.packets_in.read()).unwrap();
    let ended = rig.bench.sent.frames.len() + usize::try_from(dropped).unwrap() + held.total();
    assert_eq!(frames.len() + made, ended, "in + made = out + dropped + held: {}", subject.text);
    assert_eq!(rig.bench.pool.free() + held.total(), rig.bench.pool.frames(), "{}", subject.text);
    let mut sent: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
    for (port, mut frame, meta) in rig.bench.sent.frames.drain(..) {
        let at = usize::from(meta.network);
        let is_ip4 = frame.len() >= at + 20 && frame[at] >> 4 == 4;
        if meta.flags & FLAG_GENERATED != 0 && is_ip4 {
            // Numbered as they are made: identification, and with it the checksum.
            frame[at + 4..at + 6].fill(0);
            frame[at + 10..at + 12].fill(0);
        }
        sent.entry(port).or_default().push(frame);
    }
    if subject.any_order {
        sent.values_mut().for_each(|frames| frames.sort());
    }
    let dropped = DropReason::ALL.iter().map(|&reason| (reason.name(), rig.dropped(reason)));
    Outcome { sent, dropped: dropped.filter(|(_, n)| *n > 0).collect(), held: held.total() }
}

/// Where two outcomes part, in words.
fn difference(whole: &Outcome, parts: &Outcome) -> String {
    let mut text = format!("dropped {:?}\nand     {:?}\n", whole.dropped, parts.dropped);
    for (port, frames) in &whole.sent {
        let others = parts.sent.get(port).map_or(&[][..], |frames| frames);
        let at = frames.iter().zip(others).position(|(one, other)| one != other);
        text += &format!("port {port}: {} and {} frames", frames.len(), others.len());
        if let Some(at) = at {
            text += &format!(", number {at}:\n{:02x?}\n{:02x?}", frames[at], others[at]);
        }
        text += "\n";
    }
    text
}

/// Parts of the names of classes that differ where there are several workers: rates and random numbers are each one's own, and so is
/// what reassembly has room for.
const OF_ITS_OWN: &[&str] = &[
    "Rated",
    "Shaper",
    "Meter",
    "IPReassembler",
    "RED",
    "Random",
    "StrideSwitch",
    "LinkUnqueue",
    "WebGen",
    // What it knows of an address depends on the order of packets.
    "EtherSwitch",
    // Each has a stream of its own.
    "Reframe",
];
/// Handlers that measure, or show what each worker had at most.
const NO_SUM: &[&str] =
    &["bench", "rate", "byte_rate", "bit_rate", "highwater_length", "table_bytes"];

/// What handlers show that is a number, by their names.
fn numbers(rig: &Rig) -> BTreeMap<String, u64> {
    let mut numbers = BTreeMap::new();
    for node in rig.plan.nodes() {
        let listed = rig.read(&format!("{}.handlers", node.name));
        let rows = listed.lines().filter_map(|line| line.split_once('\t'));
        for (name, _) in rows.filter(|(name, mode)| mode.contains('r') && !NO_SUM.contains(name)) {
            let full = format!("{}.{name}", node.name);
            // Some want a parameter.
            let said = rig.handlers.read(&full, "").unwrap_or_default();
            numbers.extend(said.parse::<u64>().map(|number| (full, number)));
        }
    }
    numbers
}

/// Runs frames received on the first device one after the other, those to one destination by one of the workers;
/// what handlers show then, and how many packets left by each port.
fn run_by(
    subject: &Subject,
    frames: &[&[u8]],
    workers: usize,
) -> (BTreeMap<String, u64>, Vec<(u16, usize)>) {
    console::collect();
    let mut rig = Rig::new(&world(), subject.text);
    let mut others: Vec<Graph> =
        (1..workers).map(|_| Graph::new(&rig.plan, &rig.bench.pool)).collect();
    for &frame in frames {
        let destination = match frame.get(12..14) {
            Some([8, 0]) => frame.get(30..34),
            Some([0x86, 0xdd]) => frame.get(38..54),
            _ => None,
        };
        let sum: usize =
            destination.unwrap_or_default().iter().map(|&byte| usize::from(byte)).sum();
        let batch = batch(&rig.bench.pool, 0, [frame]);
        let other = (sum % workers).checked_sub(1).map(|at| &mut others[at]);
        other.unwrap_or(&mut rig.graph).receive(0, batch, &mut rig.bench.round());
    }
    for graph in std::iter::once(&mut rig.graph).chain(&mut others) {
        while graph.poll(&mut rig.bench.round()) {}
    }
    let mut sent = BTreeMap::new();
    rig.bench.sent.frames.iter().for_each(|(port, ..)| *sent.entry(*port).or_default() += 1);
    (numbers(&rig), sent.into_iter().collect())
}

#[test]
fn workers_count_together_what_one_alone_counts() {
    let corpus = corpus();
    // Few enough for the errors that each worker may send at once.
    let frames: Vec<&[u8]> = corpus.iter().map(|frame| &frame[..]).take(100).collect();
    let mut counted = BTreeSet::new();
    let is_of_its_own = |subject: &&Subject| {
        let rig = Rig::new(&world(), subject.text);
        let mut names = rig.plan.nodes().iter().map(|node| node.class.spec.name);
        // A rate of a source filter as well.
        subject.text.contains("limit ")
            || names.any(|name| OF_ITS_OWN.iter().any(|word| name.contains(word)))
    };
    for subject in GRAPHS.iter().filter(|subject| !is_of_its_own(subject)) {
        let (one, several) = (run_by(subject, &frames, 1), run_by(subject, &frames, 3));
        assert_eq!(one, several, "{}", subject.text);
        counted.extend(one.0.into_iter().filter(|(_, number)| *number > 0).map(|(name, _)| name));
    }
    assert!(counted.len() > 20, "{counted:?}");
}

#[test]
fn no_element_is_left_out() {
    let mut seen: BTreeSet<&str> = ELSEWHERE.iter().copied().collect();
    for subject in GRAPHS {
        seen.extend(
            Rig::new(&world(), subject.text).plan.nodes().iter().map(|n| n.class.spec.name),
        );
    }
    let missing: Vec<_> =
        ELEMENTS.iter().map(|class| class.spec.name).filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "no graph here has {missing:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_may_be_divided_anywhere(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..200),
        sizes in prop::collection::vec(1..40_usize, 1..20),
    ) {
        let corpus = corpus();
        let frames: Vec<&[u8]> = picks.iter().map(|pick| &pick.get(&corpus)[..]).collect();
        for subject in GRAPHS {
            let whole = run(subject, &frames, &[256]);
            for sizes in [&sizes[..], &[1]] {
                let parts = run(subject, &frames, sizes);
                prop_assert!(whole == parts, "{}\n{}", subject.text, difference(&whole, &parts));
            }
        }
    }
}
