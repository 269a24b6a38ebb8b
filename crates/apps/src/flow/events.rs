//! Flow events in Suricata's EVE JSON format, as `events` of `[flow]` asks for them.
//!
//! Each flow that ends is one line (`flow`), and each gap in a byte stream another one (`anomaly`). Live,
//! lines go to the writer as they come, and what it cannot take is dropped and counted. Over captures they are sorted
//! ([`super::order`]), and the workers wait for the writer.
//!
//! Threads: a follower for each worker, one writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flowlog::eve::{Anomaly, AnomalyKind, Context, Eve};
use flowlog::sink::{self, Sink, Target};
use stream::tracker::Identity;
use stream::{FlowRecord, Side};

use super::follow::{Follower, Kept, Listener};
use super::order::{Key, Ordered};

/// How long a worker waits for a writer that has no room, over captures.
const WAIT: Duration = Duration::from_millis(1);

/// Writes events.
pub struct Events {
    eve: Eve,
    sink: Arc<Sink>,
    /// Names of ports, by number.
    ports: Arc<[String]>,
    /// Over captures.
    is_sorted: bool,
    ordered: std::sync::OnceLock<Arc<Ordered<Vec<u8>>>>,
}

impl Events {
    /// Opens the file or socket of `events`.
    ///
    /// # Errors
    /// It cannot be opened, in words.
    pub fn open(
        target: &Path,
        seed: u16,
        ports: Arc<[String]>,
        is_live: bool,
    ) -> Result<Self, String> {
        let text = target.to_string_lossy();
        let target = match text.strip_prefix("unix:") {
            Some(path) => Target::Unix(PathBuf::from(path)),
            None => Target::File(target.to_owned()),
        };
        let options = sink::Options { linger: Duration::from_secs(10), ..<_>::default() };
        let sink =
            Sink::start(target, options).map_err(|error| format!("events: {text}: {error}"))?;
        Ok(Self {
            eve: Eve { community_id_seed: Some(seed) },
            sink: Arc::new(sink),
            ports,
            is_sorted: !is_live,
            ordered: <_>::default(),
        })
    }

    /// Where lines go.
    pub fn sink(&self) -> &Arc<Sink> {
        &self.sink
    }
}

impl Listener for Events {
    fn follower(&self, worker: usize, workers: usize) -> Box<dyn Follower> {
        let ordered = self.is_sorted.then(|| {
            let sink = self.sink.clone();
            let out = move |line: Vec<u8>| {
                while !sink.push(&line) && sink.last_error().is_none() {
                    std::thread::sleep(WAIT);
                }
            };
            self.ordered.get_or_init(|| Arc::new(Ordered::new(workers, out))).clone()
        });
        Box::new(Lines {
            eve: self.eve.clone(),
            sink: self.sink.clone(),
            ports: self.ports.clone(),
            worker,
            ordered,
            line: Vec::new(),
            items: Vec::new(),
        })
    }
}

/// The follower of a worker.
struct Lines {
    eve: Eve,
    sink: Arc<Sink>,
    ports: Arc<[String]>,
    worker: usize,
    ordered: Option<Arc<Ordered<Vec<u8>>>>,
    line: Vec<u8>,
    items: Vec<(Key, Vec<u8>)>,
}

/// What a follower keeps: how many lines the flow has had.
type Lined = u32;

impl Lines {
    fn put(&mut self, kept: &mut Kept, flow: (u64, u64), time_ns: u64) {
        let known = kept.get_or_insert_with(|| Box::new(0 as Lined)).downcast_mut::<Lined>();
        let number = known.map_or(0, |number| {
            *number += 1;
            *number
        });
        if self.ordered.is_some() {
            let (start_ns, id) = flow;
            let line = std::mem::take(&mut self.line);
            self.items.push(((time_ns, start_ns, id, number), line));
        } else {
            self.sink.push(&self.line);
            self.line.clear();
        }
    }
}

impl Follower for Lines {
    fn gap(
        &mut self,
        flow: &Identity,
        kept: &mut Kept,
        side: Side,
        offset: u64,
        bytes: u64,
        time_ns: u64,
    ) {
        let end = |side: Side| (flow.key.address(side), flow.key.port(side));
        let anomaly = Anomaly {
            kind: AnomalyKind::Gap,
            flow_id: flow.id,
            src: end(side),
            dst: end(side.other()),
            vlans: [0; 2],
            offset,
            bytes,
        };
        let context = Context { in_iface: "", at_ns: time_ns, is_alerted: false };
        self.eve.anomaly(&anomaly, context, &mut self.line);
        self.put(kept, (flow.start_ns, flow.id), time_ns);
    }

    fn ended(&mut self, record: &FlowRecord, _client: Side, kept: &mut Kept, time_ns: u64) {
        let name = self.ports.get(usize::from(record.port));
        let in_iface = name.map_or("", String::as_str);
        let context = Context { in_iface, at_ns: time_ns, is_alerted: false };
        self.eve.flow(record, context, &mut self.line);
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
