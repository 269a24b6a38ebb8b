//! The usual chunk: stages share records of headers, no tunnel is looked into, and no fragment is held back.
//!
//! It does what the way of all chunks does, but for what such a chunk has not, and reads records where they are: copies of them are
//! 16 KB of a first-level cache.

use chunk::{CHUNK_PACKETS_MAX, Columns, Packet, Rows};
use engine::Context;
use packet::Decoded;
use packet::checksum::Checksums;
use stream::Tracker;
use stream::tracker::Input;

use super::super::columns::{self, SharedColumns, SharedView};
use super::super::follow::Followers;
use super::{AHEAD_MIN, Flow};
use crate::{received, records};

impl Flow {
    /// Tracks the packets of the rows that are looked at, as far as none has to wait; the latest of their times, 0 without any.
    pub(super) fn track_records<T>(
        &mut self,
        packets: &[Packet],
        rows: &mut Rows,
        owned: &mut Tracker<Followers>,
        states: &mut [u64; 8],
        cx: &mut Context<'_, T>,
    ) -> u64 {
        let (mut first, mut latest_ns) = (0, 0);
        while let Some(piece) = self.rows.get(first..).filter(|rest| !rest.is_empty()) {
            let piece = &piece[..piece.len().min(self.ahead)];
            let SharedView { flow_state, flow_slot, flow_opens, record, record_is_known, .. } =
                SharedColumns::view(rows);
            let none = Decoded::default();
            let mut heads = [&none; CHUNK_PACKETS_MAX];
            let mut wanted = piece.iter().map(|row| usize::from(*row)).zip(&mut heads).peekable();
            for (row, (words, is_known)) in record.iter_mut().zip(record_is_known).enumerate() {
                let Some((_, head)) = wanted.next_if(|(next, _)| *next == row) else { continue };
                if let Some(own) = records::of_row(words, is_known, &packets[row]) {
                    *head = own;
                }
            }
            self.places.clear();
            self.linear.clear();
            for (at, row) in piece.iter().enumerate() {
                let packet = &packets[usize::from(*row)];
                if packet.cells() > 1 {
                    let begin = self.linear.len();
                    packet.segments().for_each(|own| self.linear.extend_from_slice(own));
                    self.places.resize(at, None);
                    self.places.push(Some(begin..self.linear.len()));
                }
            }
            let frame = |at: usize| match self.places.get(at) {
                Some(Some(place)) => &self.linear[place.clone()],
                _ => packets[usize::from(piece[at])].data(),
            };
            let input = |at: usize| {
                let packet = &packets[usize::from(piece[at])];
                Input {
                    decoded: heads[at],
                    frame: frame(at),
                    frame_len: packet.frame_len() as u32,
                    time_ns: cx.arrival_ns(packet),
                    port: packet.port,
                    checksums: received::checksums(packet) == Checksums::Verify,
                    tunnels: None,
                    segment: None,
                }
            };
            let followers = owned.module();
            followers.clean.clear();
            followers.rows.clear();
            followers.rows.extend_from_slice(piece);
            followers.frames.clear();
            if followers.all.iter().any(|own| own.asks_for_frames()) {
                followers.frames.extend((0..piece.len()).map(|at| {
                    let bytes = frame(at).as_ptr_range();
                    bytes.start.addr()..bytes.end.addr()
                }));
            }
            let taken = owned.packets(piece.len(), input, |at, tracked| {
                states[tracked.state as usize & 7] += 1;
                let row = usize::from(piece[at]);
                (flow_state[row], flow_slot[row], flow_opens[row]) = columns::encode(tracked);
            });
            // As in the way of all chunks.
            let arrival = |row: &u16| cx.arrival_ns(&packets[usize::from(*row)]);
            let times = &piece[..if cx.is_live() { taken.min(1) } else { taken }];
            latest_ns = times.iter().map(arrival).fold(latest_ns, u64::max);
            if let Some(row) = piece.get(taken) {
                let _ = cx.divide(usize::from(*row));
                self.ahead = (2 * taken).clamp(AHEAD_MIN, CHUNK_PACKETS_MAX);
                break;
            }
            first += taken;
            self.ahead = (2 * self.ahead).min(CHUNK_PACKETS_MAX);
        }
        latest_ns
    }
}
