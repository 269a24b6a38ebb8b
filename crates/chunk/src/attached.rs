//! Bytes that a stage attaches to packets of a chunk, for kernels and later stages: they travel with the payload.
//!
//! ```text
//!  payload of a job   │ frame, zeros │ attached, zeros │ frame, zeros │ frame, zeros │ attached, zeros │ …
//!                       row 0          to row 0          row 1          row 2          to row 2
//! ```
//!
//! Both start at multiples of 16 bytes, so a kernel finds what is attached by place and length of the frame. Few packets
//! have something, such as those that fill a hole in a TCP stream and bring the bytes that waited for them.
//!
//! Memory is kept from chunk to chunk, and grows with what stages attach; they bound that.

use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub struct Attached {
    bytes: Vec<u8>,
    /// Row and place in `bytes`, by ascending rows.
    places: Vec<(u16, Range<u32>)>,
}

impl Attached {
    /// Whether no packet has anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Forgets everything; the memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Attaches bytes to the packet of `row`, behind those that it has. `false`, and nothing has changed, if a later row
    /// has something already, or all of it together would be more than 4 GiB.
    pub fn push(&mut self, row: usize, bytes: &[u8]) -> bool {
        let begin = self.bytes.len();
        let (Ok(row), Ok(begin), Ok(end)) =
            (u16::try_from(row), u32::try_from(begin), u32::try_from(begin + bytes.len()))
        else {
            return false;
        };
        match self.places.last_mut() {
            Some((last, _)) if *last > row => return false,
            Some((last, place)) if *last == row => place.end = end,
            _ => self.places.push((row, begin..end)),
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// What is attached to the packet of a row; nothing is an empty slice.
    pub fn of(&self, row: usize) -> &[u8] {
        let at = self.places.binary_search_by_key(&row, |(own, _)| usize::from(*own));
        at.map_or(&[], |at| self.at(&self.places[at].1))
    }

    /// Rows that have something, in their order, and what.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.places.iter().map(|(row, place)| (usize::from(*row), self.at(place)))
    }

    fn at(&self, place: &Range<u32>) -> &[u8] {
        &self.bytes[place.start as usize..place.end as usize]
    }

    /// Moves what rows from `row` on have to `rest`, which is empty and counts its rows from there.
    pub fn split_off(&mut self, row: usize, rest: &mut Self) {
        let kept = self.places.partition_point(|(own, _)| usize::from(*own) < row);
        for (own, place) in &self.places[kept..] {
            rest.push(usize::from(*own) - row, self.at(place));
        }
        if let Some((_, first)) = self.places.get(kept) {
            self.bytes.truncate(first.start as usize);
        }
        self.places.truncate(kept);
    }

    /// Moves what `rows`, in ascending order, have to `rest`, which is empty and counts them from its first row on. The others close
    /// up.
    pub fn move_rows(&mut self, rows: &[u16], rest: &mut Self) {
        if self.is_empty() {
            return;
        }
        let all = std::mem::take(self);
        for (row, bytes) in all.iter() {
            let before = rows.partition_point(|own| usize::from(*own) < row);
            let is_moved = rows.get(before).is_some_and(|own| usize::from(*own) == row);
            let (to, row) =
                if is_moved { (&mut *rest, before) } else { (&mut *self, row - before) };
            to.push(row, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A list of vectors does the same.
        #[test]
        fn rows_have_what_was_attached(
            pushed in prop::collection::vec((0usize..40, prop::collection::vec(any::<u8>(), 0..5)), 0..30),
            cut in 0usize..40,
            moves in any::<u64>(),
        ) {
            let (mut own, mut plain) = (Attached::default(), vec![Vec::new(); 40]);
            let mut last = 0;
            for (row, bytes) in &pushed {
                let is_in_order = *row >= last;
                prop_assert_eq!(own.push(*row, bytes), is_in_order);
                if is_in_order {
                    last = *row;
                    plain[*row].extend_from_slice(bytes);
                }
            }
            let of = |own: &Attached| (0..40).map(|row| own.of(row).to_vec()).collect::<Vec<_>>();
            prop_assert_eq!(of(&own), plain.clone());
            let mut rest = Attached::default();
            own.split_off(cut, &mut rest);
            let mut first = plain.clone();
            first[cut..].fill(Vec::new());
            prop_assert_eq!(of(&own), first);
            let behind: Vec<_> = plain[cut..].to_vec();
            prop_assert_eq!(&of(&rest)[..40 - cut], &behind[..]);
            prop_assert!(rest.iter().all(|(row, bytes)| behind[row] == bytes));
            own.clear();
            prop_assert!(own.is_empty() && own.of(cut).is_empty());
            let mut own = Attached::default();
            for (row, bytes) in plain.iter().enumerate() {
                prop_assert!(own.push(row, bytes));
            }
            let moved: Vec<u16> = (0..40).filter(|row| moves >> row & 1 == 1).collect();
            let mut rest = Attached::default();
            own.move_rows(&moved, &mut rest);
            let of_row = |row: &u16| plain[usize::from(*row)].clone();
            let kept = (0..40).filter(|row| moves >> row & 1 == 0).map(|row: u16| of_row(&row));
            let kept: Vec<_> = kept.collect();
            prop_assert_eq!(&of(&own)[..kept.len()], &kept[..]);
            let moved: Vec<_> = moved.iter().map(of_row).collect();
            prop_assert_eq!(&of(&rest)[..moved.len()], &moved[..]);
        }
    }
}
