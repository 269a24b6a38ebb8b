//! What a job needs to know of the bytes of a chunk's packets, found by the chunk's own worker.
//!
//! ```text
//!  worker, packets in its cache            master, small numbers only
//!  frames: at, length ─────────────────▶   + what lies before the chunk ─▶ columns of places
//!  pieces: from, to, length, zeros ────▶   + the same                   ─▶ list for `gather`
//!  packed bytes, in a block ───────────▶   upload                            (where the device does not reach them)
//! ```
//!
//! A frame's place is relative to the chunk's own payload: frames follow one another at multiples of 16 in the order
//! of the rows, so where a chunk's payload begins in the job's is a sum. Who hands in a chunk finds this out, for its
//! packets are in that core's cache; on the master's thread each packet would be a miss.
//!
//! What is attached to a packet ([`Attached`]) lies behind its frame, at a multiple of 16 as well. It is in no cell, so a part
//! that has something is packed.
//!
//! Where a device does not reach the region of all cells, the worker packs its frames too, into a [`PayloadBlock`]
//! that lies beside the arena in which the chunk has its rows. The block is handed out from front to back as the
//! arena's rows are, so the chunks of a job mostly lie one behind the other and go up in one copy; a block for each
//! chunk in flight would take several times the memory, and a copy for each chunk. What does not fit the block, such
//! as chunks of jumbo frames, the master packs.
//!
//! Threads: a part belongs to who holds its chunk.

use chunk::{Arena, Attached, Columns, Layout, Packet, Region, Rows, Verdict};

use super::FRAME_ALIGN;

chunk::columns! {
    /// Blocks of payload.
    pub(super) struct BlockColumns / BlockView {
        /// 16 bytes.
        pub block: [u64; 2],
    }
}

/// What workers do about a segment's payload before they hand a chunk in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadWork {
    /// Nothing: its kernels use no payload, or the device is not one that reads any.
    #[default]
    None,
    /// [`PayloadPart::find`]: the device reaches the cells.
    Find,
    /// And [`PayloadPart::pack`]: it does not.
    Pack,
}

/// Memory for the packed payload of all chunks of an arena. Cloning makes another handle.
#[derive(Clone, Debug)]
pub struct PayloadBlock {
    /// Of rows of 16 bytes: an arena gives out ranges to several workers, and knows when all are back. Its other
    /// columns are never touched.
    blocks: Arena,
}

impl PayloadBlock {
    /// With a capacity of so many bytes.
    pub fn new(bytes: usize) -> Self {
        let capacity = bytes.div_ceil(FRAME_ALIGN);
        Self { blocks: Arena::new(Layout::new(BlockColumns::COLUMNS, capacity)) }
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.blocks
    }

    /// Where the payload lies.
    pub(super) fn memory(&self) -> *mut [u8] {
        let layout = self.blocks.layout();
        let start = layout.offset(layout.column(BlockColumns::BLOCK));
        let memory = self.blocks.memory().cast::<u8>().wrapping_add(start);
        std::ptr::slice_from_raw_parts_mut(memory, layout.capacity() * FRAME_ALIGN)
    }

    /// Gives it out from the front again; `false`, and nothing has changed for the parts, while one still holds some of
    /// it. Only who reopens its arena may call this, before that.
    pub fn reuse(&self) -> bool {
        self.blocks.close();
        self.blocks.reopen()
    }
}

/// Where the frame of a row is in the payload. It has no bytes there if the row was settled before the shade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) at: u32,
    pub(super) len: u32,
}

/// A piece of a frame for the kernel `gather`: where it is in the region, where it goes, its length, and how many zeros
/// follow it.
pub(super) type Piece = [u32; 4];

/// See the module. Lists are kept from chunk to chunk.
#[derive(Debug, Default)]
pub struct PayloadPart {
    /// Somebody has looked.
    is_known: bool,
    frames: Vec<Frame>,
    pieces: Vec<Piece>,
    /// Bytes of all frames, packed: a multiple of 16.
    bytes: usize,
    /// All pieces are in there; where they are not, there are none.
    region: Option<&'static Region>,
    /// No frame is a chain.
    is_in_one_cell: bool,
    /// Rows whose packets were looked at.
    seen: usize,
    packed: Option<Rows>,
}

impl PayloadPart {
    /// With capacity for so many rows, each of one piece.
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            frames: Vec::with_capacity(rows),
            pieces: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    /// Forgets the chunk, and gives its range of a block back.
    pub fn clear(&mut self) {
        self.is_known = false;
        self.packed = None;
    }

    /// Whether [`PayloadPart::find`] has looked since it was cleared.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Finds the frames of a chunk: of the rows whose verdict is *next*, the others do not travel. `region`: where the
    /// device reaches them, if it does.
    pub fn find(
        &mut self,
        rows: &mut Rows,
        (packets, attached): (&[Packet], &Attached),
        region: Option<&'static Region>,
    ) {
        self.begin(region);
        self.add_rows(rows.verdicts());
        attached.iter().for_each(|(row, bytes)| self.add_attached(row, bytes.len()));
        packets.iter().for_each(|packet| self.add_packet(packet));
        self.end();
    }

    pub(super) fn begin(&mut self, region: Option<&'static Region>) {
        self.clear();
        self.frames.clear();
        self.pieces.clear();
        (self.bytes, self.region, self.is_in_one_cell, self.seen) = (0, region, true, 0);
    }

    /// More rows; all of them come before the first packet. Until then `len` says whether the frame travels.
    pub(super) fn add_rows(&mut self, verdicts: &[u32]) {
        let frame = |verdict: &u32| Frame { at: 0, len: Verdict(*verdict).is_next().into() };
        self.frames.extend(verdicts.iter().map(frame));
    }

    /// So many bytes are attached to the packet of a row, which [`PayloadPart::add_packet`] has not seen yet.
    pub(super) fn add_attached(&mut self, row: usize, bytes: usize) {
        // Until then the place says how many; more than 4 GiB is refused with the job.
        if let Some(frame) = self.frames.get_mut(row) {
            frame.at = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// The packet of the next row.
    pub(super) fn add_packet(&mut self, packet: &Packet) {
        let Some(frame) = self.frames.get_mut(self.seen) else { return };
        self.seen += 1;
        let is_live = frame.len > 0;
        let len = if is_live { packet.frame_len() } else { 0 };
        let attached = (frame.at as usize).next_multiple_of(FRAME_ALIGN);
        // A job of more than 4 GiB is refused as a whole.
        *frame = Frame { at: self.bytes as u32, len: len as u32 };
        if len == 0 {
            return;
        }
        self.is_in_one_cell &= packet.cells() == 1;
        let end = self.bytes + len;
        let aligned = end.next_multiple_of(FRAME_ALIGN);
        if let Some(region) = self.region {
            let base = region.base().as_ptr().addr();
            let mut to = self.bytes;
            for piece in packet.segments().filter(|piece| !piece.is_empty()) {
                let from = piece.as_ptr().addr().wrapping_sub(base);
                if from >= region.bytes() || u32::try_from(from + piece.len()).is_err() {
                    self.region = None;
                    self.pieces.clear();
                    break;
                }
                self.pieces.push([from as u32, to as u32, piece.len() as u32, 0]);
                to += piece.len();
            }
            if let Some([.., zeros]) = self.pieces.last_mut() {
                *zeros = (aligned - end) as u32;
            }
        }
        self.bytes = aligned + attached;
        if attached > 0 {
            // In no region.
            self.region = None;
            self.pieces.clear();
        }
    }

    pub(super) fn end(&mut self) {
        // Rows without packets, as those of a sweep.
        let at = self.bytes as u32;
        self.frames[self.seen..].fill(Frame { at, len: 0 });
        self.is_known = true;
    }

    /// Packs the frames that were found; `false` where the block is too full. `packets` are those of
    /// [`PayloadPart::find`].
    pub fn pack(
        &mut self,
        (packets, attached): (&[Packet], &Attached),
        block: &PayloadBlock,
    ) -> bool {
        self.packed = block.blocks.reserve(self.bytes / FRAME_ALIGN);
        let Some(rows) = &mut self.packed else { return false };
        let to = bytes_of(rows);
        for (frame, packet) in self.frames.iter().zip(packets) {
            copy_frame(frame, packet, to);
        }
        for (row, bytes) in attached.iter() {
            self.frames.get(row).into_iter().for_each(|frame| copy_attached(frame, bytes, to));
        }
        true
    }

    /// Whether it has packed frames.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    pub(super) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Bytes of all frames, packed: those of rows that travel, each rounded up to 16.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all its bytes lie in `region`.
    pub(super) fn is_in(&self, region: &'static Region) -> bool {
        self.region.is_some_and(|own| std::ptr::eq(own, region))
    }

    pub(super) fn is_in_one_cell(&self) -> bool {
        self.is_in_one_cell
    }

    /// Its packed bytes, if it has them.
    pub(super) fn packed(&mut self) -> Option<&mut [u8]> {
        self.packed.as_mut().map(bytes_of)
    }
}

fn bytes_of(rows: &mut Rows) -> &mut [u8] {
    let column = rows.layout().column(BlockColumns::BLOCK);
    rows.column_bytes_mut(column)
}

/// Copies a packet to its frame's place in packed payload, with the zeros behind it.
pub(super) fn copy_frame(frame: &Frame, packet: &Packet, payload: &mut [u8]) {
    if frame.len == 0 {
        return;
    }
    let mut to = frame.at as usize;
    for piece in packet.segments() {
        payload[to..to + piece.len()].copy_from_slice(piece);
        to += piece.len();
    }
    payload[to..to.next_multiple_of(FRAME_ALIGN)].fill(0);
}

/// Copies what is attached to a packet behind its frame, with the zeros behind it.
pub(super) fn copy_attached(frame: &Frame, bytes: &[u8], payload: &mut [u8]) {
    if frame.len == 0 {
        return;
    }
    let at = frame.at as usize + (frame.len as usize).next_multiple_of(FRAME_ALIGN);
    let end = at + bytes.len();
    payload[at..end].copy_from_slice(bytes);
    payload[end..end.next_multiple_of(FRAME_ALIGN)].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Pool};
    use proptest::prelude::*;

    /// Frames, whether each is live, and what is attached to it.
    type Framed = (Vec<u8>, bool, Vec<u8>);

    fn any_frames(has_attached: bool) -> impl Strategy<Value = Vec<Framed>> {
        let len = prop_oneof![0usize..40, 0usize..600, 1900usize..2100, 2000usize..5000];
        let attached = prop_oneof![4 => Just(0usize), 1 => 1usize..40, 1 => 1usize..4000];
        let frame = (len, any::<u8>(), prop::bool::weighted(0.7), attached);
        let bytes = move |(len, seed, is_live, attached): (usize, u8, bool, usize)| {
            let own = |len| (0..len).map(|i| (i as u8).wrapping_mul(seed | 1) ^ seed).collect();
            (own(len), is_live, if has_attached { own(attached) } else { Vec::new() })
        };
        prop::collection::vec(frame.prop_map(bytes), 0..30)
    }

    /// What packed payload is: the frames of rows that are not settled and what is attached to them, one behind the other,
    /// each with zeros up to a multiple of 16; and where each frame begins.
    fn packed(frames: &[Framed]) -> (Vec<u8>, Vec<Frame>) {
        let (mut all, mut places) = (Vec::new(), Vec::new());
        for (frame, is_live, attached) in frames {
            let bytes: &[u8] = if *is_live { frame } else { &[] };
            places.push(Frame { at: all.len() as u32, len: bytes.len() as u32 });
            all.extend_from_slice(bytes);
            all.resize(all.len().next_multiple_of(16), 0);
            if !bytes.is_empty() {
                all.extend_from_slice(attached);
                all.resize(all.len().next_multiple_of(16), 0);
            }
        }
        (all, places)
    }

    /// What the kernel `gather` makes of a list; the bytes between the pieces and their zeros are not written.
    fn gathered(part: &PayloadPart, packets: &[Packet], region: &Region) -> Vec<u8> {
        let mut all = vec![0xee; part.bytes()];
        let base = region.base().as_ptr().addr();
        let bytes_at = |from: usize| {
            let pieces = packets.iter().flat_map(Packet::segments);
            pieces.into_iter().find(|piece| piece.as_ptr().addr() - base == from)
        };
        for [from, to, len, zeros] in part.pieces().iter().map(|piece| piece.map(|n| n as usize)) {
            all[to..to + len].copy_from_slice(bytes_at(from).expect("a packet's piece"));
            all[to + len..to + len + zeros].fill(0);
        }
        all
    }

    proptest! {
        #[test]
        fn parts_are_what_their_frames_are(
            chunks in any::<bool>().prop_flat_map(|has| prop::collection::vec(any_frames(has), 1..4)),
        ) {
            let (region, depot) = Region::new(2048, HugePages::Off).unwrap();
            let mut pool = Pool::new(depot, 16);
            let arena = Arena::new(Layout::join(&[], 256).unwrap());
            let block = PayloadBlock::new(64 << 10);
            let (mut part, mut used) = (PayloadPart::with_capacity(8), Vec::new());
            for frames in &chunks {
                let mut rows = arena.reserve(frames.len()).unwrap();
                for (verdict, (_, is_live, _)) in rows.verdicts().iter_mut().zip(frames) {
                    *verdict = if *is_live { Verdict::NEXT } else { Verdict::forward(1) }.0;
                }
                let packets: Vec<_> =
                    frames.iter().map(|(f, ..)| Packet::copy_from(&mut pool, f).unwrap()).collect();
                let (bytes, places) = packed(frames);
                let mut attached = Attached::default();
                for (row, (.., own)) in frames.iter().enumerate().filter(|(_, own)| !own.2.is_empty()) {
                    attached.push(row, own);
                }
                let live = || packets.iter().zip(frames).filter(|(p, (_, l, _))| *l && p.frame_len() > 0);
                let has_attached = live().any(|(_, (.., own))| !own.is_empty());
                for place in [Some(region), None] {
                    part.find(&mut rows, (&packets, &attached), place);
                    prop_assert!(part.is_known());
                    prop_assert_eq!(part.frames(), &places[..]);
                    prop_assert_eq!(part.bytes(), bytes.len());
                    prop_assert_eq!(part.is_in(region), place.is_some() && !has_attached);
                    prop_assert_eq!(part.is_in_one_cell(), live().all(|(p, _)| p.cells() == 1));
                }
                part.find(&mut rows, (&packets, &attached), Some(region));
                if has_attached {
                    prop_assert!(part.pieces().is_empty());
                } else {
                    prop_assert_eq!(gathered(&part, &packets, region), &bytes[..]);
                }
                if part.is_in_one_cell() && !has_attached {
                    prop_assert_eq!(part.pieces().len(), live().count());
                }
                let free = (64 << 10) - used.iter().map(Vec::len).sum::<usize>();
                prop_assert_eq!(part.pack((&packets, &attached), &block), bytes.len() <= free);
                if let Some(own) = part.packed() {
                    prop_assert_eq!(&*own, &bytes[..]);
                    used.push(bytes);
                }
                packets.into_iter().for_each(|packet| packet.free(&mut pool));
            }
            let is_held = part.packed().is_some_and(|bytes| !bytes.is_empty());
            prop_assert_eq!(block.reuse(), !is_held);
            part.clear();
            prop_assert!(block.reuse() && !part.is_known());
        }
    }

    #[test]
    fn frames_outside_the_region_have_no_pieces() {
        let (_, depot) = Region::new(16, HugePages::Off).unwrap();
        let (other, _) = Region::new(16, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 16);
        let packets = vec![Packet::copy_from(&mut pool, &[1; 100]).unwrap()];
        let mut rows = Arena::new(Layout::join(&[], 3).unwrap()).reserve(3).unwrap();
        let mut part = PayloadPart::with_capacity(3);
        part.find(&mut rows, (&packets, &Attached::default()), Some(other));
        assert!(!part.is_in(other) && part.pieces().is_empty());
        // Two rows have no packets.
        let frames = [(0, 100), (112, 0), (112, 0)].map(|(at, len)| Frame { at, len });
        assert_eq!(part.frames(), frames);
        packets.into_iter().for_each(|packet| packet.free(&mut pool));
    }
}
