//! Packets that are looked up together: those of a batch that are neither fragments nor, but for a firewall, ICMP errors, and not
//! far apart in time.

use std::ops::Range;

use packet::{Decoded, IpProtocol};

use super::input::{Input, cause_of, is_plain, key_of, write_key};
use super::module::Module;
use super::{Options, Row, SPAN_NS, Tracker, Unkeyed};
use crate::key::FlowKey;
use crate::table::Found;

/// How many rows ahead payload is loaded whose checksum is verified.
const AHEAD: usize = 3;

/// Rows that are looked up together; [`Tracker`] has their keys.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    pub(super) rows: Range<usize>,
    /// Whether checksums of segments are verified once their flows are known.
    pub(super) defers: bool,
    pub(super) latest_ns: u64,
    pub(super) earliest_ns: u64,
}

/// Whether a packet is a fragment.
#[inline(always)]
pub(super) fn is_piece(input: &Input<'_>) -> bool {
    input.decoded.has(Decoded::FRAGMENT) && input.decoded.is_ip()
}

impl<M: Module> Tracker<M> {
    /// Keys of the first rows that are looked up together: there is one at least.
    #[inline(always)]
    pub(super) fn gather<'a>(
        &mut self,
        rows: Range<usize>,
        input: &impl Fn(usize) -> Input<'a>,
    ) -> Gathered {
        self.rows.clear();
        self.keys.clear();
        let defers = self.begin_passing();
        let (mut latest_ns, mut earliest_ns, mut begin_ns) = (0, u64::MAX, None);
        for row in rows.clone() {
            let packet = input(row);
            let begin_ns = *begin_ns.get_or_insert(packet.time_ns);
            if !defers && packet.checksums && packet.segment.is_none() && row + AHEAD < rows.end {
                interleave::prefetch(input(row + AHEAD).frame);
            }
            let is_alone = is_piece(&packet) || self.is_lone_error(&packet);
            if is_alone || packet.time_ns.abs_diff(begin_ns) > SPAN_NS {
                break;
            }
            self.keys.push(FlowKey::NONE);
            let Some(key) = self.keys.last_mut() else { break };
            self.rows.push(match defers && is_plain(&packet, &self.options) {
                true => Row { side: write_key(&packet, key), is_unchecked: true, ..Row::NONE },
                false => Self::of_row(&self.options, &packet, defers, key),
            });
            latest_ns = latest_ns.max(packet.time_ns);
            earliest_ns = earliest_ns.min(packet.time_ns);
        }
        // All answers are written by the search.
        self.found.resize(self.rows.len(), Found::NONE);
        let rows = rows.start..rows.start + self.rows.len();
        Gathered { rows, defers, latest_ns, earliest_ns }
    }

    /// What is known of a packet before its flow is looked up; an ICMP error belongs to the flow of what it quotes, where flows
    /// are tracked for a firewall.
    #[inline(always)]
    pub(super) fn of_row(
        options: &Options,
        input: &Input<'_>,
        defers: bool,
        key: &mut FlowKey,
    ) -> Row {
        let none = |why| Row { none: Some(why), ..Row::NONE };
        let side = match key_of(input, options, defers, key) {
            Ok(side) => side,
            Err(why) => {
                *key = FlowKey::NONE;
                return none(Unkeyed::Rejected(why));
            }
        };
        if !options.confirms || !packet::quoted::is_error_packet(input.decoded) {
            let is_segment = input.decoded.protocol == IpProtocol::TCP;
            let is_unchecked = defers && is_segment && input.segment.is_none();
            return Row { side, is_unchecked, ..Row::NONE };
        }
        let Some(((cause, side), sequence)) = cause_of(input, options) else {
            *key = FlowKey::NONE;
            return none(Unkeyed::AboutNothing);
        };
        *key = cause;
        Row { side, about: Some(sequence), ..Row::NONE }
    }

    /// The same of a single packet.
    pub(super) fn of_one(&self, input: &Input<'_>) -> Result<(FlowKey, Row), Unkeyed> {
        let mut key = FlowKey::NONE;
        let row = Self::of_row(&self.options, input, false, &mut key);
        row.none.map_or(Ok((key, row)), Err)
    }
}
