//! Which sessions end: those that are idle, and those that make room for others.

use stream::table::{Class as FlowClass, Slot, YIELDING_COMPARED};

use super::{EXPECTED_S, Hot, IDLE, Kind, Translator};

impl Translator {
    /// The session that makes room for a new one, by its original entry: it is worth less. `None`: all are worth as much.
    #[cold]
    pub(super) fn least(&self, now_s: u32) -> Option<Slot> {
        let closed = self.table.oldest(FlowClass::Closed);
        if let Some(slot) = closed.or_else(|| self.table.oldest(FlowClass::HalfOpen)) {
            return Some(slot);
        }
        let first = self.table.oldest(FlowClass::Yielding)?;
        let idle_s =
            |slot: Slot| self.table.get(slot).map_or(0, |hot| self.idle_s(slot, *hot, now_s));
        let next = |slot: &Slot| self.table.next_oldest(*slot);
        let mut idlest = (first, idle_s(first));
        for slot in std::iter::successors(next(&first), next).take(YIELDING_COMPARED - 1) {
            let idle_s = idle_s(slot);
            if idle_s > idlest.1 {
                idlest = (slot, idle_s);
            }
        }
        Some(idlest.0)
    }

    /// Ends [that session](Self::least), when nothing else is in the way of the new one.
    pub(super) fn make_room(&mut self, least: Slot) {
        if self.table.class(least) == Some(FlowClass::Yielding)
            && let Some(first) = self.table.oldest(FlowClass::Yielding)
            && first != least
        {
            // Others are compared next time.
            self.table.renew(first);
        }
        self.counts.given_up += 1;
        self.end(least);
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
