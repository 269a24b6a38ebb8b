//! What was written into a stream of bytes instead of others, and what sequence numbers became by it.
//!
//! ```text
//!  as its sender counts   ──────┬── old ──┬───────────────▶
//!                               │ at      │
//!  as its receiver counts ──────┴── text ────┬────────────▶     numbers behind it differ by the lengths
//! ```
//!
//! Numbers wrap around, so they are compared by their distance (RFC 9293 §3.4). Edits that the receiver has acknowledged make
//! room for others; of those only the difference is kept.
//!
//! The behaviour is that of Linux's `nf_nat_seqadj`, with several edits under way instead of one.

/// Bytes of a text at most: `|1|255.255.255.255|65535|`.
pub const TEXT_MAX: usize = 26;

/// Edits that are kept.
const KEPT: usize = 8;

/// Edits further back are only a difference, so that numbers that wrap around do not reach them.
const FAR: u32 = 1 << 30;

/// Bytes that others take the place of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    at: u32,
    old: u8,
    len: u8,
    text: [u8; TEXT_MAX],
}

impl Edit {
    /// `text` instead of the `old` bytes at `at`; `None` if one is too long.
    pub fn new(at: u32, old: usize, text: &[u8]) -> Option<Self> {
        let mut own = Self { at, old: u8::try_from(old).ok()?, len: 0, text: [0; TEXT_MAX] };
        own.text.get_mut(..text.len())?.copy_from_slice(text);
        own.len = text.len() as u8;
        Some(own)
    }

    /// Its first byte, as the sender counts.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// The byte behind those that were there, as the sender counts.
    pub fn end(&self) -> u32 {
        self.at.wrapping_add(u32::from(self.old))
    }

    /// Bytes that were there.
    pub fn old_len(&self) -> usize {
        self.old.into()
    }

    /// What is there now.
    pub fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }

    fn difference(&self) -> u32 {
        u32::from(self.len).wrapping_sub(self.old.into())
    }
}

/// How far `a` is behind `b`; negative: before it.
pub(crate) const fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// The edits of a stream, in its order.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// The difference of all that are not kept.
    base: u32,
    count: usize,
    all: [Edit; KEPT],
}

impl Edits {
    /// Those that are kept, in order.
    pub fn kept(&self) -> &[Edit] {
        &self.all[..self.count]
    }

    /// Whether nothing was ever edited.
    pub fn is_none(&self) -> bool {
        self.count == 0 && self.base == 0
    }

    /// Whether there is room for another one. `acked`: what the receiver has acknowledged, as the sender counts.
    pub fn has_room(&self, acked: u32) -> bool {
        self.count < KEPT || distance(acked, self.all[0].end()) >= 0
    }

    /// Adds one behind all others; `false`: [there is no room](Self::has_room).
    pub fn push(&mut self, edit: Edit, acked: u32) -> bool {
        if !self.has_room(acked) {
            return false;
        }
        if self.count == KEPT {
            self.drop_first();
        }
        self.all[self.count] = edit;
        self.count += 1;
        true
    }

    /// Keeps no edit that is far before `next`.
    pub fn forget_far(&mut self, next: u32) {
        while self.count > 0 && next.wrapping_sub(self.all[0].at) > FAR {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        self.base = self.base.wrapping_add(self.all[0].difference());
        self.all.copy_within(1.., 0);
        self.count -= 1;
    }

    /// A number of the sender as the receiver counts.
    pub fn there(&self, number: u32) -> u32 {
        let before = self.kept().iter().take_while(|edit| distance(number, edit.end()) >= 0);
        before.fold(number.wrapping_add(self.base), |sum, edit| sum.wrapping_add(edit.difference()))
    }

    /// A number of the receiver as the sender counts. One within a text is the first of the bytes that were there: the sender
    /// must not take for received what was received in part.
    pub fn back(&self, number: u32) -> u32 {
        let mut difference = self.base;
        for edit in self.kept() {
            let first = edit.at.wrapping_add(difference);
            if distance(number, first) <= 0 {
                break;
            }
            if distance(number, first.wrapping_add(edit.len.into())) < 0 {
                return edit.at;
            }
            difference = difference.wrapping_add(edit.difference());
        }
        number.wrapping_sub(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        /// A list of every byte with its number on both sides says the same.
        #[test]
        fn numbers_agree_with_a_list_of_all_bytes(
            first: u32, near_wrap: bool, spans in prop::collection::vec((0usize..30, 1usize..36, 1usize..=TEXT_MAX), 0..8),
            behind in 0usize..40,
        ) {
            let first = if near_wrap { 0u32.wrapping_sub(first % 200) } else { first };
            let mut edits = Edits::default();
            // For each byte of the receiver, the byte of the sender that it stands for; and the other way round.
            let (mut back, mut there) = (Vec::new(), Vec::new());
            for (pause, old, len) in spans {
                for _ in 0..pause {
                    back.push(there.len());
                    there.push(Some(back.len() - 1));
                }
                let at = there.len();
                let edit = Edit::new(first.wrapping_add(at as u32), old, &vec![b'x'; len]).unwrap();
                prop_assert!(edits.push(edit, first));
                back.extend((0..len).map(|_| at));
                let begin = back.len() - len;
                there.extend((0..old).map(|place| (place == 0).then_some(begin)));
            }
            for _ in 0..=behind {
                back.push(there.len());
                there.push(Some(back.len() - 1));
            }
            for (number, of) in back.iter().enumerate() {
                let own = edits.back(first.wrapping_add(number as u32));
                prop_assert_eq!(own, first.wrapping_add(*of as u32), "{}", number);
            }
            for (number, to) in there.iter().enumerate() {
                let Some(to) = to else { continue };
                let own = edits.there(first.wrapping_add(number as u32));
                prop_assert_eq!(own, first.wrapping_add(*to as u32), "{}", number);
            }
            // What is only a difference is one for all that comes behind.
            let end = first.wrapping_add(there.len() as u32);
            let known = edits.there(end);
            edits.forget_far(end.wrapping_add(FAR + 1));
            prop_assert!(edits.kept().is_empty());
            prop_assert_eq!((edits.there(end), edits.back(known)), (known, end));
        }
    }

    #[test]
    fn there_is_room_for_what_is_not_acknowledged() {
        let mut edits = Edits::default();
        for at in 0..KEPT as u32 {
            assert!(edits.push(Edit::new(at * 100, 4, b"123456").unwrap(), 0));
        }
        let more = Edit::new(900, 4, b"123456").unwrap();
        assert!(!edits.push(more, 3) && edits.push(more, 4));
        assert_eq!((edits.there(2000), edits.back(2018)), (2018, 2000));
        assert_eq!(Edit::new(1, 256, b""), None);
        assert_eq!(Edit::new(1, 1, &[b'x'; TEXT_MAX + 1]), None);
    }
}
