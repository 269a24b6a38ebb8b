//! A running capture: frames copied into blocks that are made at its start.
//!
//! ```text
//!            ┌────── free ◀─────────────── blocks, emptied ──────┐
//!  worker ───┴─▶ block ─▶ block … ─▶ full ─▶ wakeup ─▶ reader ─────┘─▶ CapturedFrame
//! ```
//!
//! Both queues are bounded and lock-free and hold every block there is, so that neither is ever full. A
//! worker that finds too few free blocks counts the frame as lost and goes on. It allocates nothing and
//! takes no lock; it makes a system call only where the reader sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fmt, io};

use ::io::offload::frames;
use chunk::{DropReason, Packet};
use crossbeam_queue::ArrayQueue;

use super::{CapturePoint, FrameFilter, Hooks};
use crate::ring::Wakeup;

/// Bytes of a frame in a block: those of nearly every frame.
const BLOCK_BYTES: usize = 2048;

/// The most bytes of a frame that are captured: any packet that IP can express, with its link header.
const CAPTURED_BYTES_MAX: usize = 33 * BLOCK_BYTES;

/// What to capture.
pub struct Capture {
    /// The place in the pipeline.
    pub point: CapturePoint,
    /// Which frames; `None` for all.
    pub filter: Option<FrameFilter>,
    /// How many frames of at most 2,048 bytes may wait for the reader; longer ones take the place of
    /// several. Their memory is allocated at the start.
    pub frames: usize,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capture({:?}, {} frames)", self.point, self.frames)
    }
}

/// A captured frame.
#[derive(Clone, Debug, Default)]
pub struct CapturedFrame {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The port it came in by or leaves by.
    pub port: u16,
    /// Whether it was leaving.
    pub outgoing: bool,
    /// Why it was dropped, at [`CapturePoint::Drops`].
    pub reason: Option<DropReason>,
    /// Bytes of the frame.
    pub len: usize,
    /// Its bytes: all of them but of a frame longer than 67,584 bytes, whose end is left out.
    pub bytes: Vec<u8>,
}

/// What is known of a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct About {
    pub(super) time_ns: u64,
    pub(super) port: u16,
    pub(super) outgoing: bool,
    pub(super) reason: Option<DropReason>,
}

/// A part of a frame.
struct Block {
    /// Of the whole frame, in its first block.
    about: About,
    /// Bytes of the whole frame, in its first block.
    frame_len: usize,
    /// Bytes in use here.
    len: usize,
    more: Option<Box<Block>>,
    bytes: [u8; BLOCK_BYTES],
}

impl Block {
    fn new() -> Box<Self> {
        let about = About::default();
        Box::new(Self { about, frame_len: 0, len: 0, more: None, bytes: [0; BLOCK_BYTES] })
    }
}

/// A running capture, as workers and its reader share it.
pub(super) struct Running {
    /// As [`code`] has it.
    point: AtomicU64,
    pub(super) filter: Option<FrameFilter>,
    free: ArrayQueue<Box<Block>>,
    full: ArrayQueue<Box<Block>>,
    lost: AtomicU64,
    wakeup: Wakeup,
}

/// A place as a number, which changes in one piece: what it is, then its own number.
fn code(point: Option<CapturePoint>) -> u64 {
    match point {
        None => 0,
        Some(CapturePoint::Port(port)) => 1 << 32 | u64::from(port),
        Some(CapturePoint::Stage(stage)) => 2 << 32 | stage as u64 & u64::from(u32::MAX),
        Some(CapturePoint::Drops) => 3 << 32,
        Some(CapturePoint::Dumps) => 4 << 32,
    }
}

impl Running {
    pub(super) fn new(capture: Capture) -> io::Result<Self> {
        let blocks = capture.frames.max(1);
        let free = ArrayQueue::new(blocks);
        while free.push(Block::new()).is_ok() {}
        Ok(Self {
            point: AtomicU64::new(code(Some(capture.point))),
            filter: capture.filter,
            free,
            full: ArrayQueue::new(blocks),
            lost: AtomicU64::new(0),
            wakeup: Wakeup::new()?,
        })
    }

    /// Where it stands, if anywhere.
    pub(super) fn point(&self) -> Option<CapturePoint> {
        let code = self.point.load(Relaxed);
        let number = code & u64::from(u32::MAX);
        Some(match code >> 32 {
            1 => CapturePoint::Port(number as u16),
            2 => CapturePoint::Stage(number as usize),
            3 => CapturePoint::Drops,
            4 => CapturePoint::Dumps,
            _ => return None,
        })
    }

    pub(super) fn stands_at(&self, point: CapturePoint) -> bool {
        self.point.load(Relaxed) == code(Some(point))
    }

    pub(super) fn set_point(&self, point: Option<CapturePoint>) {
        self.point.store(code(point), Relaxed);
    }

    /// Copies a packet for the reader: as it is on the wire, where a network card was to finish it.
    pub(super) fn take(&self, packet: &Packet, about: About) {
        frames(packet, |frame_len, read| match self.copy(frame_len, read, about) {
            Some(first) => {
                // There is room for every block.
                let _ = self.full.push(first);
                self.wakeup.wake();
            }
            None => _ = self.lost.fetch_add(1, Relaxed),
        });
    }

    /// A copy in as many blocks as it takes; `None` where too few are free.
    fn copy(
        &self,
        frame_len: usize,
        read: &dyn Fn(usize, &mut [u8]),
        about: About,
    ) -> Option<Box<Block>> {
        let len = frame_len.min(CAPTURED_BYTES_MAX);
        let mut first = None;
        // From the tail to the head, so that each block can own the one behind it.
        for i in (0..len.div_ceil(BLOCK_BYTES).max(1)).rev() {
            let Some(mut block) = self.free.pop() else {
                self.give_back(first);
                return None;
            };
            let at = i * BLOCK_BYTES;
            block.len = (len - at).min(BLOCK_BYTES);
            read(at, &mut block.bytes[..block.len]);
            block.more = first;
            first = Some(block);
        }
        let mut first = first?;
        (first.about, first.frame_len) = (about, frame_len);
        Some(first)
    }

    fn give_back(&self, mut first: Option<Box<Block>>) {
        while let Some(mut block) = first {
            first = block.more.take();
            // There is room for every block.
            let _ = self.free.push(block);
        }
    }
}

/// The reader's end of a capture, which ends when this is dropped.
///
/// Frames that workers captured before the end and that were not read are lost with it.
#[must_use = "the capture ends when its reader is dropped"]
pub struct CaptureReader {
    hooks: Arc<Hooks>,
    running: Arc<Running>,
}

impl fmt::Debug for CaptureReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Running { full, lost, .. } = &*self.running;
        let point = self.running.point();
        write!(f, "CaptureReader({point:?}, {} waiting, {lost:?} lost)", full.len())
    }
}

impl CaptureReader {
    pub(super) fn new(hooks: Arc<Hooks>, running: Arc<Running>) -> Self {
        Self { hooks, running }
    }

    /// The next frame, if there is one.
    pub fn try_recv(&mut self) -> Option<CapturedFrame> {
        let first = self.running.full.pop()?;
        let About { time_ns, port, outgoing, reason } = first.about;
        let len = first.frame_len;
        let mut bytes = Vec::with_capacity(len.min(CAPTURED_BYTES_MAX));
        let mut block = Some(&first);
        while let Some(part) = block {
            bytes.extend_from_slice(&part.bytes[..part.len]);
            block = part.more.as_ref();
        }
        self.running.give_back(Some(first));
        Some(CapturedFrame { time_ns, port, outgoing, reason, len, bytes })
    }

    /// The next frame; waits for it at most as long as `wait`.
    pub fn recv_timeout(&mut self, wait: Duration) -> Option<CapturedFrame> {
        let begin = Instant::now();
        loop {
            if let Some(frame) = self.try_recv() {
                return Some(frame);
            }
            let left = wait.checked_sub(begin.elapsed())?;
            let Running { full, wakeup, .. } = &*self.running;
            wakeup.wait_unless(left, || !full.is_empty());
        }
    }

    /// Frames that came while too few blocks were free.
    pub fn lost(&self) -> u64 {
        self.running.lost.load(Relaxed)
    }
}

impl Drop for CaptureReader {
    fn drop(&mut self) {
        self.hooks.end_capture(&self.running);
        // A worker that still looks at the list may be the last to hold the capture: the blocks are freed
        // here, not there.
        while self.running.free.pop().or_else(|| self.running.full.pop()).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Pool, Region, reasons};

    fn capture_of(frames: usize) -> (Arc<Hooks>, CaptureReader) {
        let hooks = Arc::new(Hooks::default());
        let capture = Capture { point: CapturePoint::Drops, filter: None, frames };
        let reader = hooks.capture(capture).unwrap();
        (hooks, reader)
    }

    fn frame(pool: &mut Pool, len: usize) -> (Packet, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|i| (i / 251 + i) as u8).collect();
        (Packet::copy_from(pool, &bytes).unwrap(), bytes)
    }

    #[test]
    fn frames_of_any_length_arrive_and_their_blocks_go_round() {
        let (_, depot) = Region::new(50, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 8);
        let (hooks, mut reader) = capture_of(34);
        for len in [0, 1, 60, BLOCK_BYTES, BLOCK_BYTES + 1, 9000, 65_549, 80_000].repeat(3) {
            let (packet, bytes) = frame(&mut pool, len);
            hooks.offer(CapturePoint::Drops, &packet, 77, 4, true, Some(reasons::NO_CELLS));
            packet.free(&mut pool);
            let captured = reader.recv_timeout(Duration::from_secs(9)).unwrap();
            assert_eq!(captured.len, len);
            assert!(captured.bytes == bytes[..len.min(CAPTURED_BYTES_MAX)], "{len} bytes");
            assert_eq!((captured.time_ns, captured.port, captured.outgoing), (77, 4, true));
            assert_eq!(captured.reason, Some(reasons::NO_CELLS));
        }
        assert_eq!(reader.lost(), 0);
        assert_eq!(reader.running.free.len(), 34);
    }

    #[test]
    fn a_full_capture_counts_what_it_loses() {
        let (_, depot) = Region::new(50, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 8);
        let (hooks, mut reader) = capture_of(3);
        let (short, _) = frame(&mut pool, 60);
        let (long, _) = frame(&mut pool, 5000);
        let offer = |packet: &Packet| hooks.offer(CapturePoint::Drops, packet, 1, 0, false, None);
        offer(&short);
        offer(&long); // three blocks, of which two are left
        offer(&short);
        offer(&short);
        offer(&short);
        assert_eq!(reader.lost(), 2);
        let lens = |reader: &mut CaptureReader| {
            std::iter::from_fn(|| reader.try_recv()).map(|f| f.len).collect::<Vec<_>>()
        };
        assert_eq!(lens(&mut reader), [60, 60, 60]);
        offer(&long);
        assert_eq!(lens(&mut reader), [5000]);
        assert!(reader.recv_timeout(Duration::from_millis(1)).is_none());
    }

    #[test]
    fn captures_begin_end_and_see_only_their_point_and_filter() {
        let (_, depot) = Region::new(4, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 1);
        let (hooks, mut drops) = capture_of(4);
        let starts_with_7: FrameFilter =
            Arc::new(|packet: &Packet| packet.data().first() == Some(&7));
        let filter = Some(starts_with_7);
        let port = Capture { point: CapturePoint::Port(2), filter, frames: 4 };
        let mut port = hooks.capture(port).unwrap();
        let mut packet = Packet::copy_from(&mut pool, &[7]).unwrap();
        packet.time_ns = 5; // its own time counts before the worker's
        let seven = packet.duplicate(&mut pool).unwrap();
        packet.data_mut()[0] = 8;
        for (at, packet) in [
            (CapturePoint::Drops, &seven),
            (CapturePoint::Port(1), &seven),
            (CapturePoint::Port(2), &packet),
            (CapturePoint::Port(2), &seven),
        ] {
            hooks.offer(at, packet, 1, 0, false, None);
        }
        assert_eq!(drops.try_recv().map(|f| f.time_ns), Some(5));
        assert_eq!(port.try_recv().map(|f| f.bytes), Some(vec![7]));
        assert!(drops.try_recv().is_none() && port.try_recv().is_none());
        drop(drops);
        assert!(hooks.capturing());
        drop(port);
        assert!(!hooks.capturing());
        assert!(hooks.captures.load().is_empty());
    }

    /// Frames from several threads while the reader sleeps now and then: each is read or lost.
    #[test]
    fn no_frame_is_lost_without_being_counted() {
        const EACH: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let (_, depot) = Region::new(64, HugePages::Off).unwrap();
        let (hooks, mut reader) = capture_of(16);
        let workers: Vec<_> = (0..2u16)
            .map(|port| {
                let (hooks, mut pool) = (hooks.clone(), Pool::new(depot.clone(), 4));
                std::thread::spawn(move || {
                    let mut packet = Packet::copy_from(&mut pool, &[0; 3000]).unwrap();
                    for i in 0..EACH {
                        packet.data_mut()[..8].copy_from_slice(&i.to_ne_bytes());
                        hooks.offer(CapturePoint::Drops, &packet, 0, port, false, None);
                        if i % 64 == 0 {
                            std::thread::sleep(Duration::from_micros(50));
                        }
                    }
                    packet.free(&mut pool);
                })
            })
            .collect();
        let (mut read, mut last) = (0, [None; 2]);
        while read + reader.lost() < 2 * EACH {
            let Some(frame) = reader.recv_timeout(Duration::from_millis(50)) else { continue };
            let number = frame.bytes.first_chunk().copied().map(u64::from_ne_bytes);
            let last = &mut last[usize::from(frame.port)];
            assert!(*last < number, "frames of a worker keep their order");
            *last = number;
            read += 1;
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(read > 0 && reader.try_recv().is_none());
        assert_eq!(reader.running.free.len(), 16);
    }
}
