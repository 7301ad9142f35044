//! Routes as text: `ADDR/MASK [GW] OUT`, as Click's route tables take and list them.

use std::fmt;

use fingerpost_lpm::Prefix;

use super::{Change, Family, RouteTable};
use crate::language::Value;

/// Route as configured and listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route<A: Family> {
    pub(crate) prefix: Prefix<A>,
    /// Whom packets are sent to, if it is not whom they are for.
    pub(crate) gateway: Option<A>,
    /// The output to leave by.
    pub(crate) output: u16,
}

/// What is removed: any route of the prefix, or if an output is given the very route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Removal<A: Family> {
    pub(crate) prefix: Prefix<A>,
    pub(crate) gateway: Option<A>,
    pub(crate) output: Option<u16>,
}

impl<A: Family> Route<A> {
    /// Reads `ADDR/MASK [GW] OUT` out of its words.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn read<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let Removal { prefix, gateway, output } = Removal::read(words)?;
        let output = output.ok_or("a route is ADDR/MASK [GATEWAY] OUTPUT")?;
        Ok(Self { prefix, gateway, output })
    }

    /// It covers everything.
    pub(crate) fn is_default(&self) -> bool {
        self.prefix.len() == 0
    }
}

impl<A: Family> fmt::Display for Route<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.prefix)?;
        match self.gateway {
            Some(gateway) => write!(f, "{} {}", gateway.to_ip(), self.output),
            None => write!(f, "- {}", self.output),
        }
    }
}

impl<A: Family> Removal<A> {
    /// Reads `ADDR/MASK [GW] [OUT]` out of its words.
    fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let is = |word: &str, what: String| format!("`{word}` is {what}");
        let prefix = words.next().ok_or("a route is ADDR/MASK [GATEWAY] OUTPUT")?;
        let read = A::prefix(prefix).map_err(|what| is(prefix, what))?;
        let mut removal = Self { prefix: read, gateway: None, output: None };
        let Some(mut word) = words.next() else { return Ok(removal) };
        // A number is an output; whatever else stands here is a gateway.
        if !word.bytes().all(|byte| byte.is_ascii_digit()) {
            removal.gateway = gateway(word)?;
            match words.next() {
                Some(output) => word = output,
                None => return Ok(removal),
            }
        }
        removal.output = Some(u16::read(word).map_err(|what| is(word, what))?);
        match words.next() {
            Some(more) => Err(format!("`{more}` is one word too many")),
            None => Ok(removal),
        }
    }
}

/// `-` and the address that is none are no gateway.
fn gateway<A: Family>(word: &str) -> Result<Option<A>, String> {
    if word == "-" {
        return Ok(None);
    }
    let addr: Option<A> = word.parse().ok().and_then(A::from_ip);
    let addr = addr.ok_or_else(|| format!("`{word}` is no IPv{} gateway", A::FAMILY))?;
    Ok((addr != A::MIN).then_some(addr))
}

impl<A: Family> RouteTable<A> {
    /// `add ROUTE`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn write_add(&self, text: &str) -> Result<(), String> {
        self.change(Change::Add(Route::read(text.split_ascii_whitespace())?))
    }

    /// `set ROUTE`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn write_set(&self, text: &str) -> Result<(), String> {
        self.change(Change::Set(Route::read(text.split_ascii_whitespace())?))
    }

    /// `remove ROUTE`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn write_remove(&self, text: &str) -> Result<(), String> {
        self.change(Change::Remove(Removal::read(text.split_ascii_whitespace())?))
    }

    fn change(&self, change: Change<A>) -> Result<(), String> {
        self.apply(&[change]).map(drop).map_err(|(_, error)| error.to_string())
    }

    /// Lines of these three; all of them or none.
    ///
    /// # Errors
    /// The first line that cannot be carried out, and why.
    pub(crate) fn write_ctrl(&self, text: &str) -> Result<(), String> {
        let (mut changes, mut lines) = (Vec::new(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let change = match words.next() {
                None => continue,
                Some("add") => Route::read(words).map(Change::Add),
                Some("set") => Route::read(words).map(Change::Set),
                Some("remove") => Removal::read(words).map(Change::Remove),
                Some(word) => Err(format!("`{word}` is neither `add` nor `set` nor `remove`")),
            };
            changes.push(change.map_err(|words| format!("line {}: {words}", at + 1))?);
            lines.push(at + 1);
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.apply(&changes).map(drop).map_err(|(at, error)| match at {
            Some(at) => format!("line {}: {error}", lines[at]),
            None => error.to_string(),
        })
    }

    /// Every route, a line each, in columns as Click fills them: a second tab follows a prefix below 16 characters or a gateway
    /// below 8, so that columns align.
    pub(crate) fn read_table(&self) -> String {
        use fmt::Write;
        let mut text = String::new();
        for Route { prefix, gateway, output } in self.dump() {
            let mut column = |words: &dyn fmt::Display, least: usize| {
                let start = text.len();
                let _ = write!(text, "{words}\t");
                if text.len() < start + least {
                    text.push('\t');
                }
            };
            column(&prefix, 17);
            match gateway {
                Some(gateway) => column(&gateway.to_ip(), 9),
                None => column(&'-', 9),
            }
            let _ = writeln!(text, "{output}");
        }
        text
    }

    /// Output and gateway of an address; `-1` where there is no route.
    ///
    /// # Errors
    /// It is no address.
    pub(crate) fn read_lookup(&self, text: &str) -> Result<String, String> {
        let word = text.trim();
        let addr: Option<A> = word.parse().ok().and_then(A::from_ip);
        let addr = addr.ok_or_else(|| format!("`{word}` is no IPv{} address", A::FAMILY))?;
        Ok(match self.lookup(addr) {
            None => "-1".to_owned(),
            Some(path) => match self.gateways().get(path.gateway) {
                Some(gateway) => format!("{} {gateway}", path.output),
                None => path.output.to_string(),
            },
        })
    }
}
