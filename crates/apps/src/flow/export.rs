//! Records of flows for a collector (IPFIX) and for a table (Parquet), as `[flow]` asks for them.
//!
//! Threads: a follower for each worker; the exporter and the table have a thread each.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::config::Flow;
use flowlog::ipfix::{self, Exporter, Protocol};
use stream::{FlowRecord, Side};

use super::follow::{Follower, Kept, Listener};
use super::order::{Key, Ordered};
use super::outputs::{Counts, Output};

/// Takes records.
trait Taker: Output {
    /// Whether it wants flows that go on, too.
    fn wants_active(&self) -> bool {
        false
    }

    /// Takes a record, or counts it as lost. `waits`: it may wait for room.
    fn take(&self, record: &FlowRecord, waits: bool);
}

/// An output and who hears of flows for it.
type Opened = (Arc<dyn Output>, Arc<dyn Listener>);

/// Opens what the section asks for.
///
/// # Errors
/// The file cannot be made, in words.
pub(super) fn open(own: &Flow, is_live: bool) -> Result<Vec<Opened>, String> {
    let mut all = Vec::new();
    if let Some(collector) = own.ipfix {
        let protocol = if collector.is_tcp { Protocol::Tcp } else { Protocol::Udp };
        let config = ipfix::Config {
            observation_domain: own.ipfix_domain,
            templates_interval: own.ipfix_templates,
            linger: LINGER,
            ..ipfix::Config::new(collector.address, protocol)
        };
        let exporter = Exporter::start(config).map_err(|error| format!("flow.ipfix: {error}"))?;
        let taker = Arc::new(Ipfix { target: collector.to_string(), exporter });
        all.push(opened(taker, is_live));
    }
    if let Some(path) = &own.parquet {
        all.push(table(path, own.community_id_seed, is_live)?);
    }
    Ok(all)
}

/// How long the end waits for a collector.
const LINGER: Duration = Duration::from_secs(10);

fn opened(taker: Arc<impl Taker + 'static>, is_live: bool) -> Opened {
    let records = Records { taker: taker.clone(), is_sorted: !is_live, ordered: OnceLock::new() };
    (taker, Arc::new(records))
}

/// The collector of `ipfix`.
struct Ipfix {
    target: String,
    exporter: Exporter,
}

impl Output for Ipfix {
    fn key(&self) -> &'static str {
        "ipfix"
    }

    fn target(&self) -> String {
        self.target.clone()
    }

    fn counts(&self) -> Counts {
        let counters = self.exporter.counters();
        let lost = counters.lost_queue_full + counters.lost_unreachable;
        Counts { written: counters.records, lost }
    }

    fn last_error(&self) -> Option<String> {
        self.exporter.last_error()
    }

    fn close(&self) {
        self.exporter.close();
    }
}

impl Taker for Ipfix {
    fn wants_active(&self) -> bool {
        true
    }

    fn take(&self, record: &FlowRecord, waits: bool) {
        match waits {
            true => self.exporter.export_in_time(record),
            false => self.exporter.export(record),
        };
    }
}

#[cfg(not(feature = "parquet"))]
fn table(path: &std::path::Path, _: u16, _: bool) -> Result<Opened, String> {
    Err(format!(
        "flow.parquet: {}: this program was built without Parquet: build it with the feature `parquet`",
        path.display()
    ))
}

#[cfg(feature = "parquet")]
fn table(path: &std::path::Path, seed: u16, is_live: bool) -> Result<Opened, String> {
    use flowlog::parquet::{Options, Writer};

    struct Table {
        target: String,
        writer: Writer,
    }

    impl Output for Table {
        fn key(&self) -> &'static str {
            "parquet"
        }

        fn target(&self) -> String {
            self.target.clone()
        }

        fn counts(&self) -> Counts {
            let counters = self.writer.counters();
            let lost = counters.lost_queue_full + counters.lost_write;
            Counts { written: counters.written, lost }
        }

        fn last_error(&self) -> Option<String> {
            let error = self.writer.last_error();
            error.map(|error| format!("{}: {error}", self.target))
        }

        fn close(&self) {
            self.writer.close();
        }
    }

    impl Taker for Table {
        fn take(&self, record: &FlowRecord, waits: bool) {
            match waits {
                true => self.writer.push_in_time(record),
                false => self.writer.push(record),
            };
        }
    }

    let options = Options { community_id_seed: Some(seed), ..Options::default() };
    let target = path.display().to_string();
    let writer = Writer::start(path, options);
    let writer = writer.map_err(|error| format!("flow.parquet: {target}: {error}"))?;
    Ok(opened(Arc::new(Table { target, writer }), is_live))
}

/// Hears of flows for a taker.
struct Records<T> {
    taker: Arc<T>,
    /// Over captures.
    is_sorted: bool,
    ordered: OnceLock<Arc<Ordered<FlowRecord>>>,
}

impl<T: Taker + 'static> Listener for Records<T> {
    fn follower(&self, _: usize, _: usize) -> Box<dyn Follower> {
        let ordered = self.is_sorted.then(|| {
            let taker = self.taker.clone();
            let out = move |record: FlowRecord| taker.take(&record, true);
            self.ordered.get_or_init(|| Arc::new(Ordered::new(out))).clone()
        });
        let worker = ordered.as_ref().map_or(0, |ordered| ordered.join());
        Box::new(OfWorker { taker: self.taker.clone(), worker, ordered, items: Vec::new() })
    }
}

/// The follower of a worker.
struct OfWorker<T> {
    taker: Arc<T>,
    worker: usize,
    ordered: Option<Arc<Ordered<FlowRecord>>>,
    items: Vec<(Key, FlowRecord)>,
}

impl<T: Taker> OfWorker<T> {
    /// `place`: among the records of the flow at this time.
    fn put(&mut self, record: &FlowRecord, time_ns: u64, place: u32) {
        match self.ordered {
            None => self.taker.take(record, false),
            Some(_) => {
                let key = (time_ns, record.start_ns, record.id, place);
                self.items.push((key, record.clone()));
            }
        }
    }
}

impl<T: Taker> Follower for OfWorker<T> {
    fn goes_on(&mut self, record: &FlowRecord, _client: Side, _kept: &mut Kept, time_ns: u64) {
        if self.taker.wants_active() {
            self.put(record, time_ns, 0);
        }
    }

    fn ended(&mut self, record: &FlowRecord, _client: Side, _kept: &mut Kept, time_ns: u64) {
        self.put(record, time_ns, 1);
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

#[cfg(all(test, not(feature = "parquet")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_parquet_says_so() {
        let own = Flow { parquet: Some("flows.parquet".into()), ..Flow::default() };
        let error = open(&own, false).err().unwrap_or_default();
        assert!(
            error.contains("flow.parquet: flows.parquet") && error.contains("feature `parquet`")
        );
    }
}
