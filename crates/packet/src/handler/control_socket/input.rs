//! Bytes of a client, taken apart into lines and data.
//!
//! A line ends with CR, LF or both. A CR ends it at once, whether an LF comes or not, so that nobody
//! waits for it; the LF is passed over where it comes. No byte is looked at twice in search of an end.

/// A line is longer than it may be; the rest of it is passed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooLong;

#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// What is before this was given out.
    start: usize,
    /// Offset before which no line ends.
    searched: usize,
    /// The last line ended with a CR, whose LF has not come.
    after_cr: bool,
    /// Up to the end of the line nothing counts.
    skipping: bool,
    ended: bool,
}

impl Input {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend(bytes);
    }

    /// Nothing more will come.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Nothing is left and nothing will come.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.start == self.bytes.len()
    }

    /// The next line without its end. `None`: it is not whole.
    pub(super) fn line(&mut self, longest: usize) -> Option<Result<Vec<u8>, TooLong>> {
        loop {
            self.pass_lf();
            self.searched = self.searched.max(self.start);
            let ends = |&byte: &u8| byte == b'\r' || byte == b'\n';
            let found = self.bytes[self.searched..].iter().position(ends);
            let end = found.map_or(self.bytes.len(), |at| self.searched + at);
            let whole = found.is_some() || self.ended;
            let line = self.start..end;
            let skipped = self.skipping;
            if !skipped && line.len() > longest {
                self.skipping = true;
                self.searched = end;
                return Some(Err(TooLong));
            }
            if !whole || self.start == self.bytes.len() {
                self.searched = end;
                if skipped {
                    self.start = end;
                }
                return None;
            }
            let line = self.bytes[line].to_vec();
            self.start = end;
            if found.is_some() {
                self.after_cr = self.bytes[end] == b'\r';
                self.start += 1;
            }
            self.searched = self.start;
            self.skipping = false;
            if !skipped {
                return Some(Ok(line));
            }
        }
    }

    /// Gives out at most so many bytes; how many they were.
    pub(super) fn bytes(&mut self, most: usize, give: impl FnOnce(&[u8])) -> usize {
        if most == 0 {
            return 0;
        }
        self.pass_lf();
        let end = self.start.saturating_add(most).min(self.bytes.len());
        let given = self.start..end;
        give(&self.bytes[given.clone()]);
        self.start = end;
        self.searched = self.searched.max(end);
        given.len()
    }

    fn pass_lf(&mut self) {
        if let Some(&byte) = self.bytes.get(self.start).filter(|_| self.after_cr) {
            self.after_cr = false;
            self.start += usize::from(byte == b'\n');
        }
    }
}
