//! Things by number.
//!
//! A number holds the place (low 24 bits) and how often the place has been reused (high 8 bits): a number
//! kept for too long finds nothing, or (after 256 reuses of its place) something newer, never bad memory.

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<(u8, Option<T>)>,
    idle: Vec<u32>,
}

const PLACE_BITS: u32 = 24;
const PLACES_MAX: usize = 1 << PLACE_BITS;

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), idle: Vec::new() }
    }

    /// Whether another thing has no place.
    pub(crate) fn is_full(&self) -> bool {
        self.idle.is_empty() && self.entries.len() >= PLACES_MAX
    }

    /// Keeps `value` and returns its number. Ask [`Slots::is_full`] before.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        debug_assert!(!self.is_full());
        let place = self.idle.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            self.entries.len() as u32 - 1
        });
        let (reuse, entry) = &mut self.entries[place as usize];
        *entry = Some(value);
        u32::from(*reuse) << PLACE_BITS | place
    }

    fn place(&self, number: u32) -> Option<usize> {
        let place = number as usize & (PLACES_MAX - 1);
        let (reuse, _) = self.entries.get(place)?;
        (u32::from(*reuse) == number >> PLACE_BITS).then_some(place)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries[self.place(number)?].1.as_ref()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.place(number)?;
        let (reuse, entry) = &mut self.entries[place];
        let value = entry.take()?;
        *reuse = reuse.wrapping_add(1);
        self.idle.push(place as u32);
        Some(value)
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.idle.clear();
        self.entries.drain(..).filter_map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_something_removed_finds_nothing_although_its_place_is_taken_again() {
        let mut slots = Slots::new();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert_eq!(slots.remove(a), Some('a'));
        let c = slots.insert('c');
        assert_eq!(c as usize & (PLACES_MAX - 1), a as usize, "the place is taken again");
        assert_eq!(slots.get(a), None);
        assert_eq!(slots.remove(a), None);
        assert_eq!((slots.get(b), slots.get(c)), (Some(&'b'), Some(&'c')));
        assert_eq!(slots.get(77), None);
        assert_eq!(slots.drain().collect::<String>(), "cb");
    }
}
