//! The follower that labels flows: it hears of packets and streams from the stage `flow`, and tells somebody of labels.
//!
//! ```text
//!  flow ─▶ Labels (Follower) ─▶ Labelling, one a flow ─▶ Hears: the stage `l7`, `shadeline l7`
//! ```
//!
//! Threads: a follower belongs to its worker.

use stream::record::Reason;
use stream::tcp::Want;
use stream::tracker::{Identity, OfFlow};
use stream::{FlowRecord, Side};

use super::label::{Confidence, Label};
use super::labelling::{Labelling, Options};
use crate::flow::follow::{Follower, Kept, Place};

/// Who is told of the labels of a worker's flows.
pub trait Hears: Send {
    /// How flows that begin are labelled.
    fn options(&mut self) -> Options;

    /// The least sure labels that records of flows get.
    fn least(&mut self) -> Confidence {
        Confidence::Medium
    }

    /// The packets of another chunk follow.
    fn begin(&mut self, _call: u32) {}

    /// A packet of a flow, whose bytes follow.
    fn packet(&mut self, _at: &Place, _packet: &OfFlow<'_>, _counted: &mut Counted) {}

    /// An ICMP error about a flow.
    fn error(&mut self, _at: &Place) {}

    /// What is known of the flow of the last packet, after its bytes.
    fn labelled(&mut self, _label: Option<Label>, _is_settled: bool, _counted: &mut Counted) {}

    /// The end of a flow, which no packet brings, follows.
    fn closing(&mut self) {}

    /// A flow has ended, at `time_ns`; `None` for one that had no payload of TCP or UDP.
    fn ended(&mut self, record: &FlowRecord, own: Option<&mut OfLabels>, time_ns: u64);

    /// No flow ends before `time_ns` any more.
    fn advanced(&mut self, _time_ns: u64) {}

    /// Flows end in the order of time, start and number; none before this one follows.
    fn ends_from(&mut self, _next: (u64, u64, u64)) {}

    /// There are no more flows.
    fn finished(&mut self) {}
}

/// What was counted of a flow, for [`Hears`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Its packets so far.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// The place at which they are counted, from 1; 0 for none.
    pub place: usize,
}

/// What is kept for a flow.
pub struct OfLabels {
    /// What is known of it.
    pub labelling: Labelling,
    /// What was counted of it.
    pub counted: Counted,
}

/// Labels the flows of a worker.
pub struct Labels<H> {
    hears: H,
}

impl<H: Hears> Labels<H> {
    /// Tells `hears`.
    pub fn new(hears: H) -> Self {
        Self { hears }
    }

    fn known(kept: &mut Kept) -> Option<&mut OfLabels> {
        kept.as_mut()?.downcast_mut()
    }
}

/// Whether a packet brings bytes of an application, as far as its headers say. Those of a fragment come with the whole.
fn has_payload(packet: &OfFlow<'_>) -> bool {
    let d = packet.input.decoded;
    match d.protocol {
        _ if packet.is_piece() => false,
        packet::IpProtocol::UDP => packet.datagram().is_some_and(|bytes| !bytes.is_empty()),
        packet::IpProtocol::TCP => {
            let begin = usize::from(d.l4_offset);
            let header = packet.input.frame.get(begin + 12).map_or(0, |byte| byte >> 4);
            d.l3_end() > begin + 4 * usize::from(header)
        }
        _ => false,
    }
}

impl OfLabels {
    fn look_at(&mut self, flow: &Identity, packet: &OfFlow<'_>) {
        if !has_payload(packet) {
            return;
        }
        self.labelling.packet();
        self.labelling.orient(flow);
        if let Some(bytes) = packet.datagram() {
            self.labelling.data(packet.side, bytes);
        }
    }
}

impl<H: Hears> Follower for Labels<H> {
    fn begin(&mut self, call: u32) {
        self.hears.begin(call);
    }

    fn packet(&mut self, flow: &Identity, kept: &mut Kept, at: &Place, packet: &OfFlow<'_>) {
        if kept.is_none() {
            let options = self.hears.options();
            let made = Labelling::new(flow, &options);
            *kept = made.map(|labelling| {
                Box::new(OfLabels { labelling, counted: Counted::default() }) as _
            });
        }
        let Some(own) = Self::known(kept) else {
            return self.hears.packet(at, packet, &mut Counted::default());
        };
        self.hears.packet(at, packet, &mut own.counted);
        if own.labelling.has_enough() {
            return self.hears.labelled(own.labelling.label(), true, &mut own.counted);
        }
        own.look_at(flow, packet);
        let (label, is_settled) = (own.labelling.label(), own.labelling.is_settled());
        self.hears.labelled(label, is_settled, &mut own.counted);
    }

    fn error(&mut self, _: &Identity, _: &mut Kept, at: &Place, _: &OfFlow<'_>) {
        self.hears.error(at);
    }

    /// A label that is final is that of all packets that follow, and what was passed over is counted when the flow ends.
    fn is_indifferent(&self, kept: &Kept) -> bool {
        let own = kept.as_ref().and_then(|own| own.downcast_ref::<OfLabels>());
        own.is_none_or(|own| own.labelling.has_enough())
    }

    fn datagram(&mut self, flow: &Identity, kept: &mut Kept, _: &Place, whole: &OfFlow<'_>) {
        let Some(own) = Self::known(kept).filter(|own| !own.labelling.has_enough()) else { return };
        own.look_at(flow, whole);
        let (label, is_settled) = (own.labelling.label(), own.labelling.is_settled());
        self.hears.labelled(label, is_settled, &mut own.counted);
    }

    fn closing(&mut self, _: &Identity) {
        self.hears.closing();
    }

    fn data(
        &mut self,
        flow: &Identity,
        kept: &mut Kept,
        side: Side,
        _offset: u64,
        bytes: &[u8],
    ) -> Want {
        let Some(own) = Self::known(kept) else { return Want::EnoughOfFlow };
        own.labelling.orient(flow);
        own.labelling.data(side, bytes);
        let (label, is_settled) = (own.labelling.label(), own.labelling.is_settled());
        self.hears.labelled(label, is_settled, &mut own.counted);
        if own.labelling.has_enough() { Want::EnoughOfFlow } else { Want::More }
    }

    fn gap(&mut self, _: &Identity, kept: &mut Kept, side: Side, _: u64, _: u64, _: u64) {
        if let Some(own) = Self::known(kept) {
            own.labelling.gap(side);
        }
    }

    fn application(&mut self, record: &FlowRecord, kept: &mut Kept) -> Option<&'static str> {
        let own = Self::known(kept)?;
        if record.reason != Reason::Active {
            own.labelling.finish();
        }
        let least = self.hears.least();
        let label = own.labelling.label().filter(|label| label.confidence >= least);
        label.map(|label| label.name)
    }

    fn ended(&mut self, record: &FlowRecord, _client: Side, kept: &mut Kept, time_ns: u64) {
        let own = Self::known(kept);
        self.hears.ended(record, own, time_ns);
    }

    fn advanced(&mut self, time_ns: u64) {
        self.hears.advanced(time_ns);
    }

    fn ends_from(&mut self, next: (u64, u64, u64)) {
        self.hears.ends_from(next);
    }

    fn finished(&mut self) {
        self.hears.finished();
    }
}
