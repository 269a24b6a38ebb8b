//! Which sessions end: those that are idle, and those that make room for others.

use stream::table::{Class as FlowClass, Slot, YIELDING_COMPARED};

use super::{EXPECTED_S, Hot, IDLE, Kind, Translator};

impl Translator {
    /// Ends a session that is worth less than a new one; whether there was one.
    #[cold]
    pub(super) fn make_room(&mut self, now_s: u32) -> bool {
        let closed = self.table.oldest(FlowClass::Closed);
        let slot = match closed.or_else(|| self.table.oldest(FlowClass::HalfOpen)) {
            Some(slot) => slot,
            None => {
                let Some(first) = self.table.oldest(FlowClass::Yielding) else { return false };
                let idle_s = |slot: Slot| {
                    self.table.get(slot).map_or(0, |hot| self.idle_s(slot, *hot, now_s))
                };
                let next = |slot: &Slot| self.table.next_oldest(*slot);
                let mut idlest = (first, idle_s(first));
                let others = std::iter::successors(next(&first), next);
                for slot in others.take(YIELDING_COMPARED - 1) {
                    let idle_s = idle_s(slot);
                    if idle_s > idlest.1 {
                        idlest = (slot, idle_s);
                    }
                }
                if idlest.0 != first {
                    self.table.renew(first);
                }
                idlest.0
            }
        };
        self.counts.given_up += 1;
        self.end(slot);
        true
    }

    /// Ends idle sessions among the next `entries` entries; whether the end of the table was reached. It reads the times of
    /// entries, and the entries that may be idle.
    pub fn sweep(&mut self, entries: usize, now_s: u32) -> bool {
        self.idle.clear();
        let shortest = self.options.timeouts.shortest().min(EXPECTED_S);
        let mut next = (self.hand as usize).saturating_add(entries);
        for slot in self.table.idle_from(Slot(self.hand), entries, now_s, shortest) {
            let Some(hot) = self.table.get(slot).copied() else { continue };
            if hot.kind == Kind::Expected {
                let seen_s = self.table.seen(slot).unwrap_or(0);
                if now_s.saturating_sub(seen_s) >= EXPECTED_S {
                    self.idle.push(slot);
                }
            }
            if hot.kind != Kind::Original {
                continue;
            }
            let protocol = self.table.key(slot).map_or(0, |key| key.protocol);
            let timeout = self.options.timeouts.of(protocol, hot.flags);
            let idle_s = self.idle_s(slot, hot, now_s);
            let seen_s = now_s - idle_s;
            if idle_s >= timeout {
                self.idle.push(slot);
            } else if self.table.seen(slot).is_some_and(|seen| seen < seen_s) {
                // The next sweeps pass it over.
                self.alive.push((slot, seen_s));
            }
            if self.idle.len().max(self.alive.len()) == IDLE {
                next = slot.index() + 1;
                break;
            }
        }
        for (slot, seen_s) in self.alive.drain(..) {
            self.table.set_seen(slot, seen_s);
        }
        while let Some(slot) = self.idle.pop() {
            if self.table.get(slot).is_some_and(|hot| hot.kind == Kind::Expected) {
                self.end_expected(slot);
                continue;
            }
            self.counts.expired += 1;
            self.end(slot);
        }
        let is_end = next >= self.table.used();
        self.hand = if is_end { 0 } else { next as u32 };
        is_end
    }

    /// Seconds since the last packet of a session either way. Time that runs back counts as none.
    pub(super) fn idle_s(&self, slot: Slot, hot: Hot, now_s: u32) -> u32 {
        let idle_s = |seen: u32| now_s.saturating_sub(seen);
        let of = |slot: Slot| idle_s(self.table.seen(slot).unwrap_or(0));
        let cached = self.plain(slot).map(|own| self.last(own));
        let cached = cached.into_iter().flatten().map(|last| idle_s(last.seen_s())).min();
        let cached = cached.unwrap_or(u32::MAX);
        of(slot).min(of(Slot(hot.other))).min(cached)
    }
}
