//! What the tracker needs of packets, found out before it: headers, and TCP segments with their checksums. A stage of its own
//! in front of the tracker, with a device form, where the configuration asks for it (`device` in `[flow]`).
//!
//! ```text
//!  without                        flow:   decode · verify · key · look up · reassemble
//!  with      flow:   decode · verify · group  ─columns─▶  flow.2:   key · look up · reassemble
//!                    └ on the device, a row each                        └ on the worker, which reads no header
//! ```
//!
//! What is inside of tunnels the tracker's stage decodes.
//!
//! The border is where packets begin to depend on one another: what is found out here is a function of the packet alone, so
//! whoever does it, and in whatever jobs, the tracker is given the same. The bytes of a packet are read once, by the device; the
//! worker reads them only if somebody follows streams.
//!
//! A device also finds out which segments of its job are of one direction of a connection ([`super::reassembly`],
//! of which the first kernels are launched), and the tracker looks up one of them in a chunk for all. That depends on the job, so
//! it is only a hint: keys are compared, and what a hint says changes no event. A CPU that shades in its place gives none. The same
//! holds for numbers of connections, which a table on the device gives that stays from job to job ([`super::connections`]), where
//! the configuration asks for it.
//!
//! | | |
//! | --- | --- |
//! | reads | frames, of rows that no stage before it has settled |
//! | writes | the columns of [`HeadColumns`], `flow_group`, and `flow_number` if it numbers connections |
//! | next | all packets |
//!
//! Threads: one instance per worker. The table is state of its segment.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use chunk::{Chunk, ColumnSet, Columns, Declaration, Packet, Rows, Verdict};
use device::accelerator::{PayloadUse, Step};
use engine::{Context, KernelForm, KernelStep, Phases, Scratch, Shade, Side, Stage, StateForm};
use packet::checksum::Checksums;
use packet::{Anomaly, Decoded, IpProtocol};
use stream::tcp::Segment;
use stream::tracker::{Input, NO_GROUP, Reject, checked_segment};

use super::connections::{
    self, CELL_BYTES, ConnectionColumns, Connections, NO_NUMBER, OfConnection, STEP_CELLS,
};
use super::kernels::{CONNECTIONS, FLOW, REASSEMBLY};
use super::reassembly::{self, NO_ROW, ReassemblyColumns, SCRATCH_BYTES};
use crate::received;

chunk::columns! {
    /// What is found out of a packet before the tracker.
    pub struct HeadColumns / HeadView {
        /// Where the frame starts in the payload of a job, bytes.
        pub flow_at: u32,
        /// Bytes of it.
        pub flow_len: u32,
        /// Bytes of its first cell, and [`head::IGNORES_CHECKSUMS`].
        pub flow_head: u32,
        /// Source address, as [`Decoded`] has it.
        pub flow_src: [u64; 2],
        /// Destination address, likewise.
        pub flow_dst: [u64; 2],
        /// The first two of [`Decoded::words`].
        pub flow_header0: [u64; 2],
        /// The others.
        pub flow_header1: [u64; 2],
        /// What is known of the TCP segment: see [`segment`]. Zero in a row of which nothing is known.
        pub flow_segment: [u64; 2],
    }
}

/// The seed of the hash of directions. Who knows it can have packets looked up one by one.
const SEED: u32 = 0x6a5b_9e37;

/// The column `flow_head`.
pub mod head {
    /// The bits of the number of bytes.
    pub const BYTES: u32 = 0xffff;
    /// The packet came by a port that ignores wrong checksums.
    pub const IGNORES_CHECKSUMS: u32 = 1 << 31;
    /// The row has no packet: it is one of a sweep over [connections](crate::flow::connections), and the other bits are the piece.
    pub const SWEEPS: u32 = 1 << 30;
}

/// In how long all connections of a device are looked at once.
const SWEEP_NS: u64 = 5_000_000_000;

/// Rows of a sweep.
const SWEPT_ROWS: usize = 256;

const NS: u64 = 1_000_000_000;

/// The column `flow_segment`.
///
/// ```text
///  63    56      48               32        16       0
/// │ acknowledgment number         │ sequence number  │
/// │ status │ header │ urgent ptr. │ window  │ flags  │     zero unless the status is RIGHT
/// ```
pub mod segment {
    /// The headers are known, and it is no whole TCP packet.
    pub const NONE: u8 = 1;
    /// A segment that its receiver takes.
    pub const RIGHT: u8 = 2;
    /// Its header is not all there.
    pub const MALFORMED: u8 = 3;
    /// Its checksum is wrong.
    pub const CHECKSUM: u8 = 4;
}

/// The words of a segment.
fn encode(found: Option<Result<Segment<'_>, Reject>>) -> [u64; 2] {
    let status = |status: u8| u64::from(status) << 56;
    let own = match found {
        None => return [0, status(segment::NONE)],
        Some(Err(Reject::Checksum)) => return [0, status(segment::CHECKSUM)],
        Some(Err(_)) => return [0, status(segment::MALFORMED)],
        Some(Ok(own)) => own,
    };
    let header = packet::tcp::HEADER_LEN + own.options.len();
    [
        u64::from(own.sequence) | u64::from(own.acknowledgment) << 32,
        u64::from(own.flags)
            | u64::from(own.window) << 16
            | u64::from(own.urgent_pointer) << 32
            | (header as u64) << 48
            | status(segment::RIGHT),
    ]
}

/// Whether something is known of a row.
#[inline(always)]
pub(super) fn is_known(words: [u64; 2]) -> bool {
    words[1] >> 56 != 0
}

/// The number that segments of one direction have in a job, for the tracker: that of rows that were not seen has no meaning.
#[inline(always)]
pub(super) fn group_of(words: [u64; 2], group: u32) -> u32 {
    const { assert!(NO_ROW == NO_GROUP) };
    if (words[1] >> 56) as u8 == segment::RIGHT { group } else { NO_GROUP }
}

/// The segment of a packet by its words; `None` where the tracker is to find it out.
#[inline(always)]
pub fn segment_of<'a>(
    words: [u64; 2],
    d: &Decoded,
    frame: &'a [u8],
) -> Option<Result<Segment<'a>, Reject>> {
    match (words[1] >> 56) as u8 {
        segment::RIGHT => {}
        segment::MALFORMED => return Some(Err(Reject::Malformed)),
        segment::CHECKSUM => return Some(Err(Reject::Checksum)),
        _ => return None,
    }
    let bytes = frame.get(usize::from(d.l4_offset)..d.l3_end().min(frame.len()))?;
    let (header, payload) = bytes.split_at_checked((words[1] >> 48) as usize & 0xff)?;
    Some(Ok(Segment {
        sequence: words[0] as u32,
        acknowledgment: (words[0] >> 32) as u32,
        flags: words[1] as u16,
        window: (words[1] >> 16) as u16,
        urgent_pointer: (words[1] >> 32) as u16,
        options: header.get(packet::tcp::HEADER_LEN..)?,
        payload,
        missing: 0, // a kernel takes a cut packet for a truncated one
    }))
}

/// The segment of a packet, if it is a whole TCP packet whose headers are right.
fn find<'a>(d: &'a Decoded, frame: &'a [u8], checksums: Checksums) -> [u64; 2] {
    let is_right =
        matches!(d.anomaly, Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination);
    let is_whole = d.ports().is_some() && !d.has(Decoded::FRAGMENT);
    if !(d.is_ip() && is_right && is_whole && d.protocol == IpProtocol::TCP) {
        return encode(None);
    }
    // The checksum may be that of an address in the header, which the tracker finds.
    if d.has(Decoded::ROUTING_HEADER) {
        return [0; 2];
    }
    encode(Some(checked_segment(&Input {
        decoded: d,
        frame,
        frame_len: frame.len() as u32,
        time_ns: 0,
        port: 0,
        checksums: checksums == Checksums::Verify,
        tunnels: None,
        segment: None,
    })))
}

/// Headers and segment of a frame, of which `head` is what is in its first cell: what the kernels find out, by which tests
/// judge them.
pub fn reference(head: &[u8], frame: &[u8], checksums: Checksums) -> (Decoded, [u64; 2]) {
    let mut d = packet::decode(head, frame.len());
    if checksums == Checksums::Ignore {
        packet::decode::ignore_checksum(&mut d);
    }
    (d, find(&d, frame, checksums))
}

thread_local! {
    /// A frame of more than one cell, in one piece.
    static LINEAR: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The stage of one worker.
#[derive(Debug, Default)]
pub struct FlowDecode {
    /// How many connections the device numbers.
    connections: usize,
    /// The piece at which the next sweep begins, and when; 0 before the first packet.
    piece: usize,
    sweep_ns: u64,
}

impl FlowDecode {
    /// A device numbers so many connections; 0: none.
    pub fn numbering(connections: usize) -> Self {
        Self { connections: connections::cells(connections), ..Self::default() }
    }

    /// Whether it does.
    pub(super) const fn numbers(&self) -> bool {
        self.connections > 0
    }
}

/// What it does.
struct Heads {
    connections: usize,
    /// In the simulated device.
    table: Option<Mutex<Connections>>,
}

impl Heads {
    fn steps(&self) -> Vec<KernelStep> {
        let own = ["flow_headers", "flow_segments"].map(|kernel| Step::rows(kernel, 128));
        let numbers = ["connections_insert", "connections_number"]
            .map(|kernel| Step::rows(kernel, reassembly::ITEMS).with_job(SEED));
        let numbers = numbers.into_iter().filter(|_| self.connections > 0);
        let all = own.into_iter().chain(reassembly::groups(SEED)).chain(numbers);
        all.map(KernelStep::from).collect()
    }

    /// Numbers of connections as a device finds them, or none.
    fn number(&self, rows: &mut Rows) {
        if self.connections == 0 {
            return;
        }
        let view = ConnectionColumns::view(rows);
        let Some(table) = &self.table else {
            view.flow_number.fill(NO_NUMBER);
            return;
        };
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        let own = |row: usize| {
            if !Verdict(view.verdict[row]).is_next() {
                return None;
            }
            let ends = (view.flow_src[row], view.flow_dst[row]);
            let (header0, found) = (view.flow_header0[row], view.flow_segment[row]);
            OfConnection::of_columns(ends, header0, found, view.flow_time[row], SEED)
        };
        let found = table.job(&(0..view.verdict.len()).map(own).collect::<Vec<_>>());
        view.flow_number.copy_from_slice(&found);
        for (head, now) in view.flow_head.iter().zip(view.flow_time.iter()) {
            if head & head::SWEEPS != 0 {
                table.sweep((head & !head::SWEEPS) as usize, *now);
            }
        }
    }
}

impl<T: Send + Sync + 'static> Stage<T> for FlowDecode {
    fn name(&self) -> &'static str {
        super::STAGE
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.connections {
            0 => &[HeadColumns::COLUMNS, ReassemblyColumns::COLUMNS],
            _ => &[HeadColumns::COLUMNS, ReassemblyColumns::COLUMNS, ConnectionColumns::COLUMNS],
        }
    }

    /// Nothing is known of a row that it has not seen.
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::of(&[HeadColumns::FLOW_SEGMENT])
    }

    fn reads(&self) -> ColumnSet {
        match self.connections {
            0 => ColumnSet::of(&[HeadColumns::FLOW_HEAD]),
            _ => ColumnSet::of(&[HeadColumns::FLOW_HEAD, ConnectionColumns::FLOW_TIME]),
        }
    }

    fn writes(&self) -> ColumnSet {
        let own = ColumnSet::of(&[
            HeadColumns::FLOW_SRC,
            HeadColumns::FLOW_DST,
            HeadColumns::FLOW_HEADER0,
            HeadColumns::FLOW_HEADER1,
            HeadColumns::FLOW_SEGMENT,
            ReassemblyColumns::FLOW_GROUP,
        ]);
        match self.connections {
            0 => own,
            _ => own.union(&ColumnSet::of(&[ConnectionColumns::FLOW_NUMBER])),
        }
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn reads_packets(&self) -> bool {
        true
    }

    /// The tracker reads what it found in a step that comes before any shade.
    fn ends_segment(&self) -> bool {
        true
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        if self.connections > 0 {
            let times = ConnectionColumns::view(&mut chunk.rows).flow_time;
            for (time, packet) in times.iter_mut().zip(&chunk.packets) {
                *time = (cx.arrival_ns(packet) / NS) as u32;
            }
            if self.sweep_ns == 0 {
                self.sweep_ns = cx.now_ns + SWEEP_NS;
            }
        }
        let view = HeadColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            let ignores = match received::checksums(packet) {
                Checksums::Verify => 0,
                Checksums::Ignore => head::IGNORES_CHECKSUMS,
            };
            // A cell has fewer bytes than 16 bits can number.
            view.flow_head[row] = packet.data().len() as u32 & head::BYTES | ignores;
        }
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(Arc::new(Heads { connections: self.connections, table: None }))
    }

    fn next_sweep_ns(&self) -> Option<u64> {
        (self.sweep_ns > 0).then_some(self.sweep_ns)
    }

    /// Removes idle connections of a device.
    fn sweep(&mut self, rows: &mut Rows, cx: &mut Context<'_, T>) -> usize {
        let pieces = connections::pieces(self.connections);
        self.sweep_ns = cx.now_ns + SWEEP_NS / pieces.div_ceil(SWEPT_ROWS).max(1) as u64;
        if cx.home != Side::Device {
            return 0;
        }
        let view = ConnectionColumns::view(rows);
        let count = (pieces - self.piece).min(view.flow_head.len()).min(SWEPT_ROWS);
        let own = view.flow_head.iter_mut().zip(view.flow_time).take(count);
        for (piece, (head, time)) in (self.piece..).zip(own) {
            (*head, *time) = (head::SWEEPS | piece as u32, (cx.now_ns / NS) as u32);
        }
        self.piece = (self.piece + count) % pieces;
        count
    }
}

impl<T: Send + Sync + 'static> Shade<T> for Heads {
    /// Headers are in the packets alone.
    fn shade(&self, _: &mut Rows, _: &T) {}

    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], _: &T) {
        ReassemblyColumns::view(rows).flow_group[..packets.len()].fill(NO_ROW);
        let view = HeadColumns::view(rows);
        LINEAR.with_borrow_mut(|linear| {
            let mut d = Decoded::default();
            for (row, packet) in packets.iter().enumerate() {
                view.flow_segment[row] = [0; 2];
                if !Verdict(view.verdict[row]).is_next() {
                    continue;
                }
                received::decode_into(packet, &mut d);
                let Some(frame) = packet.linear(0..packet.frame_len(), linear) else { continue };
                let [w0, w1, w2, w3] = d.words();
                (view.flow_src[row], view.flow_dst[row]) = (d.src, d.dst);
                (view.flow_header0[row], view.flow_header1[row]) = ([w0, w1], [w2, w3]);
                view.flow_segment[row] = find(&d, frame, received::checksums(packet));
            }
        });
        self.number(rows);
    }

    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            files: match self.connections {
                0 => &[&FLOW, &REASSEMBLY],
                _ => &[&FLOW, &REASSEMBLY, &CONNECTIONS],
            },
            steps: self.steps(),
            state: (self.connections > 0)
                .then_some(StateForm { record_bytes: CELL_BYTES, slots_per_step: STEP_CELLS }),
            // Area 0 of the job: what may stand before it in its segment has none.
            scratch: Some(Scratch {
                bytes: 0,
                bytes_per_row: SCRATCH_BYTES,
                is_zeroed: false,
                is_first: true,
            }),
            payload: Some(PayloadUse {
                at: HeadColumns::FLOW_AT,
                len: HeadColumns::FLOW_LEN,
                writes: false,
            }),
            ..KernelForm::default()
        })
    }

    fn state_slots(&self) -> usize {
        self.connections
    }

    /// The device's table begins empty: the host has no copy, and [`Shade::state`] sends zeros.
    fn twin(&self) -> Option<Arc<dyn Shade<T>>> {
        let connections = self.connections;
        let table = (connections > 0).then(|| Mutex::new(Connections::new(connections)))?;
        Some(Arc::new(Heads { connections, table: Some(table) }))
    }
}
