//! Answers ARP requests: `ARPResponder(10.0.0.1 10.0.1.0/24 02:00:00:00:00:01, ...)`.
//!
//! Source: Click's `ARPResponder`; RFC 826, RFC 5227. Addresses and prefixes of an entry are all at its link
//! address; the longest prefix counts. The request becomes the reply. What is no request, or for nobody here, goes
//! to output 1, or is dropped: so is one that another host sends in our own name.
//!
//! Handlers change the entries while workers answer; a worker looks once a batch whether there are others.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_lpm::{Addr, Prefix};
use fingerpost_route::{Mac, Publisher, Reader};

use super::front::HEADER;
use crate::element::support::setting::{dashed, value};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::arp::{Arp, End, REPLY, REQUEST, write_arp};
use crate::frame::wire::{ETHER_BYTES, EtherMut};
use crate::frame::{Batch, DropReason, FLAG_LINK_MULTICAST};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, Args, Around, ClassSpec, ConfigError, Value};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: spec("ARPResponder"),
    summary: "answers ARP requests for addresses",
    configure: |setup| {
        let table = read_entries::<u32>(setup);
        setup.args.finish()?;
        Ok(Tables::made(table?, setup, |table, exit, replies| ArpResponder {
            table,
            exit,
            replies,
        }))
    },
};

pub(super) const fn spec(name: &'static str) -> ClassSpec {
    let output_names = &["replies", "others"];
    ClassSpec::new(name, "1/1-2", "a/ah", "x/x").outputs(output_names)
}

/// Reads the entries: each is prefixes, and the link address that they are at.
pub(super) fn read_entries<A: Addr>(setup: &mut Setup<'_>) -> Result<Table<A>, ConfigError>
where
    Prefix<A>: Value,
{
    let args: Vec<Arg<'_>> = setup.args.rest().collect();
    let mut table = Table(Vec::new());
    let mut wrong = None;
    for arg in &args {
        match entry(&mut setup.args, arg) {
            Ok((prefixes, mac)) => prefixes.into_iter().for_each(|prefix| table.add(prefix, mac)),
            Err(error) => wrong = Some(error),
        }
    }
    wrong.map_or(Ok(table), Err)
}

fn entry<A: Addr>(args: &mut Args<'_>, arg: &Arg<'_>) -> Result<(Vec<Prefix<A>>, Mac), ConfigError>
where
    Prefix<A>: Value,
{
    let mut words: Vec<_> = arg.words().collect();
    // A name of both.
    if let [name] = &words[..]
        && let (Ok(prefix), Ok(mac)) = (name.value(), name.value())
    {
        return Ok((vec![prefix], mac));
    }
    let last = words.pop().filter(|_| !words.is_empty());
    let Some(last) = last else {
        return Err(args.refuse(arg, "an entry is addresses, and an Ethernet address behind them"));
    };
    let mac = args.read::<Mac>(&last, "entry");
    let prefixes: Vec<_> = words.iter().map(|word| args.read(word, "entry")).collect();
    Ok((prefixes.into_iter().collect::<Result<_, _>>()?, mac?))
}

/// Prefixes, the longest first, and their link addresses.
#[derive(Clone)]
pub(super) struct Table<A: Addr>(Vec<(Prefix<A>, Mac)>);

impl<A: Addr> Table<A> {
    fn add(&mut self, prefix: Prefix<A>, mac: Mac) {
        self.0.retain(|entry| entry.0 != prefix);
        let at = self.0.partition_point(|entry| entry.0.len() >= prefix.len());
        self.0.insert(at, (prefix, mac));
    }

    pub(super) fn find(&self, addr: A) -> Option<(Prefix<A>, Mac)> {
        self.0.iter().find(|entry| entry.0.contains(addr)).copied()
    }
}

/// The entries as handlers change them.
pub(super) struct Tables<A: Addr>(Arc<Mutex<Publisher<Table<A>>>>);

impl<A: Addr> Clone for Tables<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A: Addr> Tables<A>
where
    Prefix<A>: Value + Display,
    Around<A>: Value,
{
    /// The element that answers by a table, with its handlers.
    pub(super) fn made<E: Element + 'static>(
        table: Table<A>,
        setup: &mut Setup<'_>,
        with: impl Fn(Reader<Table<A>>, Exit, Arc<Count>) -> E + Send + Sync + 'static,
    ) -> Made {
        let exit = setup.exit(1, DropReason::Unmatched);
        let publisher = Publisher::new(table);
        let subscribe = publisher.subscribe();
        let tables = Self(Arc::new(Mutex::new(publisher)));
        let counts = setup.keep::<PerWorker<Count>>();
        let replies = counts.clone();
        let made = Made::new(move |instance| with(subscribe.reader(), exit, counts.add(instance)));
        tables.handled(made).counter("count", &replies)
    }

    fn lock(&self) -> MutexGuard<'_, Publisher<Table<A>>> {
        // A table is replaced as a whole, whatever panicked beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handled(&self, made: Made) -> Made {
        let [table, lookup, add, remove, all] = [(); 5].map(|()| self.clone());
        made.handler(Handler::write_warned("config", move |text| {
            let (mut table, mut warnings) = (Table(Vec::new()), Vec::new());
            for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
                let (prefixes, mac) = written(entry)?;
                for prefix in prefixes {
                    if table.0.iter().any(|entry| entry.0 == prefix) {
                        warnings.push(format!("multiple entries for {prefix}"));
                    }
                    table.add(prefix, mac);
                }
            }
            all.lock().set(table);
            Ok(warnings)
        }))
        .handler(Handler::read("table", move || {
            let table = table.lock().value();
            table.0.iter().map(|(prefix, mac)| format!("{prefix} {}\n", dashed(*mac))).collect()
        }))
        .handler(Handler::read_with("lookup", move |text| {
            let addr = value::<Around<A>>(text)?.addr;
            let found = lookup.lock().value().find(addr);
            Ok(found.map_or_else(String::new, |(_, mac)| dashed(mac)))
        }))
        .handler(Handler::write("add", move |text| {
            let (prefixes, mac) = written(text)?;
            let mut tables = add.lock();
            let mut table = Table::clone(&tables.value());
            prefixes.into_iter().for_each(|prefix| table.add(prefix, mac));
            tables.set(table);
            Ok(())
        }))
        .handler(Handler::write("remove", move |text| {
            let prefix = value::<Prefix<A>>(text)?;
            let mut tables = remove.lock();
            let mut table = Table::clone(&tables.value());
            let before = table.0.len();
            table.0.retain(|entry| entry.0 != prefix);
            if table.0.len() == before {
                return Err(format!("no entry for {prefix}"));
            }
            tables.set(table);
            Ok(())
        }))
    }
}

/// An entry that a handler is given.
fn written<A: Addr>(text: &str) -> Result<(Vec<Prefix<A>>, Mac), String>
where
    Prefix<A>: Value,
{
    let mut words: Vec<_> = text.split_ascii_whitespace().collect();
    if let [name] = &words[..]
        && let (Ok(prefix), Ok(mac)) = (value(name), value::<Mac>(name))
    {
        return Ok((vec![prefix], mac));
    }
    let mac = value::<Mac>(words.pop().unwrap_or_default())?;
    let prefixes: Result<Vec<_>, _> = words.into_iter().map(value).collect();
    Ok((prefixes?, mac))
}

struct ArpResponder {
    table: Reader<Table<u32>>,
    exit: Exit,
    replies: Arc<Count>,
}

/// Sender of the request and its reply, if the request is for one of our addresses.
fn answer(table: &Table<u32>, frame: &[u8]) -> Option<(End, End)> {
    let arp = Arp::at(frame, HEADER.into()).filter(|arp| arp.operation() == REQUEST)?;
    let (sender, target) = (arp.sender(), arp.target());
    if sender.mac.0[0] & 1 != 0 {
        return None;
    }
    let (_, mac) = table.find(target.addr)?;
    // Who has one of our own addresses is told nothing (RFC 5227, 2.4); within a prefix others are right.
    let taken = table.find(sender.addr).filter(|(prefix, _)| prefix.len() == 32);
    if taken.is_some_and(|(_, own)| own != sender.mac) {
        return None;
    }
    Some((End { mac, addr: target.addr }, sender))
}

impl Element for ArpResponder {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let table = self.table.pin();
        for i in 0..batch.len() {
            let Some((ours, theirs)) = answer(table, batch.bytes(i)) else {
                self.exit.take(batch, i);
                continue;
            };
            let frame = batch.bytes_mut(i);
            if let Some(mut ether) = EtherMut::of(frame) {
                ether.set_addrs(theirs.mac, ours.mac);
            }
            write_arp(frame, ETHER_BYTES, REPLY, ours, theirs);
            let meta = &mut batch.meta_mut()[i];
            meta.flags &= !FLAG_LINK_MULTICAST;
            // The reply is a new packet, though it has the frame of the request.
            meta.annotated = false;
            self.replies.add(1);
        }
    }
}

/// An ARP packet in an Ethernet frame, for tests.
#[cfg(test)]
pub(super) fn arp_frame(operation: u16, sender: End, target: End) -> Vec<u8> {
    let mut frame = vec![0; 60];
    let mut ether = EtherMut::of(&mut frame).unwrap();
    let to = if operation == REQUEST { Mac([0xff; 6]) } else { target.mac };
    ether.set_addrs(to, sender.mac);
    ether.set_kind(crate::frame::wire::ether::TYPE_ARP);
    assert!(write_arp(&mut frame, ETHER_BYTES, operation, sender, target));
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    const PEER: Mac = Mac([2, 0, 0, 0, 9, 9]);

    fn request(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let sender = End { mac: PEER, addr: u32::from_be_bytes(from) };
        arp_frame(REQUEST, sender, End { mac: Mac([0; 6]), addr: u32::from_be_bytes(to) })
    }

    fn rig() -> Rig {
        let entries = "10.0.0.1 2:0:0:0:0:1, 10.0.1.0/24 10.0.0.3 2:0:0:0:0:2";
        let text = format!(
            "FromDevice(a) -> r :: ARPResponder({entries}) -> ToDevice(b); r [1] -> ToDevice(c)"
        );
        Rig::new(&World::new(), &text)
    }

    #[test]
    fn requests_become_replies() {
        let mut rig = rig();
        for (to, mac) in [([10, 0, 0, 1], 1), ([10, 0, 0, 3], 2), ([10, 0, 1, 77], 2)] {
            let mac = Mac([2, 0, 0, 0, 0, mac]);
            let sent = rig.receive("a", &[&request([10, 0, 0, 9], to)]);
            let ours = End { mac, addr: u32::from_be_bytes(to) };
            let want = arp_frame(REPLY, ours, End { mac: PEER, addr: 0x0a00_0009 });
            assert_eq!(sent, [("b".to_owned(), want)]);
        }
        // One who looks whether an address is free is told that it is not (RFC 5227, 2.1.1).
        assert_eq!(rig.receive("a", &[&request([0; 4], [10, 0, 0, 1])])[0].0, "b");
        // Neighbors in a prefix that we speak for are no forgers.
        assert_eq!(rig.receive("a", &[&request([10, 0, 1, 5], [10, 0, 1, 6])])[0].0, "b");
        assert_eq!(rig.read("r.count"), "5");
    }

    #[test]
    fn others_are_left_as_they_are() {
        let mut rig = rig();
        let good = request([10, 0, 0, 9], [10, 0, 0, 1]);
        let mut odd = vec![
            request([10, 0, 0, 9], [10, 0, 0, 2]),
            request([10, 0, 0, 1], [10, 0, 0, 1]),
            good[..41].to_vec(),
            vec![],
        ];
        for (at, byte) in [(15, 2), (18, 8), (19, 6), (21, 2), (22, 0x33)] {
            let mut frame = good.clone();
            frame[at] = byte;
            odd.push(frame);
        }
        for frame in &odd {
            assert_eq!(rig.receive("a", &[frame]), [("c".to_owned(), frame.clone())]);
        }
        let text = "FromDevice(a) -> ARPResponder(10.0.0.1 2:0:0:0:0:1) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        assert!(rig.receive("a", &[&odd[0]]).is_empty());
        assert_eq!(rig.dropped(DropReason::Unmatched), 1);
    }

    #[test]
    fn entries_change_while_it_answers() {
        let mut rig = rig();
        let all = "10.0.0.1/32 02-00-00-00-00-01\n10.0.0.3/32 02-00-00-00-00-02\n10.0.1.0/24 02-00-00-00-00-02\n";
        assert_eq!(rig.read("r.table"), all);
        rig.write("r.add", "10.0.0.0/8 10.0.0.2 2:0:0:0:0:7");
        let mut seen = |to| rig.receive("a", &[&request([10, 0, 0, 9], to)])[0].1[11];
        assert_eq!([seen([10, 9, 9, 9]), seen([10, 0, 0, 2]), seen([10, 0, 1, 1])], [7, 7, 2]);
        rig.write("r.remove", "10.0.1.0/24");
        assert_eq!(rig.receive("a", &[&request([10, 0, 0, 9], [10, 0, 1, 1])])[0].1[11], 7);
        assert_eq!(rig.handlers.read("r.lookup", "10.0.0.1").unwrap(), "02-00-00-00-00-01");
        assert_eq!(rig.handlers.read("r.lookup", "11.0.0.1").unwrap(), "");
        let warned = rig.handlers.write("r.config", "10.0.0.1 2:0:0:0:0:a, 10.0.0.1 2:0:0:0:0:b");
        assert_eq!(warned, Ok(vec!["multiple entries for 10.0.0.1/32".into()]));
        assert_eq!(rig.read("r.table"), "10.0.0.1/32 02-00-00-00-00-0B\n");
        for (handler, text, words) in [
            ("r.add", "10.0.0.1", "no Ethernet address"),
            ("r.add", "10 2:0:0:0:0:7", "no IPv4 prefix"),
            ("r.remove", "10.0.1.0/24", "no entry for 10.0.1.0/24"),
        ] {
            let reported = rig.handlers.write(handler, text).unwrap_err().to_string();
            assert!(reported.contains(words), "{reported}");
        }
    }

    #[test]
    fn wrong_entries_are_reported() {
        let reported = refused(&CLASS, "10.0.0.1, 10.0.0.1 x, y 2:0:0:0:0:1");
        for words in ["an entry is addresses", "`x` is no Ethernet", "`y` is no IPv4 prefix"] {
            assert!(reported.contains(words), "{reported}");
        }
    }
}
