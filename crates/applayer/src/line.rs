//! Lines of a side, one at a time.

/// The line that is being read.
#[derive(Debug, Default)]
pub(crate) struct Line {
    text: Vec<u8>,
    /// Bytes beyond the limit were left out.
    is_cut: bool,
    is_whole: bool,
}

impl Line {
    /// Bytes that it holds.
    pub(crate) fn held(&self) -> usize {
        self.text.capacity()
    }

    /// Takes bytes up to the end of the line; how many.
    pub(crate) fn feed(&mut self, bytes: &[u8], limit: usize) -> usize {
        if std::mem::take(&mut self.is_whole) {
            self.text.clear();
            self.is_cut = false;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |at| at + 1);
        let text = &bytes[..end.unwrap_or(bytes.len())];
        let room = limit.saturating_sub(self.text.len());
        self.text.extend_from_slice(&text[..text.len().min(room)]);
        self.is_cut |= text.len() > room;
        self.is_whole = end.is_some();
        taken
    }

    /// The line without its end, when it is whole, and whether it was longer than the limit.
    pub(crate) fn whole(&self) -> Option<(&[u8], bool)> {
        let text = self.text.strip_suffix(b"\r").unwrap_or(&self.text);
        self.is_whole.then_some((text, self.is_cut))
    }

    /// The bytes of a line that is not whole.
    pub(crate) fn rest(&self) -> &[u8] {
        if self.is_whole { &[] } else { &self.text }
    }

    /// Forgets what there is of the line.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_pieces() {
        let text = b"ab\r\n\nlonger\nrest";
        for size in 1..=text.len() {
            let (mut line, mut found) = (Line::default(), Vec::new());
            for mut piece in text.chunks(size) {
                while !piece.is_empty() {
                    piece = &piece[line.feed(piece, 5)..];
                    found.extend(line.whole().map(|(text, is_cut)| (text.to_vec(), is_cut)));
                }
            }
            let expected = [(b"ab".to_vec(), false), (vec![], false), (b"longe".to_vec(), true)];
            assert_eq!(found, expected, "{size}");
            assert_eq!(line.rest(), b"rest");
        }
    }
}
