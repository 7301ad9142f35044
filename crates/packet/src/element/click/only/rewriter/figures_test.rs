//! Cost of mappings: a hundred thousand of them in one table, or with `FINGERPOST_SOAK_SECONDS` ten million (2 GB), by the
//! thread's own time.
//!
//! Results of a release build are in `docs/benchmarks/nat.md`. The path around the table is measured by `bench forward --nat`.

use fingerpost_lpm::Rng;

use super::table::Line;
use super::workers_test::config;
use super::*;

/// Mappings in the tests, and in a soak.
const MAPPINGS: [u32; 2] = [100_000, 10_000_000];
const TOGETHER: usize = 128;

/// Flows of hosts of 10.0.0.0/8 to 1,009 servers.
fn id(flow: u32) -> FlowId {
    let sport = 1024 + u16::try_from(flow % 16).unwrap();
    FlowId { src: 0x0a00_0000 + flow / 16, sport, dst: 0xc000_0000 + flow % 1009, dport: 80 }
}

/// Nanoseconds that this thread has run.
fn ran_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Runs `each` with packets of flows, as a rewriter does with a batch of them; nanoseconds a packet.
fn batches(
    config: &Config,
    ids: &[FlowId],
    mut each: impl FnMut(&mut Session<'_>, u64, FlowId),
) -> f64 {
    let (start, mut hashes) = (ran_ns(), Vec::new());
    for batch in ids.chunks(TOGETHER) {
        let mut session = config.table.session();
        hashes.clear();
        hashes.extend(batch.iter().map(|&id| session.hash(&config.key(PROTOCOL_UDP, id))));
        let (parts, shard) = (session.parts(), session.shard(0));
        let mut lines = [&Line::EMPTY; TOGETHER];
        for (&hash, line) in hashes.iter().zip(&mut lines) {
            *line = shard.line(hash);
        }
        for (&hash, line) in hashes.iter().zip(lines) {
            shard.ahead(shard.number(line, hash), parts);
        }
        for (&id, &hash) in batch.iter().zip(&hashes) {
            each(&mut session, hash, id);
        }
    }
    (ran_ns() - start) / f64::from(u32::try_from(ids.len()).unwrap())
}

#[test]
fn mappings_of_a_large_table_are_known_in_both_directions() {
    let mappings = MAPPINGS[usize::from(std::env::var_os("FINGERPOST_SOAK_SECONDS").is_some())];
    let many = mappings as usize;
    let stay = Timeouts { begin_ns: 1 << 60, busy_ns: 1 << 60, done_ns: 1 << 60, guarantee_ns: 0 };
    let config = config("1.0.0.1 1024-65535# - -", 1, many);
    let config = Config { udp: stay, ..config };
    // A new flow comes at a time of its own, so that the first of them is the first to end.
    let mut now_ns = 0;
    let mut make = |flows: std::ops::Range<u32>| {
        let (mut spent, mut flow) = (0.0, flows.start);
        while flow < flows.end {
            let next = (flow + (1 << 16)).min(flows.end);
            let ids: Vec<_> = (flow..next).map(id).collect();
            let ns = batches(&config, &ids, |session, hash, id| {
                now_ns += 1;
                assert!(config.find_by(session, hash, PROTOCOL_UDP, id, now_ns).is_none());
                let found = config.map(session, (PROTOCOL_UDP, id), 0, 0, now_ns);
                session.flow(found.expect("a place and a port")).count(false);
            });
            spent += ns * f64::from(next - flow);
            flow = next;
        }
        spent / f64::from(flows.end - flows.start)
    };
    let new = make(0..mappings);
    let bytes = config.table.bytes() / config.table.len();
    assert_eq!(config.table.len(), many);
    println!("{mappings} mappings of {bytes} bytes, {new:.0} ns each, {:.2} M/s", 1e3 / new);
    let first = mappings / 4;
    let other = make(mappings..mappings + first);
    println!("in the place of others: {other:.0} ns each, {:.2} M/s", 1e3 / other);
    assert_eq!(config.table.len(), many);
    // Both directions of any of them; replies are checked as well.
    let mut random = Rng::new(1);
    let mut drawn = || id(first + u32::try_from(random.below(many)).unwrap());
    let ids: Vec<FlowId> = (0..1 << 20).map(|_| drawn()).collect();
    let mut replies = Vec::new();
    let known = |ids: &[FlowId], see: &mut dyn FnMut(FlowId, FlowId)| {
        batches(&config, ids, |session, hash, id| {
            let found = config.find_by(session, hash, PROTOCOL_UDP, id, 1).expect("it is known");
            let to = config.change(session, found, id).to;
            let flow = session.flow(found);
            flow.count(found.reply);
            let times = config.times(PROTOCOL_UDP, flow);
            session.touch(found, times, 1 << 40);
            see(id, to);
        })
    };
    let there = known(&ids, &mut |_, to| replies.push(to.reverse()));
    let mut at = ids.iter();
    let back = known(&replies, &mut |_, to| assert_eq!(Some(&to.reverse()), at.next()));
    println!("known: {there:.1} ns a packet, {back:.1} ns a reply, any of {mappings}");
}
