//! Several workers map, find and end flows of one rewriter at once.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Barrier;

use super::*;

const WORKERS: u32 = 4;

pub(super) fn config(pattern: &str, workers: u32, capacity: usize) -> Config {
    let words: Vec<String> = pattern.split(' ').map(str::to_owned).collect();
    let pattern = Pattern::read(&words, false, true).unwrap();
    let times = Timeouts { begin_ns: 1000, busy_ns: 1000, done_ns: 1000, guarantee_ns: 1000 };
    let table = Arc::<Table>::default();
    table.use_workers(workers as usize);
    table.set_capacity(capacity);
    Config {
        table,
        owner: 0,
        kind: Kind::Ip,
        inputs: vec![Input::Pattern(pattern)],
        own_inputs: 1,
        outputs: vec![[0, 1]],
        reply_paint: false,
        tcp: times,
        udp: times,
    }
}

fn id(src: u32, dst: u32) -> FlowId {
    FlowId { src, sport: 7, dst, dport: 80 }
}

/// What the packets of a flow become, by its first packet.
fn mapped(config: &Config, session: &mut Session<'_>, id: FlowId) -> Option<FlowId> {
    let found = match config.find(session, PROTOCOL_UDP, id, 1) {
        Some(found) => found,
        None => config.map(session, (PROTOCOL_UDP, id), 0, 0, 1)?,
    };
    Some(config.change(session, found, id).to)
}

/// Each worker's part of the work, all at once.
fn together<T: Send>(work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let (start, work) = (Barrier::new(WORKERS as usize), &work);
    std::thread::scope(|scope| {
        let spawn = |worker| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(worker)
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(spawn).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn no_two_flows_get_one_port_and_all_workers_find_both_directions() {
    let config = config("1.0.0.1 1024-3023# - -", WORKERS, 1 << 20);
    // Flows to three destinations; every second one is seen by two workers.
    let flows = |worker| (0..2000).map(move |n| id(n / 2 * 2 + worker * (n % 2), 8 + n % 3));
    let given = together(|worker| {
        let mut session = config.table.session();
        flows(worker)
            .filter_map(|id| mapped(&config, &mut session, id).map(|to| (id, to)))
            .collect::<Vec<_>>()
    });
    let all: HashSet<(FlowId, FlowId)> = given.into_iter().flatten().collect();
    let (froms, tos): (HashSet<_>, HashSet<_>) = all.iter().copied().unzip();
    assert_eq!(
        (froms.len(), tos.len()),
        (all.len(), all.len()),
        "one port a flow, one flow a port"
    );
    assert_eq!(config.table.len(), all.len());
    assert!(all.iter().all(|(_, to)| to.src == Ipv4Addr::new(1, 0, 0, 1).to_bits()));
    together(|_| {
        let mut session = config.table.session();
        for &(from, to) in &all {
            let reply = config.find(&mut session, PROTOCOL_UDP, to.reverse(), 2).unwrap();
            assert!(reply.reply);
            assert_eq!(config.change(&mut session, reply, to.reverse()).to, from.reverse());
        }
    });
}

#[test]
fn flows_that_end_beside_others_that_begin_leave_nothing_behind() {
    // Fewer ports than flows, so that searches meet flows that end.
    let config = config("1.0.0.1 1024-1223# - -", WORKERS, 500);
    together(|worker| {
        let mut session = config.table.session();
        let mut failed = 0;
        for n in 0..3000 {
            let id = id(worker << 16 | n, 8);
            failed += u32::from(mapped(&config, &mut session, id).is_none());
            if n >= 40 {
                let old = self::id(worker << 16 | (n - 40), 8);
                if let Some(found) = config.find(&mut session, PROTOCOL_UDP, old, 1) {
                    session.remove(found);
                }
            }
        }
        assert_eq!(failed, 0, "40 flows of 4 workers find 200 ports");
    });
    assert_eq!(config.table.len(), 40 * WORKERS as usize);
    config.table.clear(0);
    assert_eq!(config.table.len(), 0);
    // Every port is free again, in whatever order searches come.
    let mut session = config.table.session();
    let ports: HashSet<_> =
        (0..200).filter_map(|n| mapped(&config, &mut session, id(n, 8))).collect();
    assert_eq!(ports.len(), 200);
    assert_eq!(mapped(&config, &mut session, id(999, 8)), None);
    assert!(mapped(&config, &mut session, id(999, 9)).is_some());
}

#[test]
fn a_full_table_is_never_above_its_capacity() {
    let config = config("1.0.0.1 1024-65535# - -", WORKERS, 100);
    let kept: usize = together(|worker| {
        let mut session = config.table.session();
        (0..200)
            .filter(|&n| mapped(&config, &mut session, id(worker << 16 | n, 8)).is_some())
            .count()
    })
    .into_iter()
    .sum();
    let mut live = 0;
    config.table.each(0, &mut |_| live += 1);
    assert!(live <= 100 && live == kept && live == config.table.len(), "{live} of {kept}");
    // Beside others a place that another gives back may be missed.
    assert!(live >= 100 - WORKERS as usize, "{live}");
}
