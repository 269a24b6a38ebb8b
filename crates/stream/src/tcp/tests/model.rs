//! The twin: a cell for each place of one stream, with the policy applied byte by byte.

use std::ops::Range;

use super::super::{Policy, Urgent};
use super::Item;

#[derive(Clone)]
struct Cell {
    byte: u8,
    is_urgent: bool,
    /// Bounds of the segment that it is from.
    bounds: Range<u64>,
}

pub(super) struct Twin {
    policy: Policy,
    urgent: Urgent,
    depth: u64,
    cells: Vec<Option<Cell>>,
    next: usize,
    offset: u64,
    fin: Option<usize>,
    is_stopped: bool,
    pub(super) items: Vec<Item>,
    /// Retransmissions, overlaps, segments out of order, conflicts.
    pub(super) counts: [u32; 4],
    pub(super) gap_bytes: u64,
}

impl Twin {
    pub(super) fn new(policy: Policy, urgent: Urgent, depth: u64, cells: usize) -> Self {
        Self {
            policy,
            urgent,
            depth,
            cells: vec![None; cells],
            next: 0,
            offset: 0,
            fin: None,
            is_stopped: false,
            items: Vec::new(),
            counts: [0; 4],
            gap_bytes: 0,
        }
    }

    pub(super) fn segment(&mut self, start: usize, bytes: &[u8], urgent: Option<usize>) {
        let end = (start + bytes.len()).min(self.fin.unwrap_or(usize::MAX));
        if self.is_stopped || start >= end && start < start + bytes.len() && self.fin <= Some(start)
        {
            return;
        }
        let is_ahead = start > self.next;
        let left = self.depth.saturating_sub(self.offset) as usize;
        let end = if is_ahead { end.min(self.next.saturating_add(left)) } else { end };
        self.is_stopped |= is_ahead && left == 0;
        if is_ahead && start >= end {
            return;
        }
        let bounds = start.max(self.next) as u64..end as u64;
        let (mut seen, mut new, mut is_conflict) = (start < self.next, false, false);
        for place in start.max(self.next)..end {
            let is_urgent = self.urgent == Urgent::Drop && urgent == Some(place - start);
            let cell = Cell { byte: bytes[place - start], is_urgent, bounds: bounds.clone() };
            match &mut self.cells[place] {
                None => {
                    new = true;
                    self.cells[place] = Some(cell);
                }
                Some(old) => {
                    seen = true;
                    is_conflict |= (old.byte, old.is_urgent) != (cell.byte, cell.is_urgent);
                    if self.policy.new_wins(&bounds, &old.bounds) {
                        *old = cell;
                    }
                }
            }
        }
        let found = [!new, new && seen, new && is_ahead, is_conflict];
        for (count, is_found) in self.counts.iter_mut().zip(found) {
            *count += u32::from(is_found);
        }
        self.serve();
    }

    fn serve(&mut self) {
        while let Some(Some(cell)) = self.cells.get(self.next).cloned() {
            if self.fin == Some(self.next) || self.is_stopped {
                return;
            }
            self.next += 1;
            if cell.is_urgent {
                continue;
            }
            if self.offset >= self.depth {
                self.is_stopped = true;
                return;
            }
            self.offset += 1;
            match self.items.last_mut() {
                Some(Item::Data(bytes)) => bytes.push(cell.byte),
                _ => self.items.push(Item::Data(vec![cell.byte])),
            }
        }
    }

    pub(super) fn acknowledge(&mut self, place: usize) {
        let place = place.min(self.fin.unwrap_or(usize::MAX));
        while self.next < place && !self.is_stopped {
            if self.cells[self.next].is_none() {
                self.next += 1;
                self.offset += 1;
                self.gap_bytes += 1;
                match self.items.last_mut() {
                    Some(Item::Gap(bytes)) => *bytes += 1,
                    _ => self.items.push(Item::Gap(1)),
                }
            }
            self.serve();
        }
    }

    pub(super) fn finish(&mut self, place: usize) {
        if self.fin.is_none() && place >= self.next {
            self.fin = Some(place);
            self.cells[place..].fill(None);
        }
    }

    pub(super) fn close(&mut self) {
        let last = self.cells.iter().rposition(Option::is_some).map_or(0, |place| place + 1);
        self.acknowledge(last.max(self.fin.unwrap_or(0)));
    }
}
