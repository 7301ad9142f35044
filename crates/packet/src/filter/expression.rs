//! Expressions over IP packets, as `IPFilter` and `IPClassifier` take them: `dst net 10.0.0.0/8 and icmp`.
//!
//! ```text
//! expression = either [ "?" expression ":" expression ]
//! either     = term { ("or" | "||") term }
//! term       = factor { [ "and" | "&&" ] factor }
//! factor     = ("not" | "!") factor | "(" expression ")" | primitive
//! primitive  = "any" | "all" | "-" | "true" | "none" | "false"
//!            | [direction] ["host"] [relation] ADDRESS          the packet's source or destination
//!            | [direction] ["net"] [relation] PREFIX            10.0.0.0/8, 10.0.0.0 mask 255.0.0.0
//!            | [direction] "ether" ["host"] ADDRESS             an Ethernet address, as 2:0:0:0:0:1
//!            | [direction] ["tcp" | "udp" | "tcpudp"] "port" [mask] [relation] PORT      80, http, 1024-65535
//!            | ["ip"] "proto" [mask] [relation] PROTOCOL | "tcp" | "udp" | "tcpudp" | "icmp" | "gre" | ...
//!            | ["icmp" | "icmp6"] "type" [relation] TYPE        a number, or as `echo-reply`
//!            | ["tcp"] ["opt"] [relation] ("syn" | "ack" | "fin" | "rst" | "psh" | "urg")
//!            | "tcp" "established"                            `ack` or `rst`
//!            | ["tcp"] "win" [mask] [relation] NUMBER
//!            | ["ip"] ("vers" | "hl" | "tos" | "ttl" | "len" | "id") [mask] [relation] NUMBER
//!            | "ip" "dscp" [relation] DSCP                    0 to 63, or as `ef`, `af41`, `cs6`
//!            | ["ip"] ("frag" | "unfrag" | "laterfrag" | "ect" | "ce")
//!            | LAYER "[" OFFSET [ ":" LENGTH ] "]" [mask] [relation] NUMBER      ip[6:2] & 0x1fff = 0
//! direction  = "src" | "dst" | "src or dst" | "src and dst"     without one: src or dst
//! relation   = "=" | "==" | "!=" | "<" | ">" | "<=" | ">="      without one: =
//! mask       = "&" NUMBER                                        the bits that are compared, of the value as well
//! ```
//!
//! Bytes at an offset are those of `ip` (IPv4), `ip6`, `tcp`, `udp`, `icmp` and `icmp6` headers and what is behind
//! them, or of any transport header (`transp`); `LENGTH` is 1, 2 or 4, and 1 unless it is given.
//!
//! `LOW-HIGH` in place of a number or a port means all numbers from the one to the other, without a relation.
//!
//! Without a direction `!=`, `<` and `<=` hold for both ends, the other relations for either: `port < 1024` is `not
//! port >= 1024` of a packet with ports. `src and dst` turns that round.
//!
//! A value without words of its own takes those of the primitive before it: `src host 1.2.3.4 or 5.6.7.8`,
//! `tcp port http or https`, `ip ttl < 5 or > 250`.
//!
//! `ip` may stand before the words of any primitive: `ip src host 1.2.3.4`.
//!
//! Terms side by side all have to hold, as with `and`; `a ? b : c` is `b` where `a` holds, and `c` elsewhere.
//!
//! A primitive holds only for packets that have the field: `port` for whole packets and first fragments of TCP and
//! UDP, `ip id` and `ip hl` (in words of 4 bytes) for IPv4. So `port != 80` wants other ports than 80, and `not port
//! 80` takes packets without ports as well. `ip frag` takes each IPv6 packet with a fragment header, `ip laterfrag`
//! fragments other than the first, which have no ports; `ip ect` packets that are ECN-capable, marked or not.
//!
//! Source: the manual page of Click's IPFilter. Differs: addresses of IPv6, whose
//! packets have all these fields but the two, and bytes of their own (`ip6[7]`); ranges, names of DSCPs, `established`
//! and `laterfrag`.

use std::net::{IpAddr, Ipv4Addr};

use fingerpost_lpm::Prefix;
use fingerpost_route::Mac;

use super::field::{Field, Layer, part};
use super::names::{
    DSCPS, ICMP_TYPES, ICMP6_TYPES, Names, PROTOCOLS, TCP_FLAGS, number as number_of,
    port as port_of,
};
use super::program::{Expr, Test};
use super::{FilterError, offset_in};
use crate::frame::wire::icmp::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};
use crate::frame::wire::protocol;
use crate::language::Value;

/// How deep parentheses may be.
const DEPTH: usize = 64;

/// Tests that all `?` of a text may copy: a condition is tested twice, so that one inside another doubles it.
const MOST_COPIED: usize = 4096;

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Expr<Field>, FilterError> {
    let mut parser =
        Parser { text, tokens: tokens(text), at: 0, last: Primitive::default(), copied: 0 };
    let expr = parser.expression(0)?;
    match parser.peek() {
        None => Ok(expr),
        Some(")") => Err(parser.expected("a `(` before this `)`")),
        Some(_) => Err(parser.expected("`and`, `or` or the end")),
    }
}

/// Splits a text into words and signs.
fn tokens(text: &str) -> Vec<&str> {
    const SIGNS: [&str; 14] =
        ["&&", "||", "==", "!=", "<=", ">=", "!", "(", ")", "<", ">", "=", "&", "?"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).map(|sign| sign.len());
        let ends = |letter: char| letter.is_ascii_whitespace() || "&|=!<>()?".contains(letter);
        let len = sign.unwrap_or_else(|| match rest.find(ends) {
            // A `|` of its own is a word that nobody knows.
            Some(0) => 1,
            Some(len) => len,
            None => rest.len(),
        });
        // Bytes at an offset are one word, whatever stands between its brackets.
        let open = rest[..len].contains('[') && !rest[..len].contains(']');
        let len = if open { rest.find(']').map_or(len, |end| end + 1) } else { len };
        let (token, after) = rest.split_at(len);
        tokens.push(token);
        rest = after.trim_ascii_start();
    }
    tokens
}

/// Which of the two ends of a packet.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Src,
    Dst,
    Either,
    Both,
}

/// What a primitive is about.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Host,
    Net,
    /// An Ethernet address.
    Ether,
    Port,
    Proto,
    IcmpType,
    TcpFlag,
    /// A field of the IP header, which of its bits, and how far left its value lies.
    Number(Field, u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    Equal,
    Differs,
    Below,
    Above,
    AtMost,
    AtLeast,
}

/// The words before a value: their meaning, and the place of those that may be wrong.
#[derive(Clone, Copy, Default, Debug)]
struct Primitive<'a> {
    direction: Option<(Direction, &'a str)>,
    transport: Option<&'a str>,
    kind: Option<Kind>,
    /// Bits that are compared.
    mask: Option<u32>,
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<&'a str>,
    at: usize,
    /// The primitive before.
    last: Primitive<'a>,
    /// Tests of the conditions of all `?` so far.
    copied: usize,
}

type Parsed = Result<Expr<Field>, FilterError>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn next_is(&mut self, words: &[&str]) -> Option<&'a str> {
        let token = self.peek().filter(|token| words.contains(token))?;
        self.at += 1;
        Some(token)
    }

    /// At the next token, or behind the last one.
    fn expected(&self, what: &str) -> FilterError {
        let at = match (self.peek(), self.tokens.last()) {
            (Some(token), _) => offset_in(self.text, token),
            (None, Some(last)) => offset_in(self.text, last) + last.len(),
            (None, None) => 0,
        };
        FilterError::new(at, format!("expected {what}"))
    }

    fn expected_at(&self, token: &str, what: &str) -> FilterError {
        FilterError::new(offset_in(self.text, token), format!("expected {what}"))
    }

    fn expression(&mut self, depth: usize) -> Parsed {
        let mut chain = Vec::new();
        let mut last = self.either(depth)?;
        while self.next_is(&["?"]).is_some() {
            if depth == DEPTH {
                return Err(self.expected(&format!("at most {DEPTH} `?` inside each other")));
            }
            self.copied += last.size();
            if self.copied > MOST_COPIED {
                let what = format!("conditions of at most {MOST_COPIED} tests before all `?`");
                return Err(self.expected(&what));
            }
            let then = self.expression(depth + 1)?;
            if self.next_is(&[":"]).is_none() {
                return Err(self.expected("`:` and what holds otherwise"));
            }
            chain.push((std::mem::replace(&mut last, self.either(depth)?), then));
        }
        let choose = |otherwise, (condition, then): (Expr<Field>, Expr<Field>)| {
            let without = condition.clone().not();
            Expr::any([Expr::all([condition, then]), Expr::all([without, otherwise])])
        };
        Ok(chain.into_iter().rev().fold(last, choose))
    }

    fn either(&mut self, depth: usize) -> Parsed {
        let mut parts = vec![self.term(depth)?];
        while self.next_is(&["or", "||"]).is_some() {
            parts.push(self.term(depth)?);
        }
        Ok(Expr::any(parts))
    }

    fn term(&mut self, depth: usize) -> Parsed {
        let mut parts = vec![self.factor(depth)?];
        loop {
            let ends = |token| matches!(token, "or" | "||" | ")" | "?" | ":" | "|");
            let joined = self.next_is(&["and", "&&"]).is_some();
            if !joined && self.peek().is_none_or(ends) {
                return Ok(Expr::all(parts));
            }
            parts.push(self.factor(depth)?);
        }
    }

    fn factor(&mut self, depth: usize) -> Parsed {
        let mut positive = true;
        while self.next_is(&["not", "!"]).is_some() {
            positive = !positive;
        }
        let expr = if self.peek() == Some("(") {
            if depth == DEPTH {
                return Err(self.expected(&format!("at most {DEPTH} `(` inside each other")));
            }
            self.at += 1;
            let expr = self.expression(depth + 1)?;
            if self.next_is(&[")"]).is_none() {
                return Err(self.expected("`and`, `or` or `)`"));
            }
            expr
        } else {
            self.primitive()?
        };
        Ok(if positive { expr } else { expr.not() })
    }

    fn primitive(&mut self) -> Parsed {
        if self.next_is(&["any", "all", "-", "true"]).is_some() {
            return Ok(Expr::Const(true));
        }
        if self.next_is(&["none", "false"]).is_some() {
            return Ok(Expr::Const(false));
        }
        let (mut said, mut positive, mut link) = (Primitive::default(), true, false);
        let first = self.at;
        while said.kind.is_none() {
            if said.direction.is_none()
                && let Some(word) = self.next_is(&ENDS)
            {
                said.direction = Some((self.direction(word), word));
            } else if self.at > first && self.next_is(&["not", "!"]).is_some() {
                positive = !positive;
            } else if let Some((kind, transport)) = self.at_offset()? {
                if let Some(word) = said.transport {
                    let what = "another word here: it does not go with what follows";
                    return Err(self.expected_at(word, what));
                }
                (said.kind, said.transport) = (Some(kind), transport);
            } else if said.transport.is_none()
                && let Some(word) = self.next_is(&TRANSPORTS)
            {
                said.transport = Some(word);
            } else if !link && self.next_is(&["ether"]).is_some() {
                link = true;
            } else if said.transport == Some("tcp") && self.next_is(&["established"]).is_some() {
                if let Some((_, word)) = said.direction {
                    return Err(
                        self.expected_at(word, "a host, net or port behind `src` and `dst`")
                    );
                }
                self.last = Primitive { transport: said.transport, ..Primitive::default() };
                let flag = |name| {
                    let flag = number_of(TCP_FLAGS, name).map(u32::from).expect("a known name");
                    Expr::Test(Test::equal(Field::TcpFlags, flag, flag), true)
                };
                let established =
                    [is_protocol(protocol::TCP), Expr::any([flag("ack"), flag("rst")])];
                return Ok(signed(Expr::all(established), positive));
            } else if let Some(expr) = self.ip_flag() {
                return self.settle(said, signed(expr, positive));
            } else if self.next_is(&["ip"]).is_some() {
                if let Some(expr) = self.ip_flag() {
                    return self.settle(said, signed(expr, positive));
                }
                // `ip host`, `ip src host` and the like.
                let goes_with = |next| {
                    PLAIN.contains(&next) || TRANSPORTS.contains(&next) || ENDS.contains(&next)
                };
                if !self.peek().is_some_and(goes_with) {
                    said.kind = Some(self.ip_field()?);
                }
            } else if let Some(word) = self.next_is(&PLAIN) {
                said.kind = Some(match word {
                    "host" if link => Kind::Ether,
                    "host" => Kind::Host,
                    "net" => Kind::Net,
                    "port" => Kind::Port,
                    "proto" => Kind::Proto,
                    "type" => {
                        said.transport = said.transport.or(Some("icmp"));
                        Kind::IcmpType
                    }
                    "win" => {
                        said.transport = said.transport.or(Some("tcp"));
                        Kind::Number(Field::At(Layer::Transport, 14, 2), 0xffff, 0)
                    }
                    _ => {
                        said.transport = said.transport.or(Some("tcp"));
                        Kind::TcpFlag
                    }
                });
            } else if self.peek().is_some_and(|next| IP_FIELDS.contains(&next)) {
                said.kind = Some(self.ip_field()?);
            } else {
                break;
            }
        }
        if link && said.kind.is_none() {
            said.kind = Some(Kind::Ether);
        }
        self.masked(&mut said)?;
        let relation = self.relation();
        let ends = ["and", "or", "not", "&&", "||", "!", "(", ")", "&", "|", "?", ":"];
        let value = self.peek().filter(|token| !ends.contains(token));
        if let (Some(word), None, Some(next)) = (said.transport, said.kind, value)
            && (number_of(PROTOCOLS, next).is_some() || TRANSPORTS.contains(&next))
        {
            let what = "another word here: it does not go with what follows";
            return Err(self.expected_at(word, what));
        }
        // A protocol alone may have another primitive beside it.
        let alone =
            matches!(said, Primitive { direction: None, transport: Some(_), kind: None, .. })
                && relation.is_none()
                && value.is_none_or(|value| !self.qualified(value, said.transport));
        let value = value.filter(|_| !alone);
        let Some(value) = value else {
            return match (said, relation) {
                (Primitive { direction: None, transport: Some(name), kind: None, .. }, None) => {
                    self.last = Primitive { kind: Some(Kind::Proto), ..Primitive::default() };
                    Ok(signed(of_transport(name), positive))
                }
                _ => Err(self.expected(wanted(said.kind))),
            };
        };
        let kind = match said.kind {
            Some(kind) => kind,
            None => self.kind_of(value, &mut said)?,
        };
        said.kind = Some(kind);
        self.check(&said, kind, relation)?;
        self.at += 1;
        let relation = relation.map_or(Relation::Equal, |(relation, _)| relation);
        let mut expr = self.about(kind, &said, relation, value)?;
        if let (Kind::Host | Kind::Net | Kind::Ether, Some(name)) = (kind, said.transport) {
            expr = Expr::all([of_transport(name), expr]);
        }
        self.settle(said, signed(expr, positive))
    }

    /// Whether a value goes with the name of a protocol before it: `tcp syn`, `tcp http`, `icmp echo`, `tcp 10.0.0.1`.
    fn qualified(&self, value: &str, transport: Option<&str>) -> bool {
        if value.contains('/') || address(value).is_some() || Mac::read(value).is_ok() {
            return true;
        }
        let ports = || port_of(value, false).is_some();
        match transport {
            Some("tcp") => number_of(TCP_FLAGS, value).is_some() || ports(),
            Some("udp" | "tcpudp") => ports(),
            Some(name @ ("icmp" | "icmp6")) => number_of(type_names(Some(name)), value).is_some(),
            _ => false,
        }
    }

    /// `& MASK` of what has numbers, or of an IPv4 address.
    fn masked(&mut self, said: &mut Primitive<'a>) -> Result<(), FilterError> {
        if self.next_is(&["&"]).is_none() {
            return Ok(());
        }
        let all = match said.kind {
            Some(Kind::Port) => 0xffff,
            Some(Kind::Proto | Kind::IcmpType) => 0xff,
            Some(Kind::Number(_, mask, shift)) => mask >> shift,
            Some(Kind::Host) => u32::MAX,
            _ => return Err(self.expected("a field with a number before `&`")),
        };
        let given = self.peek().and_then(|token| match said.kind {
            Some(Kind::Host) => token.parse().ok().map(Ipv4Addr::to_bits),
            _ => u32::read(token).ok(),
        });
        let given = given.filter(|&mask| mask <= all && mask != 0);
        let what = || format!("a mask of 1 to {all:#x}");
        said.mask = Some(given.ok_or_else(|| self.expected(&what()))?);
        self.at += 1;
        Ok(())
    }

    /// A flag of the IP header has neither direction nor protocol.
    fn settle(&mut self, said: Primitive<'a>, expr: Expr<Field>) -> Parsed {
        let odd = said.direction.map(|(_, word)| word).or(said.transport);
        match (said.kind, odd) {
            (None, Some(word)) => Err(self.expected_at(word, "`ip` alone before its flags")),
            _ => {
                self.last = said;
                Ok(expr)
            }
        }
    }

    /// The words behind `src` or `dst`.
    fn direction(&mut self, word: &str) -> Direction {
        let (one, other) =
            if word == "src" { (Direction::Src, "dst") } else { (Direction::Dst, "src") };
        let is_other = |next: &&str| *next == other || other == "dst" && *next == "dest";
        let both = match (self.peek(), self.tokens.get(self.at + 1)) {
            (Some("or" | "||"), Some(next)) if is_other(next) => Direction::Either,
            (Some("and" | "&&"), Some(next)) if is_other(next) => Direction::Both,
            _ => return one,
        };
        self.at += 2;
        both
    }

    /// The words behind `ip`.
    fn ip_flag(&mut self) -> Option<Expr<Field>> {
        let test = match self.next_is(&["frag", "unfrag", "laterfrag", "ect", "ce"])? {
            "frag" => Test::equal(Field::Fragment, 1, 1),
            "unfrag" => Test::equal(Field::Fragment, 1, 0),
            "laterfrag" => Test::equal(Field::Later, 1, 1),
            "ect" => Test { load: Field::TrafficClass, mask: 3, low: 1, high: 3 },
            _ => Test::equal(Field::TrafficClass, 3, 3),
        };
        Some(Expr::Test(test, true))
    }

    fn ip_field(&mut self) -> Result<Kind, FilterError> {
        let names = || std::iter::once("proto").chain(IP_FIELDS).collect::<Vec<_>>();
        let Some(name) = self.next_is(&names()) else {
            let what = format!("one of {} frag unfrag laterfrag ect ce", names().join(" "));
            return Err(self.expected(&what));
        };
        Ok(match name {
            "proto" => Kind::Proto,
            "vers" => Kind::Number(Field::Version, 15, 0),
            "hl" => Kind::Number(Field::HeaderWords, 15, 0),
            "tos" => Kind::Number(Field::TrafficClass, 0xff, 0),
            "dscp" => Kind::Number(Field::TrafficClass, 0xfc, 2),
            "ttl" => Kind::Number(Field::Ttl, 0xff, 0),
            "len" => Kind::Number(Field::Len, 0xf_ffff, 0),
            _ => Kind::Number(Field::Id, 0xffff, 0),
        })
    }

    /// `ip[6:2] & 0x1fff` and the like: the field, and the protocol that a packet must be of.
    fn at_offset(&mut self) -> Result<Option<(Kind, Option<&'a str>)>, FilterError> {
        let Some(token) = self.peek() else { return Ok(None) };
        // `tcp [13]` is `tcp[13]`.
        let behind = self.tokens.get(self.at + 1).and_then(|next| next.strip_prefix('['));
        let layer = |name| matches!(name, "ip" | "ip6" | "transp") || TRANSPORTS.contains(&name);
        let (name, rest) = match (token.split_once('['), behind) {
            (Some(parts), _) => parts,
            (None, Some(rest)) if layer(token) => {
                self.at += 1;
                (token, rest)
            }
            _ => return Ok(None),
        };
        let (layer, transport) = match name {
            "ip" => (Layer::V4, None),
            "ip6" => (Layer::V6, None),
            "transp" => (Layer::Transport, None),
            "tcp" | "udp" | "icmp" | "icmp6" => (Layer::Transport, Some(name)),
            _ => {
                return Err(self.expected("ip, ip6, tcp, udp, icmp, icmp6 or transp before `[`"));
            }
        };
        let what = "an offset, and a length of 1 to 4, as `[6:2]`";
        let inside = rest.strip_suffix(']').ok_or_else(|| self.expected(what))?;
        let (at, len) = inside.split_once(':').unwrap_or((inside, "1"));
        let len = u8::read(len.trim()).ok().filter(|len| matches!(len, 1..=4));
        let (Ok(at), Some(len)) = (u16::read(at.trim()), len) else {
            return Err(self.expected(what));
        };
        self.at += 1;
        let all = u32::MAX >> (32 - 8 * u32::from(len));
        Ok(Some((Kind::Number(Field::At(layer, at, len), all, 0), transport)))
    }

    fn relation(&mut self) -> Option<(Relation, &'a str)> {
        let sign = self.next_is(&["=", "==", "!=", "<", ">", "<=", ">="])?;
        let relation = match sign {
            "!=" => Relation::Differs,
            "<" => Relation::Below,
            ">" => Relation::Above,
            "<=" => Relation::AtMost,
            ">=" => Relation::AtLeast,
            _ => Relation::Equal,
        };
        Some((relation, sign))
    }

    /// The meaning of a value without words of its own; the words before it are taken over.
    fn kind_of(&self, value: &str, said: &mut Primitive<'a>) -> Result<Kind, FilterError> {
        let last = &self.last;
        // Words of its own are all of its words.
        let inherited = last.direction.filter(|_| said.transport.is_none());
        if value.contains('/') || address(value).is_some() {
            said.direction = said.direction.or(inherited);
            return Ok(if value.contains('/') { Kind::Net } else { Kind::Host });
        }
        if Mac::read(value).is_ok() {
            said.direction = said.direction.or(inherited);
            return Ok(Kind::Ether);
        }
        let number = value.starts_with(|first: char| first.is_ascii_digit());
        let named = |names: &Names| number || number_of(names, value).is_some();
        let dscp = |kind: Kind| {
            matches!(kind, Kind::Number(Field::TrafficClass, _, 2))
                && number_of(DSCPS, value).is_some()
        };
        match last.kind {
            Some(Kind::Port)
                if (number || port_of(value, false).is_some())
                    && !matches!(said.transport, Some("icmp" | "icmp6")) =>
            {
                said.direction = said.direction.or(last.direction);
                said.transport = said.transport.or(last.transport);
                return Ok(Kind::Port);
            }
            Some(Kind::IcmpType)
                if named(type_names(last.transport))
                    && matches!(said.transport, None | Some("icmp" | "icmp6")) =>
            {
                said.transport = said.transport.or(last.transport);
                return Ok(Kind::IcmpType);
            }
            Some(Kind::TcpFlag) if number_of(TCP_FLAGS, value).is_some() => {
                said.transport = said.transport.or(last.transport);
                return Ok(Kind::TcpFlag);
            }
            Some(kind @ Kind::Number(..)) if number || dscp(kind) => {
                said.transport = said.transport.or(last.transport);
                return Ok(kind);
            }
            Some(Kind::Proto) if number => return Ok(Kind::Proto),
            _ => {}
        }
        let names = type_names(said.transport);
        let known = |names: &Names| number_of(names, value).is_some();
        let of_tcp = matches!(said.transport, None | Some("tcp" | "tcpudp"));
        let of_icmp = matches!(said.transport, None | Some("icmp" | "icmp6"));
        // A name that means several things has to stand behind a word that selects one.
        let kinds = [
            (known(PROTOCOLS) && said.transport.is_none(), Kind::Proto),
            (
                port_of(value, false).is_some() && (of_tcp || said.transport == Some("udp")),
                Kind::Port,
            ),
            (known(TCP_FLAGS) && of_tcp, Kind::TcpFlag),
            (known(names) && of_icmp, Kind::IcmpType),
        ];
        let mut found = kinds.into_iter().filter(|(known, _)| *known).map(|(_, kind)| kind);
        if let Some(kind) = found.next() {
            if found.next().is_some() {
                return Err(self.expected("`port` or `icmp type` before a name of both"));
            }
            match kind {
                Kind::TcpFlag => said.transport = Some("tcp"),
                Kind::IcmpType => said.transport = said.transport.or(Some("icmp")),
                _ => {}
            }
            return Ok(kind);
        }
        Err(self.expected(if number {
            "`port`, or a field as `ip ttl`, before a number"
        } else {
            wanted(None)
        }))
    }

    /// What goes together.
    fn check(
        &self,
        said: &Primitive<'a>,
        kind: Kind,
        relation: Option<(Relation, &'a str)>,
    ) -> Result<(), FilterError> {
        let directed = matches!(kind, Kind::Host | Kind::Net | Kind::Port | Kind::Ether);
        if let Some((_, word)) = said.direction.filter(|_| !directed) {
            let what = "a host, net or port behind `src` and `dst`";
            return Err(self.expected_at(word, what));
        }
        let transports: &[&str] = match kind {
            Kind::Port => &["tcp", "udp", "tcpudp"],
            Kind::IcmpType => &["icmp", "icmp6"],
            Kind::TcpFlag => &["tcp"],
            Kind::Host | Kind::Net | Kind::Ether | Kind::Number(..) => &TRANSPORTS,
            Kind::Proto => &[],
        };
        let needed = matches!(kind, Kind::IcmpType | Kind::TcpFlag);
        match said.transport {
            Some(word) if !transports.contains(&word) => {
                Err(self.expected_at(word, "another word here: it does not go with what follows"))
            }
            None if needed => Err(self.expected(&format!("`{}` before this", transports[0]))),
            _ => {
                let ordered = matches!(kind, Kind::Port | Kind::IcmpType | Kind::Number(..));
                let order = |r: &(Relation, _)| !matches!(r.0, Relation::Equal | Relation::Differs);
                match relation.filter(order) {
                    Some((_, sign)) if !ordered => {
                        Err(self.expected_at(sign, "`=` or `!=`: these have no order"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// The test of a value, the token just taken.
    fn about(
        &mut self,
        kind: Kind,
        said: &Primitive<'a>,
        relation: Relation,
        value: &'a str,
    ) -> Parsed {
        let direction = said.direction.map_or(Direction::Either, |(direction, _)| direction);
        let number_in = |names: &Names, most: u32| {
            let named = number_of(names, value).map(u32::from);
            let number = named.or_else(|| u32::read(value).ok());
            number.filter(|number| *number <= most).ok_or_else(|| {
                let name = if names.is_empty() { "" } else { " or a known name" };
                self.expected_at(value, &format!("a number up to {most}{name}"))
            })
        };
        if let Some((low, high)) = value.split_once('-')
            && [low, high].iter().all(|end| u32::read(end).is_ok())
            && matches!(kind, Kind::Port | Kind::Proto | Kind::IcmpType | Kind::Number(..))
        {
            if relation != Relation::Equal {
                return Err(self.expected_at(value, "one number behind a relation"));
            }
            return self.range(kind, said, value, low, high);
        }
        Ok(match kind {
            Kind::Host => {
                let what = "an IPv4 or IPv6 address";
                let addr = address(value).ok_or_else(|| self.expected_at(value, what))?;
                if let Some(mask) = said.mask {
                    let IpAddr::V4(addr) = addr else {
                        return Err(self.expected_at(value, "an IPv4 address behind a mask"));
                    };
                    let under = |src| {
                        let field = if src { Field::Src4 } else { Field::Dst4 };
                        Expr::Test(Test::equal(field, mask, addr.to_bits()), true)
                    };
                    return Ok(ends(direction, relation, |src| contrary(relation, under(src))));
                }
                let bits = if addr.is_ipv4() { 32 } else { 128 };
                ends(direction, relation, |src| contrary(relation, within(src, addr, bits)))
            }
            Kind::Net => {
                let (addr, len) = self.prefix(value)?;
                ends(direction, relation, |src| contrary(relation, within(src, addr, len)))
            }
            Kind::Ether => {
                let mac = Mac::read(value)
                    .map_err(|_| self.expected_at(value, wanted(Some(Kind::Ether))))?;
                ends(direction, relation, |src| contrary(relation, at_link(src, mac)))
            }
            Kind::Port => {
                let named = port_of(value, said.transport == Some("udp"));
                let read = named
                    .or_else(|| u16::read(value).ok())
                    .ok_or_else(|| self.expected_at(value, "a number up to 65535 or a known name"));
                let port = u32::from(read?);
                let mask = said.mask.unwrap_or(0xffff);
                let ports = ends(direction, relation, |src| {
                    let field = if src { Field::SrcPort } else { Field::DstPort };
                    number(field, mask, relation, port)
                });
                match said.transport {
                    Some(name) => Expr::all([of_transport(name), ports]),
                    None => ports,
                }
            }
            Kind::Proto if value == "tcpudp" => {
                // As with other protocols, what has none is of no other one.
                let there = number(Field::Protocol, 0xff, Relation::AtLeast, 0);
                Expr::all([there, contrary(relation, of_transport("tcpudp"))])
            }
            Kind::Proto => {
                let mask = said.mask.unwrap_or(0xff);
                number(Field::Protocol, mask, relation, number_in(PROTOCOLS, 0xff)?)
            }
            Kind::IcmpType => {
                let kind = number_in(type_names(said.transport), 0xff)?;
                let v6 = said.transport == Some("icmp6");
                let protocol = if v6 { PROTOCOL_ICMPV6 } else { PROTOCOL_ICMP };
                let kind = number(Field::IcmpType, said.mask.unwrap_or(0xff), relation, kind);
                Expr::all([is_protocol(protocol), kind])
            }
            Kind::TcpFlag => {
                let Some(flag) = number_of(TCP_FLAGS, value).map(u32::from) else {
                    return Err(self.expected_at(value, wanted(Some(kind))));
                };
                let set = if relation == Relation::Equal { flag } else { 0 };
                let test = Expr::Test(Test::equal(Field::TcpFlags, flag, set), true);
                Expr::all([is_protocol(protocol::TCP), test])
            }
            Kind::Number(field, mask, shift) => {
                let names = if (field, shift) == (Field::TrafficClass, 2) { DSCPS } else { &[] };
                let value = number_in(names, mask >> shift)? << shift;
                let mask = said.mask.map_or(mask, |mask| mask << shift);
                let test = number(field, mask, relation, value);
                match said.transport {
                    Some(name) => Expr::all([of_transport(name), test]),
                    None => test,
                }
            }
        })
    }

    /// `LOW-HIGH`, of whatever has numbers.
    fn range(
        &mut self,
        kind: Kind,
        said: &Primitive<'a>,
        value: &'a str,
        low: &'a str,
        high: &'a str,
    ) -> Parsed {
        let ordered = u32::read(low).ok() <= u32::read(high).ok();
        if !ordered {
            return Err(self.expected_at(value, "the lower number first"));
        }
        let mut of = |side: Option<(Direction, &'a str)>, relation, value| {
            let said = Primitive { direction: side, ..*said };
            self.about(kind, &said, relation, value)
        };
        let mut both = |side| {
            let low = of(side, Relation::AtLeast, low)?;
            Ok(Expr::all([low, of(side, Relation::AtMost, high)?]))
        };
        let one = |direction| Some((direction, ""));
        match said.direction.map_or(Direction::Either, |(direction, _)| direction) {
            _ if !matches!(kind, Kind::Port) => both(None),
            // Both ends of the range are of one port.
            Direction::Either => {
                Ok(Expr::any([both(one(Direction::Src))?, both(one(Direction::Dst))?]))
            }
            Direction::Both => {
                Ok(Expr::all([both(one(Direction::Src))?, both(one(Direction::Dst))?]))
            }
            direction => both(one(direction)),
        }
    }

    /// The prefix that begins with the token just taken.
    fn prefix(&mut self, value: &'a str) -> Result<(IpAddr, u8), FilterError> {
        if let Ok(addr) = value.parse::<Ipv4Addr>()
            && self.next_is(&["mask"]).is_some()
        {
            let mask = self.peek().and_then(|token| token.parse::<Ipv4Addr>().ok());
            let mask = mask.map(Ipv4Addr::to_bits);
            let Some(mask) = mask.filter(|m| m.leading_ones() + m.trailing_zeros() >= 32) else {
                return Err(self.expected("a mask without holes, as 255.255.0.0"));
            };
            self.at += 1;
            return Ok((addr.into(), u8::try_from(mask.leading_ones()).expect("at most 32")));
        }
        if value.contains('/') {
            if let Ok(prefix) = Prefix::<u32>::read(value) {
                return Ok((Ipv4Addr::from_bits(prefix.addr()).into(), prefix.len()));
            }
            if let Ok(prefix) = Prefix::<u128>::read(value) {
                return Ok((std::net::Ipv6Addr::from_bits(prefix.addr()).into(), prefix.len()));
            }
        }
        // A name of `AddressInfo`, or of an interface, stands for its network.
        if let Ok(prefix) = Prefix::<u32>::read(&format!("{value}:ipnet")) {
            return Ok((Ipv4Addr::from_bits(prefix.addr()).into(), prefix.len()));
        }
        if value.contains(':')
            && let Ok(prefix) = Prefix::<u32>::read(value)
        {
            return Ok((Ipv4Addr::from_bits(prefix.addr()).into(), prefix.len()));
        }
        Err(self.expected_at(value, wanted(Some(Kind::Net))))
    }
}

/// What may stand behind the words before a value.
fn wanted(kind: Option<Kind>) -> &'static str {
    match kind {
        None => "a primitive, as `src host 10.0.0.1`, `dst port 80` or `icmp`",
        Some(Kind::Host) => "an IPv4 or IPv6 address",
        Some(Kind::Ether) => "an Ethernet address, as 02:00:00:00:00:01",
        Some(Kind::Net) => "a prefix, as 10.0.0.0/8 or 2001:db8::/32",
        Some(Kind::Port) => "a port",
        Some(Kind::Proto) => "a protocol",
        Some(Kind::IcmpType) => "a type, as `echo` or 8",
        Some(Kind::TcpFlag) => "one of syn ack fin rst psh urg",
        Some(Kind::Number(..)) => "a number",
    }
}

fn type_names(transport: Option<&str>) -> &'static Names {
    if transport == Some("icmp6") { ICMP6_TYPES } else { ICMP_TYPES }
}

/// Names of protocols that may stand before other words.
const TRANSPORTS: [&str; 5] = ["tcp", "udp", "tcpudp", "icmp", "icmp6"];

/// Ends of a packet.
const ENDS: [&str; 3] = ["src", "dst", "dest"];

/// Words that what a primitive is about is named by.
const PLAIN: [&str; 7] = ["host", "net", "port", "proto", "type", "opt", "win"];

/// Fields of the IP header, with `ip` before them or without.
const IP_FIELDS: [&str; 7] = ["vers", "hl", "tos", "dscp", "ttl", "len", "id"];

/// The packet is of this protocol.
fn of_transport(name: &str) -> Expr<Field> {
    match name {
        "tcp" => is_protocol(protocol::TCP),
        "udp" => is_protocol(protocol::UDP),
        "tcpudp" => Expr::any([is_protocol(protocol::TCP), is_protocol(protocol::UDP)]),
        "icmp6" => is_protocol(PROTOCOL_ICMPV6),
        _ => is_protocol(PROTOCOL_ICMP),
    }
}

fn signed(expr: Expr<Field>, positive: bool) -> Expr<Field> {
    if positive { expr } else { expr.not() }
}

/// An address, or a name of one (AddressInfo).
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| Ipv4Addr::read(text).ok().map(IpAddr::V4))
}

/// An Ethernet address of the frame is this one.
fn at_link(src: bool, Mac([a, b, c, d, e, f]): Mac) -> Expr<Field> {
    let at = if src { 6 } else { 0 };
    let field = |at, len| Field::At(Layer::Link, at, len);
    let first = Test::equal(field(at, 4), u32::MAX, u32::from_be_bytes([a, b, c, d]));
    let last = Test::equal(field(at + 4, 2), 0xffff, u32::from_be_bytes([0, 0, e, f]));
    Expr::all([Expr::Test(first, true), Expr::Test(last, true)])
}

fn is_protocol(protocol: u8) -> Expr<Field> {
    number(Field::Protocol, 0xff, Relation::Equal, protocol.into())
}

/// One test of one end or the other, or of both. As in Click `!=`, `<` and `<=` are the contraries of `=`, `>=` and
/// `>`: they hold for both ends where those would hold for either.
fn ends(direction: Direction, relation: Relation, of: impl Fn(bool) -> Expr<Field>) -> Expr<Field> {
    let contrary = matches!(relation, Relation::Differs | Relation::Below | Relation::AtMost);
    match (direction, contrary) {
        (Direction::Src, _) => of(true),
        (Direction::Dst, _) => of(false),
        (Direction::Either, false) | (Direction::Both, true) => Expr::any([of(true), of(false)]),
        (Direction::Both, false) | (Direction::Either, true) => Expr::all([of(true), of(false)]),
    }
}

fn contrary(relation: Relation, expr: Expr<Field>) -> Expr<Field> {
    if relation == Relation::Differs { expr.not() } else { expr }
}

/// An address of the packet lies in a prefix.
fn within(src: bool, addr: IpAddr, len: u8) -> Expr<Field> {
    let mask = |bits: u8| u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
    let family = if addr.is_ipv4() { 4 } else { 6 };
    let tests: Vec<_> = match addr {
        IpAddr::V4(addr) => {
            let field = if src { Field::Src4 } else { Field::Dst4 };
            vec![Test::equal(field, mask(len), addr.to_bits())]
        }
        IpAddr::V6(addr) => (0..4)
            .map(|n| {
                let field = if src { Field::Src6(n) } else { Field::Dst6(n) };
                Test::equal(field, mask(len.saturating_sub(32 * n)), part(addr.to_bits(), n))
            })
            .collect(),
    };
    let tests: Vec<_> = tests.into_iter().filter(|test| test.mask != 0).collect();
    // The address of a family is there when the family is.
    if tests.is_empty() {
        return number(Field::Version, 15, Relation::Equal, family);
    }
    Expr::all(tests.into_iter().map(|test| Expr::Test(test, true)))
}

/// A field under a mask is in a relation to a value, which lies where the field has it.
fn number(field: Field, mask: u32, relation: Relation, value: u32) -> Expr<Field> {
    let range = |low: u32, high: u32| match low <= high {
        true => Expr::Test(Test { load: field, mask, low, high }, true),
        false => Expr::Const(false),
    };
    // Equal are the bits that are compared.
    let value = match relation {
        Relation::Equal | Relation::Differs => value & mask,
        _ => value,
    };
    let below = || value.checked_sub(1).map_or(Expr::Const(false), |high| range(0, high));
    let above = || match value {
        value if value >= mask => Expr::Const(false),
        value => range(value + 1, mask),
    };
    match relation {
        Relation::Equal => Expr::Test(Test::equal(field, mask, value), true),
        Relation::Differs => Expr::any([below(), above()]),
        Relation::Below => below(),
        Relation::Above => above(),
        Relation::AtMost => range(0, value),
        Relation::AtLeast => range(value, mask),
    }
}
