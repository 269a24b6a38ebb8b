//! Flow events in Suricata's EVE JSON format, as `events` of `[flow]` asks for them.
//!
//! `event_types` says which lines there are (`anomalies` has the kinds of anomalies). Live, lines go to the writer as
//! they come, and what it cannot take is dropped and counted. Over captures they are sorted ([`super::order`]), and the
//! workers wait for the writer.
//!
//! Threads: a follower for each worker, one writer.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::config::{EventType, Flow};
use flowlog::eve::{Anomaly, AnomalyKind, AssociationEvent, Context, Eve, Range};
use flowlog::sink::{self, Sink, Target};
use packet::IpProtocol;
use stream::tcp::Event;
use stream::tracker::{self, Fragments, Identity, Input, Reject, Unseen};
use stream::{FlowRecord, Side};

use super::anomalies;
use super::follow::{Follower, Kept, Listener, Place};
use super::order::{Key, Ordered};
use super::outputs::{Counts, Output};
use super::timestamps::{Stamped, Timestamps};
use crate::firewall::refused::Refused;

/// Writes events.
pub struct Events {
    writes: Writes,
    target: String,
    /// Over captures.
    is_sorted: bool,
    ordered: OnceLock<Arc<Ordered<Vec<u8>>>>,
}

/// What is written, and where to.
#[derive(Clone)]
struct Writes {
    eve: Eve,
    types: Arc<[EventType]>,
    sink: Arc<Sink>,
    /// Names of ports, by number.
    ports: Arc<[String]>,
}

impl Writes {
    fn has(&self, kind: EventType) -> bool {
        self.types.contains(&kind)
    }

    /// By the number of a port.
    fn context(&self, port: u16, at_ns: u64) -> Context<'_> {
        let in_iface = self.ports.get(usize::from(port)).map_or("", String::as_str);
        Context { in_iface, at_ns, ..<_>::default() }
    }
}

impl Events {
    /// Opens the file or socket of `events`.
    ///
    /// # Errors
    /// It cannot be opened, in words.
    pub fn open(own: &Flow, ports: Arc<[String]>, is_live: bool) -> Result<Self, String> {
        let path = own.events.clone().unwrap_or_default();
        let text = path.display().to_string();
        let target = match text.strip_prefix("unix:") {
            Some(path) => Target::Unix(PathBuf::from(path)),
            None => Target::File(path),
        };
        let options = sink::Options { linger: Duration::from_secs(10), ..<_>::default() };
        let sink = Sink::start(target, options);
        let sink = sink.map_err(|error| format!("flow.events: {text}: {error}"))?;
        if sink.is_waiting() {
            tracing::warn!(
                "flow.events: {text}: the named pipe has no reader: events wait for one"
            );
        }
        let writes = Writes {
            eve: Eve { community_id_seed: Some(own.community_id_seed) },
            types: own.event_types.clone().into(),
            sink: Arc::new(sink),
            ports,
        };
        Ok(Self { writes, target: text, is_sorted: !is_live, ordered: <_>::default() })
    }
}

/// Writes events of security associations, for the part that has them.
#[derive(Clone)]
pub struct EventLines {
    eve: Eve,
    sink: Arc<Sink>,
}

impl EventLines {
    /// Writes a line.
    pub fn association(&self, own: &AssociationEvent) {
        let mut line = Vec::new();
        self.eve.association(own, &mut line);
        self.sink.push(&line);
    }
}

impl Events {
    /// For events of security associations, if there are any to be: live, and with the type in `event_types`.
    pub fn lines(&self) -> Option<EventLines> {
        let Writes { eve, sink, .. } = &self.writes;
        let is_wanted = !self.is_sorted && self.writes.has(EventType::Ipsec);
        is_wanted.then(|| EventLines { eve: eve.clone(), sink: sink.clone() })
    }
}

impl Output for Events {
    fn key(&self) -> &'static str {
        "events"
    }

    fn target(&self) -> String {
        self.target.clone()
    }

    fn counts(&self) -> Counts {
        let counters = self.writes.sink.counters();
        let lost = counters.lost_queue_full + counters.lost_not_connected + counters.lost_write;
        Counts { written: counters.written, lost }
    }

    fn last_error(&self) -> Option<String> {
        self.writes.sink.last_error()
    }

    fn says_losses(&self) -> bool {
        true
    }

    fn reopen(&self) {
        self.writes.sink.reopen();
    }

    fn close(&self) {
        self.writes.sink.close();
    }
}

impl Listener for Events {
    fn follower(&self, _: usize, _: usize) -> Box<dyn Follower> {
        let ordered = self.is_sorted.then(|| {
            let sink = self.writes.sink.clone();
            let out = move |line: Vec<u8>| {
                let _ = sink.push_in_time(&line);
            };
            self.ordered.get_or_init(|| Arc::new(Ordered::new(out))).clone()
        });
        let worker = ordered.as_ref().map_or(0, |ordered| ordered.join());
        Box::new(Lines {
            writes: self.writes.clone(),
            worker,
            ordered,
            line: Vec::new(),
            items: Vec::new(),
            strays: 0,
        })
    }
}

/// The follower of a worker.
struct Lines {
    writes: Writes,
    worker: usize,
    ordered: Option<Arc<Ordered<Vec<u8>>>>,
    line: Vec<u8>,
    items: Vec<(Key, Vec<u8>)>,
    /// Lines of packets that belong to no flow.
    strays: u32,
}

/// What a follower keeps of a flow.
#[derive(Default)]
struct OfFlow {
    /// Lines that it has had.
    lines: u32,
    timestamps: Timestamps,
}

fn kept_of(kept: &mut Kept) -> Option<&mut OfFlow> {
    kept.get_or_insert_with(|| Box::new(OfFlow::default())).downcast_mut::<OfFlow>()
}

impl Lines {
    /// Hands over the line that is there, of a flow by its start and number.
    fn put(&mut self, kept: &mut Kept, flow: (u64, u64), time_ns: u64) {
        let number = kept_of(kept).map_or(0, |own| {
            own.lines += 1;
            own.lines
        });
        self.put_at((time_ns, flow.0, flow.1, number));
    }

    fn put_at(&mut self, key: Key) {
        if self.line.is_empty() {
            return;
        }
        if self.ordered.is_some() {
            self.items.push((key, std::mem::take(&mut self.line)));
        } else {
            self.writes.sink.push(&self.line);
            self.line.clear();
        }
    }

    /// Something odd in a connection.
    fn odd(
        &mut self,
        (flow, kept): (&Identity, &mut Kept),
        side: Side,
        kind: AnomalyKind,
        range: Option<Range>,
        time_ns: u64,
    ) {
        if !self.writes.has(EventType::Anomaly) {
            return;
        }
        let end = |side: Side| (flow.key.address(side), flow.key.port(side));
        let anomaly = Anomaly {
            kind,
            flow_id: Some(flow.id),
            protocol: flow.key.protocol,
            src: end(side),
            dst: end(side.other()),
            vlans: [0; 2],
            range,
        };
        let context = Context { in_iface: "", at_ns: time_ns, ..<_>::default() };
        self.writes.eve.anomaly(&anomaly, context, &mut self.line);
        self.put(kept, (flow.start_ns, flow.id), time_ns);
    }

    /// Something odd that belongs to no flow.
    fn stray(&mut self, anomaly: &Anomaly, context: Context<'_>) {
        let mut line = std::mem::take(&mut self.line);
        self.writes.eve.anomaly(anomaly, context, &mut line);
        self.line = line;
        self.put_stray(context.at_ns);
    }

    /// Hands over the line that is there, of a packet alone. Those between the same ends come to the same worker, in their order.
    fn put_stray(&mut self, at_ns: u64) {
        let words = self
            .line
            .chunks(8)
            .map(|bytes| bytes.iter().fold(0, |word: u64, byte| word << 8 | u64::from(*byte)));
        let hash = words.fold(0, |hash, word| chunk::hash::key64(word, hash));
        self.strays = self.strays.wrapping_add(1);
        self.put_at((at_ns, 0, hash, self.strays));
    }
}

impl Follower for Lines {
    /// Of packets that are passed over it misses wrong checksums and old timestamps, which nobody verifies in them. All else that is
    /// odd is heard of.
    fn is_indifferent(&self, _: &Kept) -> bool {
        true
    }

    fn packet(
        &mut self,
        flow: &Identity,
        kept: &mut Kept,
        _: &Place,
        packet: &tracker::OfFlow<'_>,
    ) {
        let is_tcp = flow.key.protocol == IpProtocol::TCP.0 && !packet.is_rest;
        if !is_tcp || !self.writes.has(EventType::Anomaly) {
            return;
        }
        let (side, time_ns) = (packet.side, packet.input.time_ns);
        let Some(stamped) = Stamped::of(packet.input) else { return };
        let is_old =
            kept_of(kept).is_some_and(|own| own.timestamps.is_old(side, &stamped, time_ns));
        if is_old {
            self.odd((flow, kept), side, AnomalyKind::OldTimestamp, None, time_ns);
        }
    }

    fn gap(
        &mut self,
        flow: &Identity,
        kept: &mut Kept,
        side: Side,
        offset: u64,
        bytes: u64,
        time_ns: u64,
    ) {
        let range = Some(Range { offset, bytes });
        self.odd((flow, kept), side, AnomalyKind::Gap, range, time_ns);
    }

    fn event(&mut self, flow: &Identity, kept: &mut Kept, side: Side, event: Event, time_ns: u64) {
        if let Some(kind) = anomalies::of_event(event) {
            self.odd((flow, kept), side, kind, None, time_ns);
        }
    }

    fn rejected(&mut self, _: Option<usize>, input: &Input<'_>, why: Reject) {
        if !self.writes.has(EventType::Anomaly) {
            return;
        }
        if let Some(anomaly) = anomalies::of_packet(input, why) {
            let writes = self.writes.clone();
            self.stray(&anomaly, writes.context(input.port, input.time_ns));
        }
    }

    fn not_looked_into(&mut self, _: usize, input: &Input<'_>, why: Unseen) {
        if self.writes.has(EventType::Anomaly) {
            let writes = self.writes.clone();
            let anomaly = anomalies::of_tunnel(input, why);
            self.stray(&anomaly, writes.context(input.port, input.time_ns));
        }
    }

    fn fragments(&mut self, fragments: &Fragments) -> bool {
        if self.writes.has(EventType::Anomaly)
            && let Some(anomaly) = anomalies::of_fragments(fragments)
        {
            let context = Context { in_iface: "", at_ns: fragments.time_ns, ..<_>::default() };
            self.stray(&anomaly, context);
        }
        false
    }

    fn asks_for_refused(&self) -> bool {
        self.writes.has(EventType::Drop)
    }

    fn refused(&mut self, packet: &Refused, flow: Option<u64>) {
        if self.asks_for_refused() {
            let Writes { eve, ports, .. } = &self.writes;
            let _ = packet.write(eve, ports, flow, &mut self.line);
            self.put_stray(packet.time_ns);
        }
    }

    fn goes_on(&mut self, record: &FlowRecord, _client: Side, kept: &mut Kept, time_ns: u64) {
        if self.writes.has(EventType::Active) {
            let context = self.writes.context(record.port, time_ns);
            self.writes.eve.flow(record, context, &mut self.line);
            self.put(kept, (record.start_ns, record.id), time_ns);
        }
    }

    fn ended(&mut self, record: &FlowRecord, _client: Side, kept: &mut Kept, time_ns: u64) {
        let context = self.writes.context(record.port, time_ns);
        if self.writes.has(EventType::Flow) {
            self.writes.eve.flow(record, context, &mut self.line);
        }
        if self.writes.has(EventType::Netflow) {
            self.writes.eve.netflow(record, context, &mut self.line);
        }
        self.put(kept, (record.start_ns, record.id), time_ns);
    }

    fn advanced(&mut self, time_ns: u64) {
        if let Some(ordered) = &self.ordered {
            ordered.advance(self.worker, &mut self.items, time_ns);
        }
    }

    fn finished(&mut self) {
        self.advanced(u64::MAX);
    }
}
