//! Options of IPv4 and of TCP, which have one form: a kind, a length and a body (RFC 791, RFC 9293).

/// The options up to their end, or to one that is damaged: kind and body. Those that only fill space are left out.
pub(super) fn each(options: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut left = options;
    std::iter::from_fn(move || {
        loop {
            let (&kind, rest) = left.split_first()?;
            match kind {
                0 => return None,
                1 => left = rest,
                _ => {
                    let body = left.get(2..usize::from(*rest.first()?))?;
                    left = &rest[1 + body.len()..];
                    return Some((kind, body));
                }
            }
        }
    })
}

/// An option by numbers: `148=0:0`.
pub(super) fn in_bytes(kind: u8, body: &[u8]) -> String {
    let bytes: Vec<String> = body.iter().map(u8::to_string).collect();
    format!("{kind}{}{}", if body.is_empty() { "" } else { "=" }, bytes.join(":"))
}

/// The options of a field, or a point for none.
pub(super) fn joined(parts: &[String]) -> String {
    if parts.is_empty() { ".".into() } else { parts.join(";") }
}
