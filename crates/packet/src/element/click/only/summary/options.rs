//! Options of IPv4 and of TCP, which have one form: a kind, a length and a body (RFC 791, RFC 9293).

use crate::language::Value;

/// The options up to their end: kind and body. Those that only fill space are left out; `None` where one is damaged.
pub(super) fn each(options: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let (mut left, mut all) = (options, Vec::new());
    while let Some((&kind, rest)) = left.split_first() {
        match kind {
            0 => break,
            1 => left = rest,
            _ => {
                let body = left.get(2..usize::from(*rest.first()?))?;
                left = &rest[1 + body.len()..];
                all.push((kind, body));
            }
        }
    }
    Some(all)
}

/// What stands for options of which one is damaged.
pub(super) const DAMAGED: &str = "?";

/// An option by numbers: `148=0:0`.
pub(super) fn in_bytes(kind: u8, body: &[u8]) -> String {
    let bytes: Vec<String> = body.iter().map(u8::to_string).collect();
    format!("{kind}{}{}", if body.is_empty() { "" } else { "=" }, bytes.join(":"))
}

/// An option by numbers, read; `None` where the text is none.
pub(super) fn of_bytes(text: &str) -> Option<Vec<u8>> {
    let (kind, body) = text.split_once('=').map_or((text, None), |(kind, body)| (kind, Some(body)));
    let mut option = vec![u8::read(kind).ok().filter(|kind| *kind > 1)?, 2];
    for byte in body.into_iter().flat_map(|body| body.split(':')) {
        option.push(u8::read(byte).ok()?);
    }
    option[1] = u8::try_from(option.len()).ok()?;
    Some(option)
}

/// The options of a field, or a point for none.
pub(super) fn joined(parts: &[String]) -> String {
    if parts.is_empty() { ".".into() } else { parts.join(";") }
}
