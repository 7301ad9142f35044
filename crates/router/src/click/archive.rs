//! Archives of ar(1), in which programs of Click put a configuration beside code that it needs.

/// Text of the member `config` of an archive; `None` for other texts.
pub(super) fn config(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix("!<arch>\n")?;
    loop {
        // Bytes 0 to 15 of a header have the name, 48 to 57 the size.
        let (header, data) = rest.split_at_checked(60)?;
        let size: usize = header.get(48..58)?.trim().parse().ok()?;
        if header.get(..16)?.trim_end().trim_end_matches('/') == "config" {
            return data.get(..size);
        }
        // Members begin at even places.
        rest = data.get(size.checked_add(size % 2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::config;

    #[test]
    fn an_archive_has_a_member_with_the_configuration() {
        let member = |name: &str, text: &str| {
            let size = text.len();
            format!("{name:16}{:12}{:6}{:6}{:8}{size:<10}`\n{text}", 0, 0, 0, 100_644)
        };
        let text =
            format!("!<arch>\n{}\n{}", member("x/", "abc"), member("config/", "Idle -> Discard\n"));
        assert_eq!(config(&text), Some("Idle -> Discard\n"));
        assert_eq!(config(&format!("!<arch>\n{}", member("config", ""))), Some(""));
        for text in [
            "Idle -> Discard",
            "!<arch>\n",
            &text[..text.len() - 3],
            member("config", "x").as_str(),
        ] {
            assert_eq!(config(text), None, "{text}");
        }
    }
}
