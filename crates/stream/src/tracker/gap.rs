//! Times of the table wrap around after seven weeks ([`flowtable`]): a flow that no sweep has found for so long would be taken for a
//! new one. Sweeps go on by pieces, with packets; over captures few packets may span years. So the whole table is swept at once where
//! pieces have not come round for twelve days of the packets' time.

use super::timeouts::ms_of;
use super::{LATE_NS, Module, Tracker};
use crate::table::Slot;

/// So long after the last time, the whole table is swept: a quarter of what its times can tell apart.
const GAP_NS: u64 = 12 * 86_400 * 1_000_000_000;

impl<M: Module> Tracker<M> {
    /// When the table sees flows of which there is a packet at `time_ns`: not before the latest packet, so that no sweep finds a
    /// flow idle whose packets come with earlier times.
    pub(super) fn seen_ms(&mut self, time_ns: u64) -> u32 {
        self.note_time(time_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
        ms_of(self.latest_ns)
    }

    /// Time has come as far as this: of a packet, or of a sweep where no packet was looked up lately.
    #[inline(always)]
    pub(super) fn note_time(&mut self, time_ns: u64) {
        let crossed_ns = *self.crossed_ns.get_or_insert(time_ns);
        if time_ns.saturating_sub(crossed_ns) > GAP_NS {
            self.cross_gap(time_ns);
            self.crossed_ns = Some(time_ns);
        }
    }

    /// What a sweep would find idle before this time has ended. A caller that began a sweep before a gap goes on with a time which the
    /// table could not tell from a later one.
    pub(super) fn swept_ns(&self) -> u64 {
        self.crossed_ns.map_or(0, |crossed_ns| crossed_ns.saturating_sub(LATE_NS))
    }

    /// A flow is decided only now. No sweep has ended it meanwhile, not even that of a [gap](Self::cross_gap).
    pub(super) fn note_gap(&mut self, slot: Slot) {
        let end_ns = self.rest.latest(slot);
        if self.latest_ns.saturating_sub(end_ns) > GAP_NS {
            self.table.set_seen(slot, ms_of(self.latest_ns - GAP_NS));
        }
    }

    /// A sweep has come to the end of the table: all of it was swept since the end before.
    pub(super) fn note_round(&mut self, now_ns: u64) {
        if let Some(before_ns) = self.round_ns.replace(now_ns) {
            self.crossed_ns =
                self.crossed_ns.map(|crossed_ns| crossed_ns.max(before_ns.min(now_ns)));
        }
    }

    /// What was idle up to `time_ns` ends. The first sweep is for flows that others have not come to yet; the next ones go as far as
    /// the table can tell times apart, for flows that were seen last.
    #[cold]
    fn cross_gap(&mut self, time_ns: u64) {
        for gap_ns in [0, GAP_NS, 2 * GAP_NS] {
            let until_ns = self.latest_ns.saturating_add(gap_ns).min(time_ns);
            // From where the last piece ended, and then the part before.
            for _ in 0..2 {
                while !self.sweep_piece(usize::MAX, until_ns.saturating_sub(LATE_NS)) {}
            }
        }
    }
}
