//! The end of all flows, when there is no more input.

use super::Tracker;
use super::flows::Hot;
use super::module::Module;
use crate::defrag;
use crate::record::Reason;
use crate::table::Flow;

/// After how many flows the module hears how far [`Tracker::finish`] has come.
const ENDS: usize = 1 << 12;

/// How many flows before their turn lines are asked for: first that of the table, which says where the others are.
const ASKED: usize = 16;

impl<M: Module> Tracker<M> {
    /// Ends all datagrams that are not whole, then all flows, in the order of the time of their end, their start and their number;
    /// `now_ns` is the time of the last packet of all workers.
    pub fn finish(&mut self, now_ns: u64) {
        self.expire_datagrams(now_ns);
        let (whole, module, config) =
            (&mut self.whole, &mut self.rest.module, &self.options.defrag);
        self.defrag.clear(&mut |output: defrag::Output<'_, u32>| {
            whole.take(output, now_ns, config, module);
        });
        // Copies of fragments that were passed on are no loss.
        if !self.options.confirms {
            self.counts.fragments_lost = self.whole.lost;
        }
        let (rest, table) = (&mut self.rest, &mut self.table);
        let end = |flow: Flow<'_, Hot>| (rest.end_of(flow.slot, *flow.hot, now_ns), flow.slot);
        let mut flows: Vec<_> = table.iter().map(end).collect();
        flows.sort_unstable();
        for (number, &(end, slot)) in flows.iter().enumerate() {
            if let Some((_, later)) = flows.get(number + 2 * ASKED) {
                table.prefetch(*later);
            }
            if let Some((_, soon)) = flows.get(number + ASKED) {
                table.prefetch_removal(*soon);
                rest.prefetch_end(*soon);
            }
            if number.is_multiple_of(ENDS) {
                rest.module.ends_from(end);
            }
            let Some((key, hot)) = table.remove(slot) else { continue };
            if hot.is_undecided {
                rest.forget(slot, hot);
                continue;
            }
            let is_over = rest.is_over(slot, hot, now_ns);
            match is_over {
                true => rest.time_out(slot, &key, hot),
                false => rest.end_at(slot, &key, hot, Reason::Shutdown, now_ns),
            }
        }
    }
}
