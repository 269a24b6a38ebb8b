//! Fragments: only the first one has ports, so datagrams are put together before they are translated, as Linux does.
//! `rewrite` cuts them again to the MTU of their way out.
//!
//! RFC 6146 §3.4 asks for fragments in any order, with bounds: those of [`stream::defrag`].

use chunk::{Packet, Verdict};
use controlplane::Tables;
use engine::Context;
use packet::Decoded;
use stream::defrag::{Config, Defragmenter, Outcome, Output};

use super::{Current, reasons};

/// Fragments of a worker that wait for others.
pub(super) struct Fragments {
    defragmenter: Defragmenter<Packet>,
    linear: Vec<u8>,
    /// Datagrams that became whole, and what becomes of fragments.
    whole: Vec<u8>,
    is_whole: bool,
    done: Vec<Packet>,
    failed: Vec<Packet>,
}

impl Fragments {
    pub(super) fn new(seed: u64) -> Self {
        let defragmenter = Defragmenter::new(Config { seed, ..Config::default() });
        let most = defragmenter.config().fragments_per_datagram + 1;
        Self {
            linear: Vec::with_capacity(66_000),
            whole: Vec::with_capacity(66_000),
            is_whole: false,
            done: Vec::with_capacity(most),
            failed: Vec::with_capacity(defragmenter.config().fragments),
            defragmenter,
        }
    }

    pub(super) fn held(&self) -> usize {
        self.defragmenter.fragments()
    }

    /// Takes a fragment, the packet of row `row`; its verdict. A datagram that it completes is handed over to the worker of its
    /// session. Over captures there is one worker, and the datagram takes the place of the fragment (`None`): handed over, it
    /// would come after all packets in flight, and how many those are depends on what shades.
    pub(super) fn take(
        &mut self,
        packet: &mut Packet,
        d: &Decoded,
        row: usize,
        now_ns: u64,
        current: &Current,
        cx: &mut Context<'_, Tables>,
    ) -> Option<u32> {
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
            return Some(Verdict::NEXT.0);
        }
        if std::mem::take(&mut self.is_whole) {
            match Packet::copy_from(cx.pool, &self.whole) {
                Some(mut datagram) => {
                    (datagram.mark, datagram.port, datagram.time_ns) = (mark, port, time_ns);
                    self.done.drain(..).for_each(|own| own.free(cx.pool));
                    if !cx.is_live() {
                        *packet = datagram;
                        self.drop_failed(cx);
                        return None;
                    }
                    let rules = current.read().map(|rules| rules.clone());
                    let rules = rules.unwrap_or_else(|poisoned| poisoned.into_inner().clone());
                    let hash = super::destination::hash_of(&rules, datagram.data());
                    let place = cx.place(super::destination::PLACE).unwrap_or(0);
                    cx.hand_over(datagram, Some(row), hash, place);
                }
                None => self.failed.append(&mut self.done),
            }
        }
        self.drop_failed(cx);
        Some(Verdict::TAKEN.0)
    }

    fn drop_failed(&mut self, cx: &mut Context<'_, Tables>) {
        for own in self.failed.drain(..) {
            cx.drop_packet(own, reasons::NAT_FRAGMENT);
        }
    }

    /// Ends datagrams that have waited too long.
    pub(super) fn expire(&mut self, now_ns: u64, cx: &mut Context<'_, Tables>) {
        let failed = &mut self.failed;
        self.defragmenter.expire(now_ns, &mut |output| failed.extend(output.tokens));
        self.drop_failed(cx);
    }

    pub(super) fn drain(&mut self, cx: &mut Context<'_, Tables>) {
        let failed = &mut self.failed;
        self.defragmenter.clear(&mut |output: Output<'_, Packet>| failed.extend(output.tokens));
        self.drop_failed(cx);
    }
}
