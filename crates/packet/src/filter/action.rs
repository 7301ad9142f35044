//! An entry of `IPFilter`: what is to be done with the packets that an expression takes.

use super::{Condition, FilterError, expression, offset_in};

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It leaves by output 0.
    Allow,
    /// It ends here: as `Drop`. It was output 1 in the first versions of Click, where there is one.
    Deny,
    /// It ends here.
    Drop,
    /// It leaves by this output.
    Output(u16),
}

impl Action {
    /// The output that it means; `None` to drop.
    pub fn output(self) -> Option<u16> {
        match self {
            Self::Allow => Some(0),
            Self::Deny | Self::Drop => None,
            Self::Output(output) => Some(output),
        }
    }
}

/// `ACTION EXPRESSION`: `allow src 10.0.0.0/8`, `deny all`, `2 tcp port 80`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What becomes of the packets.
    pub action: Action,
    /// Which packets.
    pub condition: Condition,
}

impl Entry {
    /// Reads an entry.
    ///
    /// # Errors
    /// Where it is wrong, and what was expected.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let trimmed = text.trim_ascii_start();
        let len = trimmed.find(|c: char| c.is_ascii_whitespace()).unwrap_or(trimmed.len());
        let (word, rest) = trimmed.split_at(len);
        let digits = word.bytes().all(|byte| byte.is_ascii_digit());
        let action = match word {
            "allow" => Action::Allow,
            "deny" => Action::Deny,
            "drop" => Action::Drop,
            _ => match word.parse().ok().filter(|number| digits && *number < u16::MAX) {
                Some(output) => Action::Output(output),
                None => {
                    let words = "expected `allow`, `deny`, `drop` or the number of an output";
                    return Err(FilterError::new(offset_in(text, word), words));
                }
            },
        };
        let shifted = |error: FilterError| {
            let start = offset_in(text, rest);
            FilterError::new(start + error.at, error.message)
        };
        let condition = Condition(expression::parse(rest).map_err(shifted)?);
        Ok(Self { action, condition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_and_their_outputs() {
        let action = |text: &str| Entry::parse(text).map(|entry| entry.action);
        assert_eq!(action("allow all"), Ok(Action::Allow));
        assert_eq!(action(" deny src 10.0.0.0/8"), Ok(Action::Deny));
        assert_eq!(action("drop\ttcp"), Ok(Action::Drop));
        assert_eq!(action("3 udp"), Ok(Action::Output(3)));
        let outputs =
            [Action::Allow, Action::Deny, Action::Drop, Action::Output(1)].map(Action::output);
        assert_eq!(outputs, [Some(0), None, None, Some(1)]);
    }

    #[test]
    fn errors_name_the_place_in_the_whole() {
        let error = |text: &str| Entry::parse(text).unwrap_err();
        for text in ["", "permit all", "-1 all", "65535 all", "+1 all"] {
            let want = "expected `allow`, `deny`, `drop` or the number of an output";
            assert_eq!((error(text).at, error(text).message.as_str()), (0, want));
        }
        assert_eq!(error(" allow tcp port x").at, 16);
        assert_eq!(error("allow").at, 5);
    }
}
