//! VLAN tags of Ethernet frames: `VLANEncap` puts one in, `VLANDecap` takes it out, `EtherVLANEncap` and
//! `StripEtherVLANHeader` do it with the whole header, `SetVLANAnno` notes in a packet what its tag is to be.
//!
//! Source: Click's elements of these names; IEEE 802.1Q. A tag is its type, 0x8100, and 16 bits: priority (3), drop
//! eligible (1) and the number of the VLAN (12). What is taken out is noted in the packet, and `ANNO` in place of
//! a tag means what is noted. The type of another tag, as a provider's 0x88a8, is an argument of `VLANEncap` and
//! `VLANDecap`. Frames without tag are those of VLAN `NATIVE_VLAN` to `StripEtherVLANHeader`, which is 0; -1 sends them
//! to the second output. `config` follows what the other handlers change.

use fingerpost_route::Mac;

use super::front::{HEADER, cut, grow};
use crate::element::support::setting::{Setting, dashed, value};
use crate::frame::wire::ether::{TAG_BYTES, TYPE_VLAN};
use crate::frame::wire::{ETHER_BYTES, Ether, EtherMut};
use crate::frame::{Batch, DropReason, Meta};
use crate::graph::{Context, Element, ElementClass, Exit, LiveArg, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError, Value};

pub(crate) const ENCAP: ElementClass = ElementClass {
    spec: spec("VLANEncap", "1/1", "a/a", &[]),
    summary: "puts a VLAN tag into Ethernet frames",
    configure: |setup| {
        let kind = setup.args.keyword("ETHERTYPE");
        let tag = Tag::read(setup);
        setup.args.finish()?;
        let (tag, kind) = (tag?, Setting::<u16>::new(kind?.unwrap_or(TYPE_VLAN)));
        let (each, each_kind) = (tag.clone(), kind.clone());
        let made = Made::new(move |_| Encap { tag: each.clone(), kind: each_kind.clone() });
        let made = kind.handled(tag.handled(made), "ethertype");
        let config = move || match kind.get() {
            TYPE_VLAN => tag.config(),
            kind => format!("{}, ETHERTYPE {kind}", tag.config()),
        };
        Ok(made.handler(Handler::read("config", config)).live(TAG_ARGS))
    },
};

pub(crate) const DECAP: ElementClass = ElementClass {
    spec: spec("VLANDecap", "1/1", "a/a", &[]),
    summary: "takes the VLAN tag out of Ethernet frames",
    configure: |setup| {
        let note = setup.args.optional("ANNO");
        let kind = setup.args.keyword("ETHERTYPE");
        setup.args.finish()?;
        let (note, kind) = (note?.unwrap_or(true), kind?.unwrap_or(TYPE_VLAN));
        Ok(Made::new(move |_| Decap { note, kind }))
    },
};

pub(crate) const ETHER_ENCAP: ElementClass = ElementClass {
    spec: spec("EtherVLANEncap", "1/1", "a/a", &[]),
    summary: "puts an Ethernet header with a VLAN tag before packets",
    configure: |setup| {
        let kind = setup.args.positional("ETHERTYPE");
        let src = setup.args.positional::<Mac>("SRC");
        let dst = setup.args.positional::<Mac>("DST");
        let tag = Tag::read(setup);
        setup.args.finish()?;
        let header = EtherHeader {
            dst: Setting::new(dst?),
            src: Setting::new(src?),
            kind: Setting::new(kind?),
        };
        let tag = tag?;
        let each = (header.clone(), tag.clone());
        let made = Made::new(move |_| EtherEncap { header: each.0.clone(), tag: each.1.clone() });
        let made = header.handled(tag.handled(made));
        let config = move || format!("{}, {}", header.config(), tag.config());
        Ok(made.handler(Handler::read("config", config)).live(HEADER_ARGS))
    },
};

pub(crate) const STRIP: ElementClass = ElementClass {
    spec: spec("StripEtherVLANHeader", "1/1-2", "a/ah", &["tagged", "untagged"]),
    summary: "cuts the Ethernet header with its VLAN tag off frames",
    configure: |setup| {
        let arg = setup.args.optional_arg("NATIVE_VLAN")?;
        let native = native(setup, arg.as_ref());
        setup.args.finish()?;
        let native = native?;
        let untagged = setup.exit(1, DropReason::Unmatched);
        Ok(Made::new(move |_| Strip { native, untagged }))
    },
};

pub(crate) const SET: ElementClass = ElementClass {
    spec: spec("SetVLANAnno", "1/1", "a/a", &[]),
    summary: "notes in packets what their VLAN tag is to be",
    configure: |setup| {
        let tci = tci(setup);
        setup.args.finish()?;
        let Some(tci) = tci? else {
            return Err(setup.args.refuse_all("ANNO is what it sets"));
        };
        let each = tci.clone();
        let made = handled(&tci, Made::new(move |_| Set { tci: each.clone() }));
        Ok(made.handler(Handler::read("config", move || config(&tci))).live(&WORD))
    },
};

const fn spec(
    name: &'static str,
    ports: &'static str,
    processing: &'static str,
    output_names: &'static [&'static str],
) -> ClassSpec {
    ClassSpec::new(name, ports, processing, "x/x").outputs(output_names)
}

/// Arguments of a tag's word: one handler shows what all of them make, and changes it.
const WORD: [LiveArg; 3] = [
    LiveArg { handler: "vlan_tci", keyword: "VLAN_TCI" },
    LiveArg { handler: "vlan_tci", keyword: "VLAN_PCP" },
    LiveArg { handler: "vlan_tci", keyword: "VLAN_ID" },
];

const NATIVE: LiveArg = LiveArg { handler: "native_vlan", keyword: "NATIVE_VLAN" };

const KIND: LiveArg = LiveArg { handler: "ethertype", keyword: "ETHERTYPE" };

/// Arguments of `VLANEncap`.
const TAG_ARGS: &[LiveArg] = &[WORD[0], WORD[1], WORD[2], NATIVE, KIND];

/// Arguments of `EtherVLANEncap`.
const HEADER_ARGS: &[LiveArg] = &[
    KIND,
    LiveArg { handler: "src", keyword: "SRC" },
    LiveArg { handler: "dst", keyword: "DST" },
    WORD[0],
    WORD[1],
    WORD[2],
    NATIVE,
];

/// The bits of a tag's second word that number the VLAN.
const ID: u16 = 0xfff;
/// Where the priority begins in it.
const PCP: u32 = 13;

/// Number of a VLAN.
struct Id(u16);

impl Value for Id {
    fn read(text: &str) -> Result<Self, String> {
        let words = || "out of range: 0 to 4095 are possible".to_owned();
        let id = u16::read(text).map_err(|_| "no number of a VLAN: 0 to 4095".to_owned())?;
        if id > ID { Err(words()) } else { Ok(Self(id)) }
    }
}

/// Priority code point.
struct Pcp(u8);

impl Value for Pcp {
    fn read(text: &str) -> Result<Self, String> {
        let pcp = u8::read(text).ok().filter(|&pcp| pcp < 8);
        pcp.map(Self).ok_or_else(|| "no priority: 0 to 7".into())
    }
}

/// What stands for the value that is noted in a packet.
const NOTED: &str = "ANNO";

/// Value of a tag: a word, or what is noted in the packet.
enum Tci {
    Word(u16),
    Noted,
}

impl Value for Tci {
    fn read(text: &str) -> Result<Self, String> {
        if text == NOTED {
            return Ok(Self::Noted);
        }
        u16::read(text).map(Self::Word).map_err(|words| format!("not ANNO, and {words}"))
    }
}

/// Reads the arguments of a tag: the word, or number and priority. `None` for what is noted.
fn tci(setup: &mut Setup<'_>) -> Result<Option<Setting<u16>>, ConfigError> {
    let word = setup.args.optional::<Tci>("VLAN_TCI");
    let pcp = setup.args.optional::<Pcp>("VLAN_PCP");
    let id = setup.args.keyword::<Id>("VLAN_ID");
    let (word, id) = (word?, id?);
    let pcp = pcp?.map(|pcp| u16::from(pcp.0) << PCP);
    match (word, id) {
        (Some(Tci::Word(word)), None) => {
            // The priority is in the word already, unless it is given.
            let bits = pcp.map_or(word, |pcp| word & !(7 << PCP) | pcp);
            Ok(Some(Setting::new(bits)))
        }
        (None, Some(Id(id))) => Ok(Some(Setting::new(id | pcp.unwrap_or(0)))),
        (Some(Tci::Noted), None) if pcp.is_none() => Ok(None),
        (Some(Tci::Noted), None) => {
            Err(setup.args.refuse_all("with ANNO the priority is that of the annotation"))
        }
        _ => Err(setup.args.refuse_all("give one of VLAN_TCI and VLAN_ID")),
    }
}

/// The VLAN whose frames have no tag: 0 unless it is given; -1 for none.
fn native(setup: &mut Setup<'_>, arg: Option<&Arg<'_>>) -> Result<Option<u16>, ConfigError> {
    match arg {
        None => Ok(Some(0)),
        Some(arg) if arg.raw() == "-1" => Ok(None),
        Some(arg) => Ok(Some(setup.args.read::<Id>(arg, "NATIVE_VLAN")?.0)),
    }
}

/// Arguments that make a tag's word.
fn config(tci: &Setting<u16>) -> String {
    let word = tci.get();
    let (id, pcp) = (word & ID, word >> PCP);
    // Drop eligible has no argument of its own.
    if pcp << PCP | id == word { format!("VLAN_ID {id}, VLAN_PCP {pcp}") } else { word.to_string() }
}

/// Adds the handlers of a tag's word: the whole, number and priority.
fn handled(tci: &Setting<u16>, made: Made) -> Made {
    let [id, set_id, pcp, set_pcp] = [(); 4].map(|()| tci.clone());
    tci.handled(made, "vlan_tci")
        .handler(Handler::read("vlan_id", move || (id.get() & ID).to_string()))
        .handler(Handler::write("vlan_id", move |text| {
            let Id(id) = value(text)?;
            set_id.change(|word| word & !ID | id);
            Ok(())
        }))
        .handler(Handler::read("vlan_pcp", move || (pcp.get() >> PCP).to_string()))
        .handler(Handler::write("vlan_pcp", move |text| {
            let Pcp(pcp) = value(text)?;
            set_pcp.change(|word| word & !(7 << PCP) | u16::from(pcp) << PCP);
            Ok(())
        }))
}

/// The tag that packets get.
#[derive(Clone)]
struct Tag {
    /// `None`: what is noted.
    tci: Option<Setting<u16>>,
    /// The VLAN whose packets have none; below 0 for none.
    native: Setting<i32>,
}

impl Tag {
    fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let tci = tci(setup);
        let arg = setup.args.keyword_arg("NATIVE_VLAN")?;
        let native = native(setup, arg.as_ref());
        Ok(Self { tci: tci?, native: Setting::new(native?.map_or(-1, i32::from)) })
    }

    /// That of one packet, if it gets one.
    fn of(&self, meta: &Meta) -> Option<u16> {
        let word = self.tci.as_ref().map_or(meta.vlan, Setting::get);
        Some(word).filter(|word| self.native.get() != i32::from(word & ID))
    }

    /// Arguments that make it, as they are now.
    fn config(&self) -> String {
        let word = self.tci.as_ref().map_or_else(|| NOTED.to_owned(), config);
        match self.native.get() {
            0 => word,
            native => format!("{word}, NATIVE_VLAN {native}"),
        }
    }

    fn handled(&self, made: Made) -> Made {
        let (shown, set) = (self.native.clone(), self.native.clone());
        let made = made
            .handler(Handler::read("native_vlan", move || shown.get().to_string()))
            .handler(Handler::write("native_vlan", move |text| {
                set.set(match text.trim() {
                    "-1" => -1,
                    _ => value::<Id>(text)?.0.into(),
                });
                Ok(())
            }));
        match &self.tci {
            Some(tci) => handled(tci, made),
            None => made.handler(Handler::read("vlan_tci", || NOTED.to_owned())).handler(
                Handler::write("vlan_tci", |text| match text.trim() {
                    NOTED => Ok(()),
                    _ => {
                        Err("the tag is what is noted in packets, as long as it is used".to_owned())
                    }
                }),
            ),
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "4")]
const TAG: u8 = TAG_BYTES as u8;
/// Where the tag stands: behind the addresses.
const AT: usize = 12;

/// Makes room for a tag in a frame, and writes it. The frame holds an Ethernet header.
fn put(batch: &mut Batch, i: usize, kind: u16, tci: u16) {
    if grow(batch, i, TAG) {
        let frame = batch.bytes_mut(i);
        frame.copy_within(TAG_BYTES..TAG_BYTES + AT, 0);
        frame[AT..AT + 2].copy_from_slice(&kind.to_be_bytes());
        frame[AT + 2..AT + 4].copy_from_slice(&tci.to_be_bytes());
    }
}

/// Tag of a frame.
enum Tagged {
    Yes(u16),
    No,
    /// Shorter than its headers.
    Short,
}

fn tagged(frame: &[u8], tag: u16) -> Tagged {
    match Ether::of(frame).map(Ether::kind) {
        None => Tagged::Short,
        Some(kind) if kind == tag => {
            match frame.get(AT + 2..).and_then(|rest| rest.first_chunk::<4>()) {
                // The packet's type stands behind it.
                Some(&[high, low, ..]) => Tagged::Yes(u16::from_be_bytes([high, low])),
                None => Tagged::Short,
            }
        }
        Some(_) => Tagged::No,
    }
}

struct Encap {
    tag: Tag,
    kind: Setting<u16>,
}

impl Element for Encap {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            if batch.frame_len(i) < ETHER_BYTES {
                batch.discard(i, DropReason::TooShort);
            } else if let Some(tci) = self.tag.of(&batch.meta()[i]) {
                put(batch, i, self.kind.get(), tci);
            }
        }
    }
}

/// An Ethernet header without tag.
#[derive(Clone)]
struct EtherHeader {
    dst: Setting<Mac>,
    src: Setting<Mac>,
    kind: Setting<u16>,
}

impl EtherHeader {
    fn handled(&self, made: Made) -> Made {
        let made = self.dst.handled(self.src.handled(made, "src"), "dst");
        self.kind.handled(made, "ethertype")
    }

    /// Arguments that make it, as they are now.
    fn config(&self) -> String {
        let [src, dst] = [&self.src, &self.dst].map(|addr| dashed(addr.get()));
        format!("{}, {src}, {dst}", self.kind.get())
    }

    fn bytes(&self) -> [u8; ETHER_BYTES] {
        let mut bytes = [0; ETHER_BYTES];
        if let Some(mut ether) = EtherMut::of(&mut bytes) {
            ether.set_addrs(self.dst.get(), self.src.get());
            ether.set_kind(self.kind.get());
        }
        bytes
    }
}

struct EtherEncap {
    header: EtherHeader,
    tag: Tag,
}

impl Element for EtherEncap {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let header = self.header.bytes();
        for i in 0..batch.len() {
            if !grow(batch, i, HEADER) {
                continue;
            }
            batch.bytes_mut(i)[..ETHER_BYTES].copy_from_slice(&header);
            if let Some(tci) = self.tag.of(&batch.meta()[i]) {
                put(batch, i, TYPE_VLAN, tci);
            }
        }
    }
}

struct Decap {
    note: bool,
    /// Type of the tag.
    kind: u16,
}

impl Element for Decap {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let tci = match tagged(batch.bytes(i), self.kind) {
                Tagged::Yes(tci) => {
                    batch.bytes_mut(i).copy_within(..AT, TAG_BYTES);
                    cut(batch, i, TAG);
                    tci
                }
                Tagged::No => 0,
                Tagged::Short => {
                    batch.discard(i, DropReason::TooShort);
                    continue;
                }
            };
            if self.note {
                batch.meta_mut()[i].vlan = tci;
            }
        }
    }
}

struct Strip {
    /// The VLAN that frames without tag are in.
    native: Option<u16>,
    untagged: Exit,
}

impl Element for Strip {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let (tci, header) = match (tagged(batch.bytes(i), TYPE_VLAN), self.native) {
                (Tagged::Yes(tci), _) => (tci, HEADER + TAG),
                (Tagged::No, Some(native)) => (native, HEADER),
                (Tagged::No, None) => {
                    self.untagged.take(batch, i);
                    continue;
                }
                (Tagged::Short, _) => {
                    batch.discard(i, DropReason::TooShort);
                    continue;
                }
            };
            batch.meta_mut()[i].vlan = tci;
            cut(batch, i, header);
        }
    }
}

struct Set {
    tci: Setting<u16>,
}

impl Element for Set {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let tci = self.tci.get();
        for meta in batch.meta_mut() {
            meta.vlan = tci;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Bench, Rig, World, batch, element, refused, run};

    /// To 02:00:00:00:00:02 from 02:00:00:00:00:01, IPv4.
    const PLAIN: [u8; 16] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 9, 9];

    #[test]
    fn types_and_native_vlans_are_changed() {
        let text = "FromDevice(a) -> v :: VLANEncap(VLAN_ID 5) -> ToDevice(b)";
        let mut rig = crate::testing::Rig::new(&crate::testing::World::new(), text);
        rig.write("v.ethertype", "0x88a8");
        assert_eq!(rig.receive("a", &[&[1; 60]])[0].1[12..16], [0x88, 0xa8, 0, 5]);
        assert_eq!(rig.read("v.native_vlan"), "0");
        rig.write("v.native_vlan", "5");
        assert_eq!(rig.receive("a", &[&[1; 60]])[0].1.len(), 60);
        assert!(rig.handlers.write("v.native_vlan", "4096").is_err());
        rig.write("v.native_vlan", "-1");
        assert_eq!(rig.receive("a", &[&[1; 60]])[0].1.len(), 64);
        rig.write("v.vlan_pcp", "3");
        let config = "VLAN_ID 5, VLAN_PCP 3, NATIVE_VLAN -1, ETHERTYPE 34984";
        assert_eq!(rig.read("v.config"), config);
        rig.write("v.config", &config.replace("34984", "33024").replace("-1", "0"));
        assert_eq!(rig.read("v.config"), "VLAN_ID 5, VLAN_PCP 3");
        rig.write("v.config", "0x7005");
        assert_eq!(rig.read("v.config"), "28677", "with the bit of what may be dropped");
        assert!(rig.handlers.write("v.config", "ANNO").is_err());
    }

    #[test]
    fn headers_are_changed() {
        let text = "FromDevice(a) -> v :: EtherVLANEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2, 7) -> ToDevice(b);
            FromDevice(c) -> n :: VLANEncap(ANNO) -> ToDevice(d)";
        let mut rig = Rig::new(&World::new(), text);
        let read = ["v.src", "v.dst", "v.ethertype", "v.vlan_tci"].map(|name| rig.read(name));
        assert_eq!(read, ["02-00-00-00-00-01", "02-00-00-00-00-02", "2048", "7"]);
        rig.write("v.src", "2:0:0:0:0:9");
        rig.write("v.dst", "2:0:0:0:0:8");
        rig.write("v.ethertype", "0x86dd");
        let want = [2, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 9, 0x81, 0, 0, 7, 0x86, 0xdd, 5];
        assert_eq!(rig.receive("a", &[&[5]])[0].1, want);
        let ends = "02-00-00-00-00-09, 02-00-00-00-00-08";
        assert_eq!(rig.read("v.config"), format!("34525, {ends}, VLAN_ID 7, VLAN_PCP 0"));
        rig.write("v.config", &format!("2048, {ends}, VLAN_ID 5, VLAN_PCP 1, NATIVE_VLAN 9"));
        let want = [2, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 9, 0x81, 0, 0x20, 5, 8, 0, 5];
        assert_eq!(rig.receive("a", &[&[5]])[0].1, want);
        assert_eq!([rig.read("n.vlan_tci"), rig.read("n.config")], ["ANNO", "ANNO"]);
        assert!(rig.handlers.write("n.config", "VLAN_ID 5").is_err(), "it needs another element");
    }

    fn with_tag(frame: &[u8], kind: u16, tci: u16) -> Vec<u8> {
        let tag = [kind.to_be_bytes(), tci.to_be_bytes()].concat();
        [&frame[..12], &tag, &frame[12..]].concat()
    }

    #[test]
    fn a_tag_is_put_in_behind_the_addresses() {
        for (config, kind, tci) in [
            ("5", 0x8100, 5),
            ("0x6005, ETHERTYPE 0x88a8", 0x88a8, 0x6005),
            ("VLAN_ID 5, VLAN_PCP 3", 0x8100, 0x6005),
            ("0x6005, 1", 0x8100, 0x2005),
            ("VLAN_ID 0, NATIVE_VLAN -1", 0x8100, 0),
            ("VLAN_ID 4095, NATIVE_VLAN 5", 0x8100, 4095),
        ] {
            let batch = run(&ENCAP, config, 14, &[&PLAIN, &PLAIN[..14], &PLAIN[..13]]);
            assert_eq!(batch.bytes(0), with_tag(&PLAIN, kind, tci), "{config}");
            assert_eq!(batch.bytes(1), with_tag(&PLAIN[..14], kind, tci), "{config}");
            assert_eq!(batch.meta()[0].network, 18);
            assert_eq!(batch.decision(2), Decision::Drop(DropReason::TooShort));
        }
        for config in ["0", "VLAN_ID 7, VLAN_PCP 2, NATIVE_VLAN 7", "ANNO"] {
            let batch = run(&ENCAP, config, 14, &[&PLAIN]);
            assert_eq!((batch.bytes(0), batch.meta()[0].network), (&PLAIN[..], 14), "{config}");
        }
    }

    #[test]
    fn a_tag_is_taken_out_and_noted() {
        let one = with_tag(&PLAIN, 0x8100, 0xa007);
        let two = with_tag(&one, 0x88a8, 9);
        let (short, other) = (&one[..17], with_tag(&PLAIN, 0x9100, 1));
        let batch = run(&DECAP, "", 18, &[&one, &two, &PLAIN, short, &other, &PLAIN[..5]]);
        assert_eq!((batch.bytes(0), batch.bytes(1)), (&PLAIN[..], &two[..]));
        assert_eq!((batch.bytes(2), batch.bytes(4)), (&PLAIN[..], &other[..]));
        assert_eq!(batch.meta()[0].network, 14);
        assert_eq!([0, 1, 2, 4].map(|i| batch.meta()[i].vlan), [0xa007, 0, 0, 0]);
        for i in [3, 5] {
            assert_eq!(batch.decision(i), Decision::Drop(DropReason::TooShort));
        }
        let batch = run(&DECAP, "ETHERTYPE 0x88a8", 18, &[&one, &two]);
        assert_eq!((batch.bytes(0), batch.bytes(1)), (&one[..], &one[..]));
        let batch = run(&DECAP, "false", 18, &[&one]);
        assert_eq!((batch.bytes(0), batch.meta()[0].vlan), (&PLAIN[..], 0));
    }

    #[test]
    fn the_whole_header_goes_and_comes() {
        let one = with_tag(&PLAIN, 0x8100, 0xa007);
        let batch = run(&STRIP, "", 14, &[&PLAIN]);
        assert_eq!((batch.bytes(0), batch.meta()[0]), (&PLAIN[14..], noted(0)));
        let batch = run(&STRIP, "-1", 18, &[&one, &PLAIN, &one[..17]]);
        assert_eq!((batch.bytes(0), batch.meta()[0]), (&PLAIN[14..], noted(0xa007)));
        assert_eq!((batch.bytes(1), batch.decision(1)), (&PLAIN[..], Decision::Output(1)));
        assert_eq!(batch.decision(2), Decision::Drop(DropReason::TooShort));
        let batch = run(&STRIP, "12", 14, &[&PLAIN]);
        assert_eq!((batch.bytes(0), batch.meta()[0]), (&PLAIN[14..], noted(12)));
        let ends = "0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2";
        let header = |config: &str| {
            run(&ETHER_ENCAP, &format!("{ends}, {config}"), 0, &[&[9, 9]]).bytes(0).to_vec()
        };
        assert_eq!(header("7, 5"), one);
        assert_eq!(header("VLAN_ID 7, NATIVE_VLAN 7"), PLAIN);
    }

    fn noted(vlan: u16) -> Meta {
        Meta { vlan, ..Meta::default() }
    }

    #[test]
    fn what_is_noted_becomes_the_tag() {
        let text = "FromDevice(a) -> d :: VLANDecap -> s :: Classifier(14/77, -);
            s [0] -> a :: SetVLANAnno(VLAN_ID 3) -> e :: VLANEncap(ANNO) -> ToDevice(b); s [1] -> e";
        let mut rig = Rig::new(&World::new(), text);
        let [same, other] =
            [9, 0x77].map(|byte| with_tag(&[&PLAIN[..14], &[byte]].concat(), 0x8100, 0xa007));
        let tags = |rig: &mut Rig| {
            let sent = rig.receive("a", &[&same, &other]);
            sent.iter()
                .map(|(_, frame)| u16::from_be_bytes([frame[14], frame[15]]))
                .collect::<Vec<_>>()
        };
        let mut seen = tags(&mut rig);
        seen.sort_unstable();
        assert_eq!(seen, [3, 0xa007]);
        rig.write("a.vlan_pcp", "7");
        rig.write("a.vlan_id", "4094");
        assert!(tags(&mut rig).contains(&0xeffe));
        assert_eq!(
            ["vlan_tci", "vlan_id", "vlan_pcp"].map(|name| rig.read(&format!("a.{name}"))),
            ["61438", "4094", "7"]
        );
        assert_eq!(rig.read("a.config"), "VLAN_ID 4094, VLAN_PCP 7");
        rig.write("a.vlan_tci", "1");
        assert!(tags(&mut rig).contains(&1));
        for (handler, text) in [("vlan_id", "4096"), ("vlan_pcp", "8"), ("vlan_tci", "x")] {
            assert!(rig.handlers.write(&format!("a.{handler}"), text).is_err());
        }
        assert!(rig.handlers.read("e.vlan_id", "").is_err(), "it has none of its own");
    }

    #[test]
    fn a_trunk_is_divided_as_the_guide_has_it() {
        let guide = include_str!("../../../../../docs/guide/build-a-graph.md");
        let lines = guide.lines().skip_while(|line| !line.contains("FromDevice(trunk)"));
        let text: Vec<_> = lines.take_while(|line| line.starts_with("    ")).collect();
        let mut rig = Rig::new(&World::new(), &text.join("\n"));
        for (vlan, lan) in [(7, "lan7"), (8, "lan8")] {
            let tagged = with_tag(&PLAIN, 0x8100, vlan);
            assert_eq!(rig.receive("trunk", &[&tagged]), [(lan.to_owned(), PLAIN.to_vec())]);
            rig.receive(lan, &[&PLAIN]);
            assert_eq!(rig.poll(), [("trunk".to_owned(), tagged)]);
        }
        assert!(rig.receive("trunk", &[&with_tag(&PLAIN, 0x8100, 9), &PLAIN]).is_empty());
        assert_eq!(rig.dropped(DropReason::Unmatched), 2);
    }

    #[test]
    fn what_does_not_fit_before_the_frame_ends() {
        let bench = &mut Bench::new(&World::new());
        let mut batch = batch(&bench.pool, 0, [&PLAIN[..]]);
        assert!(batch.push_front(0, crate::frame::HEADROOM - 3));
        element(&ENCAP, "5").process(0, &mut batch, &mut bench.context());
        assert_eq!(batch.decision(0), Decision::Drop(DropReason::NoBuffer));
    }

    #[test]
    fn wrong_tags_are_reported() {
        for (class, config, words) in [
            (&ENCAP, "", "give one of VLAN_TCI and VLAN_ID"),
            (&ENCAP, "5, VLAN_ID 5", "give one of"),
            (&ENCAP, "65536", "VLAN_TCI: `65536` is not ANNO, and out of range"),
            (&ENCAP, "VLAN_ID 4096", "VLAN_ID: `4096` is out of range: 0 to 4095"),
            (&ENCAP, "5, 8", "VLAN_PCP: `8` is no priority"),
            (&ENCAP, "ANNO, 3", "that of the annotation"),
            (&ENCAP, "5, NATIVE_VLAN -2", "NATIVE_VLAN: `-2` is no number of a VLAN"),
            (&SET, "ANNO", "ANNO is what it sets"),
            (&DECAP, "maybe", "neither `true` nor `false`"),
            (&STRIP, "x", "no number of a VLAN"),
            (&ETHER_ENCAP, "0x0800, 5, 6, 7", "SRC: `5` is no Ethernet address"),
        ] {
            let reported = refused(class, config);
            assert!(reported.contains(words), "{config}: {reported}");
        }
    }
}
