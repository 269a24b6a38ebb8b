//! Fragments that are held back until their datagram is whole, where a stage behind `flow` may drop what it inspects.
//!
//! A stage that sees the datagram with its last fragment decides too late for the others, which have gone on. So each
//! fragment waits, as in Linux's and Suricata's inline defragmentation. A datagram that is whole is inspected with the first of
//! its fragments, and the fragments go on as they came, in the order in which they came, or are dropped for the one reason.
//!
//! ```text
//!  a  1  b  2  c  3  d         1 2 3: fragments of one datagram, a b c d: other packets
//!     └─────┴─────┤ held
//!  a  b  c │ 1 2 3 │ d         in the place of the one that completed it ([`Context::put_before`])
//!            └ inspected here, all of it
//! ```
//!
//! What never becomes whole is dropped: at the time-out, where memory is needed, and where fragments contradict one another,
//! because the hosts behind may see other bytes than were inspected. Fragments that overlap with the same bytes are let through.
//! Bounds are those of [`stream::defrag`], and a share of the worker's cells.
//!
//! Threads: one worker.

use chunk::{DropReason, Packet};
use engine::Context;
use packet::Decoded;
use packet::tunnel::Path;
use stream::defrag::{
    Config, DatagramKey, Defragmenter, Fragment, Notes, Outcome, Output, Policy, Reason,
};
use stream::tracker::{Fragments, Tracked};

use super::reasons::held;

/// Of the cells of all workers, one in so many may hold fragments.
const CELLS: usize = 8;

/// Where there are very few cells, a datagram may still have so many fragments.
const FEW: usize = 16;

/// Bytes of a cell.
const CELL: usize = chunk::CELL_BYTES;

/// A datagram whose fragments go on now.
pub(super) struct Released {
    pub(super) key: DatagramKey,
    /// How many of them are still to come.
    pub(super) left: usize,
    /// All of them, and their bytes.
    pub(super) frames: (u64, u64),
    /// What it was found to be, with the first of them.
    pub(super) tracked: Option<Tracked>,
    /// A stage dropped one of them.
    pub(super) dropped: Option<DropReason>,
}

/// What became of a fragment.
pub(super) enum Taken {
    /// It waits, or was dropped.
    Waits,
    /// Its datagram is whole: [`Held::done`].
    Whole,
}

/// The fragments of a worker.
pub(super) struct Held {
    config: Config,
    /// Workers that have a part of the cells.
    workers: usize,
    /// The fragment at hand, in one piece.
    linear: Vec<u8>,
    /// Its memory is taken with the first fragment.
    defragmenter: Option<Defragmenter<Packet>>,
    /// Fragments of the datagram that became whole, in the order in which they came.
    pub(super) done: Vec<Packet>,
    /// Its bytes, and where its IP header is.
    pub(super) whole: Vec<u8>,
    pub(super) ip_at: usize,
    pub(super) released: Option<Released>,
    failed: Vec<(Packet, DropReason)>,
    /// What followers are to hear, with the number of fragments.
    pub(super) news: Vec<(Fragments, u64)>,
}

impl Held {
    /// With these bounds and time-outs. Of IPv4, too, bytes that differ count as a conflict.
    pub(super) fn new(config: Config, workers: usize) -> Self {
        Self {
            config: Config { policy_v4: Policy::First, ..config },
            workers: workers.max(1),
            linear: Vec::new(),
            defragmenter: None,
            done: Vec::new(),
            whole: Vec::new(),
            ip_at: 0,
            released: None,
            failed: Vec::new(),
            news: Vec::new(),
        }
    }

    /// The headers of the datagram that became whole; `piece` are those of one of its fragments.
    pub(super) fn decoded(&self, piece: &Decoded) -> Decoded {
        match self.ip_at {
            // It was in a tunnel, without a link header.
            0 => Decoded {
                vlan_tci: piece.vlan_tci,
                vlan_count: piece.vlan_count,
                ..packet::decode::decode_ip(&self.whole, self.whole.len())
            },
            _ => packet::decode(&self.whole, self.whole.len()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.defragmenter.as_ref().map_or(0, Defragmenter::fragments)
    }

    /// When it must look for fragments that waited too long, in nanoseconds.
    pub(super) fn next_timeout_ns(&self) -> Option<u64> {
        self.defragmenter.as_ref()?.next_timeout_ns()
    }

    /// Whether a packet that [went through before](Context::is_again) is one of those that go on.
    pub(super) fn is_released(&self, fragment: &Fragment<'_>) -> bool {
        self.released.as_ref().is_some_and(|own| own.left > 0 && own.key == fragment.key)
    }

    /// Takes a fragment, decoded; in tunnels it is what begins at byte `at` of the packet.
    pub(super) fn take<T>(
        &mut self,
        packet: Packet,
        (d, inner): (&Decoded, Option<&(usize, Path)>),
        now_ns: u64,
        cx: &mut Context<'_, T>,
    ) -> Taken {
        let (config, cells) = (self.config, cx.pool.region().cells() as usize);
        let cells = cells / CELLS / self.workers;
        let defragmenter = self.defragmenter.get_or_insert_with(|| {
            let (fragments, bytes) = (config.fragments.min(cells), config.bytes.min(cells * CELL));
            // A datagram may not have more of them than all may.
            let fragments_per_datagram = config.fragments_per_datagram.min(cells.max(FEW));
            Defragmenter::new(Config { fragments, fragments_per_datagram, bytes, ..config })
        });
        // What a link has behind an IP packet is in no bound but that of fragments: cells full of it are refused.
        let end = inner.map_or(0, |own| own.0) + d.l3_end();
        if packet.frame_len().saturating_sub(end) >= CELL {
            let (key, notes) = (DatagramKey::new(d, 0), Notes::default());
            let failed = Some(Reason::TooLong);
            self.news.push((Fragments { key, failed, notes, time_ns: now_ns }, 1));
            cx.drop_packet(packet, held::FRAGMENT_INVALID);
            return Taken::Waits;
        }
        self.linear.clear();
        packet.segments().for_each(|segment| self.linear.extend_from_slice(segment));
        let frame = &self.linear[inner.map_or(0, |own| own.0).min(self.linear.len())..];
        let (done, whole, ip_at) = (&mut self.done, &mut self.whole, &mut self.ip_at);
        let (failed, news, released) = (&mut self.failed, &mut self.news, &mut self.released);
        let mut is_whole = false;
        let mut out = |output: Output<'_, Packet>| {
            let count = output.tokens.len() as u64;
            let mut note = |failed| news.push((ended(&output, failed, now_ns, &config), count));
            match output.outcome {
                Outcome::Whole { .. } if output.notes.conflicts > 0 => {
                    note(Some(Reason::Overlap));
                    failed.extend(output.tokens.map(|own| (own, held::FRAGMENT_CONFLICT)));
                }
                Outcome::Whole { frame, ip_at: at } => {
                    note(None);
                    whole.clear();
                    whole.extend_from_slice(frame);
                    (*ip_at, is_whole) = (at, true);
                    done.extend(output.tokens);
                    let bytes = done.iter().map(|own| own.frame_len() as u64).sum();
                    *released = Some(Released {
                        key: output.key,
                        left: done.len(),
                        frames: (count, bytes),
                        tracked: None,
                        dropped: None,
                    });
                }
                Outcome::Failed(why) => {
                    note(Some(why));
                    failed.extend(output.tokens.map(|own| (own, held::of(why))));
                }
            }
        };
        match inner.and_then(|(_, path)| fragment(d, frame, Some(path))) {
            Some(fragment) => defragmenter.push(&fragment, packet, now_ns, &mut out),
            // A fragment always comes back through `out`.
            None => {
                let other = defragmenter.push_frame(d, frame, packet, now_ns, &mut out);
                self.failed.extend(other.map(|packet| (packet, held::FRAGMENT_INVALID)));
            }
        }
        self.drop_failed(cx);
        if is_whole { Taken::Whole } else { Taken::Waits }
    }

    fn drop_failed<T>(&mut self, cx: &mut Context<'_, T>) {
        for (packet, reason) in self.failed.drain(..) {
            cx.drop_packet(packet, reason);
        }
    }

    /// Ends datagrams that have waited too long at a time, or all of them.
    pub(super) fn end<T>(&mut self, now_ns: u64, ends_all: bool, cx: &mut Context<'_, T>) {
        let config = self.config;
        let Some(defragmenter) = &mut self.defragmenter else { return };
        let (failed, news) = (&mut self.failed, &mut self.news);
        let mut out = |output: Output<'_, Packet>| {
            if let Outcome::Failed(why) = output.outcome {
                let count = output.tokens.len() as u64;
                news.push((ended(&output, Some(why), now_ns, &config), count));
                failed.extend(output.tokens.map(|own| (own, held::of(why))));
            }
        };
        defragmenter.expire(now_ns, &mut out);
        if ends_all {
            defragmenter.clear(&mut out);
        }
        self.drop_failed(cx);
    }
}

/// What followers hear of a datagram. One that was not whole in time ended when that was over.
fn ended(
    output: &Output<'_, Packet>,
    failed: Option<Reason>,
    time_ns: u64,
    config: &Config,
) -> Fragments {
    let (key, notes) = (output.key, output.notes);
    let time_ns = match failed {
        Some(Reason::Timeout) => output.start_ns.saturating_add(config.timeout_ns(key.family)),
        _ => time_ns,
    };
    Fragments { key, failed, notes, time_ns }
}

/// The fragment in a frame, by what it is in the tunnels around it.
pub(super) fn fragment<'a>(
    d: &Decoded,
    frame: &'a [u8],
    path: Option<&Path>,
) -> Option<Fragment<'a>> {
    let mut fragment = Fragment::from_frame(d, frame).ok()??;
    if let Some(path) = path {
        fragment.key.tunnels = path.key();
    }
    Some(fragment)
}
