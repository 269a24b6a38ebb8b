//! The way of most packets: the flow of the first table sends them out by a port, and they stay where they are in their chunk.
//!
//! ```text
//!  64 packets ─▶ keys ─▶ first table ─▶ verdicts, counters
//!                             └─ any other flow, or none ─▶ the whole pipeline, with what has been found
//! ```
//!
//! Where ports have queues, or a device looks keys up, all packets go through the whole pipeline.

use chunk::{Chunk, Verdict};
use engine::{Context, MARK_FROM_HOST};
use flowtable::FlowTables;
use flowtable::pipeline::FIRSTS;

use super::{CellFrame, MARK_OUT, MARK_QUEUE, OpenFlow, is_for_tables};

/// Packets whose first lines are on their way while one is read.
const AHEAD: usize = 8;

impl OpenFlow {
    /// Packets of a chunk whose flows only send them out by a port get their verdict, and so do those that no table sees; all
    /// others go to the tables.
    pub(super) fn settle(&mut self, chunk: &mut Chunk, cx: &Context<'_, FlowTables>) {
        let (tables, ports) = (cx.tables, self.ports);
        let all_normal = self.has_switch && tables.is_standalone();
        let verdicts = chunk.rows.verdicts();
        let packets = &mut chunk.packets[..];
        packets.iter().take(AHEAD).for_each(|packet| packet.prefetch());
        let mut begin = 0;
        while begin < packets.len() {
            let end = packets.len().min(begin + FIRSTS);
            self.pipeline.begin_reading();
            for row in begin..end {
                if let Some(ahead) = packets.get(row + AHEAD) {
                    ahead.prefetch();
                }
                let packet = &packets[row];
                if Verdict(verdicts[row]).is_next() && is_for_tables(packet, all_normal) {
                    let number = ports.number(packet.port);
                    self.pipeline.read(packet.data(), packet.frame_len(), number);
                }
            }
            self.pipeline.look_up_read(tables);
            let mut at = 0;
            for row in begin..end {
                let (verdict, packet) = (&mut verdicts[row], &mut packets[row]);
                if !Verdict(*verdict).is_next() {
                    continue;
                }
                if !is_for_tables(packet, all_normal) {
                    if packet.mark & MARK_FROM_HOST != 0 {
                        *verdict = Verdict::forward(packet.port).0;
                    } else if packet.mark & MARK_OUT != 0 {
                        packet.mark &= !(MARK_OUT | MARK_QUEUE);
                        *verdict = Verdict::forward(packet.port).0;
                    } else {
                        self.counters.to_normal.add(1);
                    }
                    continue;
                }
                let (number, now_ns) = (ports.number(packet.port), cx.arrival_ns(packet));
                let of_packet = (number, packet.frame_len(), now_ns);
                let port = self.pipeline.direct(at, tables, of_packet, |port| ports.port(port));
                match port {
                    Some(port) => *verdict = Verdict::forward(port).0,
                    None => {
                        let frame = CellFrame(std::mem::replace(packet, chunk::Packet::empty()));
                        self.pipeline.push_read(at, row, frame, number, now_ns);
                    }
                }
                at += 1;
            }
            begin = end;
        }
    }
}
