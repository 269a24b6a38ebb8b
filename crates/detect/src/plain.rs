//! The plain engine, to compare with: Aho and Corasick's automaton as a full table, walked byte by byte, case folded
//! (Aho, Corasick: Efficient String Matching, CACM 18(6), 1975). What differs in case alone is told apart by the checks.

use std::collections::VecDeque;

/// The next state is one at which literals end.
const ENDS: u32 = 1 << 31;

/// States are places in the table; those at which literals end have [`ENDS`].
#[derive(Debug)]
pub(crate) struct Table {
    /// By byte: its class. Bytes of no literal share one.
    classes: [u8; 256],
    next: Vec<u32>,
    width: usize,
    /// By state: where its literals begin in `ends`; one more at the end.
    starts: Vec<u32>,
    ends: Vec<u32>,
}

impl Table {
    /// Of literals in small letters, by number; none is empty.
    pub(crate) fn new(literals: &[Vec<u8>]) -> Self {
        let mut classes = [0; 256];
        let mut width = 1;
        for byte in literals.iter().flatten() {
            if classes[usize::from(*byte)] == 0 && width < 256 {
                classes[usize::from(*byte)] = width as u8;
                width += 1;
            }
        }
        for byte in b'A'..=b'Z' {
            classes[usize::from(byte)] = classes[usize::from(byte.to_ascii_lowercase())];
        }
        // The trie.
        let mut next = vec![0_u32; width];
        let mut own: Vec<Vec<u32>> = vec![Vec::new()];
        for (number, literal) in (0..).zip(literals) {
            let mut state = 0;
            for byte in literal {
                let at = state * width + usize::from(classes[usize::from(*byte)]);
                if next[at] == 0 {
                    next[at] = own.len() as u32;
                    own.push(Vec::new());
                    next.resize(next.len() + width, 0);
                }
                state = next[at] as usize;
            }
            own[state].push(number);
        }
        // States in the order of their depth: what is missing is that of the longest suffix.
        let mut suffix = vec![0_u32; own.len()];
        let mut queue: VecDeque<usize> =
            next[..width].iter().filter(|to| **to != 0).map(|to| *to as usize).collect();
        while let Some(state) = queue.pop_front() {
            let behind = suffix[state] as usize;
            let inherited = own[behind].clone();
            own[state].extend(inherited);
            for class in 0..width {
                let (at, other) = (state * width + class, next[behind * width + class]);
                match next[at] {
                    0 => next[at] = other,
                    to => {
                        suffix[to as usize] = other;
                        queue.push_back(to as usize);
                    }
                }
            }
        }
        for to in &mut next {
            let ends = if own[*to as usize].is_empty() { 0 } else { ENDS };
            *to = (*to * width as u32) | ends;
        }
        let mut starts = vec![0];
        let mut ends = Vec::new();
        for list in own {
            ends.extend(list);
            starts.push(ends.len() as u32);
        }
        Self { classes, next, width, starts, ends }
    }

    /// Walks on from a state, 0 at first; `hit` gets literals and where they end in the bytes.
    pub(crate) fn scan(&self, mut state: u32, bytes: &[u8], mut hit: impl FnMut(u32, u64)) -> u32 {
        for (end, byte) in (1..).zip(bytes) {
            let class = usize::from(self.classes[usize::from(*byte)]);
            state = self.next[(state & !ENDS) as usize + class];
            if state & ENDS != 0 {
                let at = (state & !ENDS) as usize / self.width;
                let own = self.starts[at] as usize..self.starts[at + 1] as usize;
                self.ends[own].iter().for_each(|number| hit(*number, end));
            }
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_wherever_they_are() {
        let literals: Vec<Vec<u8>> =
            ["a", "ab", "bab", "bc", "bca", "c", "\u{fe}x"].map(|s| s.as_bytes().to_vec()).into();
        let table = Table::new(&literals);
        let text = "ABccabZBABca\u{fe}Xbca".as_bytes();
        let mut expected = Vec::new();
        for end in 1..=text.len() {
            for (number, literal) in (0_u32..).zip(&literals) {
                if text[..end].to_ascii_lowercase().ends_with(literal) {
                    expected.push((end as u64, number));
                }
            }
        }
        for cut in 0..text.len() {
            let mut found = Vec::new();
            let state = table.scan(0, &text[..cut], |number, end| found.push((end, number)));
            let offset = cut as u64;
            table.scan(state, &text[cut..], |number, end| found.push((offset + end, number)));
            found.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}
