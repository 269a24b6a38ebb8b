//! Fragments that stages put together before they look at a datagram, for only the first one has ports, and ESP is sealed as a
//! whole.
//!
//! RFC 6146 §3.4 asks for fragments in any order, with bounds: those of [`stream::defrag`].

use chunk::{DropReason, Packet};
use controlplane::Tables;
use engine::Context;
use packet::Decoded;
use stream::defrag::{Config, Defragmenter, Outcome, Output};

/// What became of a packet.
pub(crate) enum Taken {
    /// It is no fragment, and still there.
    Nothing,
    /// It waits for others, or was dropped.
    Waits,
    /// It completes this datagram.
    Whole(Packet),
}

/// Fragments of a worker that wait for others.
pub(crate) struct Fragments {
    /// What fragments are dropped for whose datagram does not become whole.
    reason: DropReason,
    defragmenter: Defragmenter<Packet>,
    linear: Vec<u8>,
    /// Datagrams that became whole, and what becomes of fragments.
    whole: Vec<u8>,
    is_whole: bool,
    done: Vec<Packet>,
    failed: Vec<Packet>,
}

impl Fragments {
    pub(crate) fn new(seed: u64, reason: DropReason) -> Self {
        let defragmenter = Defragmenter::new(Config { seed, ..Config::default() });
        let most = defragmenter.config().fragments_per_datagram + 1;
        Self {
            reason,
            linear: Vec::with_capacity(66_000),
            whole: Vec::with_capacity(66_000),
            is_whole: false,
            done: Vec::with_capacity(most),
            failed: Vec::with_capacity(defragmenter.config().fragments),
            defragmenter,
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.defragmenter.fragments()
    }

    /// Takes a fragment.
    pub(crate) fn take(
        &mut self,
        packet: &mut Packet,
        d: &Decoded,
        now_ns: u64,
        cx: &mut Context<'_, Tables>,
    ) -> Taken {
        let (mark, port, time_ns) = (packet.mark, packet.port, packet.time_ns);
        let own = std::mem::replace(packet, Packet::empty());
        self.linear.clear();
        own.segments().for_each(|segment| self.linear.extend_from_slice(segment));
        let (whole, is_whole) = (&mut self.whole, &mut self.is_whole);
        let (done, failed) = (&mut self.done, &mut self.failed);
        let mut out = |output: Output<'_, Packet>| match output.outcome {
            Outcome::Whole { frame, .. } => {
                whole.clear();
                whole.extend_from_slice(frame);
                *is_whole = true;
                done.extend(output.tokens);
            }
            Outcome::Failed(_) => failed.extend(output.tokens),
        };
        if let Some(own) = self.defragmenter.push_frame(d, &self.linear, own, now_ns, &mut out) {
            *packet = own; // not a fragment
            return Taken::Nothing;
        }
        let mut taken = Taken::Waits;
        if std::mem::take(&mut self.is_whole) {
            match Packet::copy_from(cx.pool, &self.whole) {
                Some(mut datagram) => {
                    (datagram.mark, datagram.port, datagram.time_ns) = (mark, port, time_ns);
                    self.done.drain(..).for_each(|own| own.free(cx.pool));
                    taken = Taken::Whole(datagram);
                }
                None => self.failed.append(&mut self.done),
            }
        }
        self.drop_failed(cx);
        taken
    }

    fn drop_failed(&mut self, cx: &mut Context<'_, Tables>) {
        for own in self.failed.drain(..) {
            cx.drop_packet(own, self.reason);
        }
    }

    /// Ends datagrams that have waited too long.
    pub(crate) fn expire(&mut self, now_ns: u64, cx: &mut Context<'_, Tables>) {
        let failed = &mut self.failed;
        self.defragmenter.expire(now_ns, &mut |output| failed.extend(output.tokens));
        self.drop_failed(cx);
    }

    pub(crate) fn drain(&mut self, cx: &mut Context<'_, Tables>) {
        let failed = &mut self.failed;
        self.defragmenter.clear(&mut |output: Output<'_, Packet>| failed.extend(output.tokens));
        self.drop_failed(cx);
    }
}
