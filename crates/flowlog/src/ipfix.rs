//! IPFIX: flow records for collectors, over UDP and TCP (RFC 7011).
//!
//! A record of the flow table becomes two IPFIX records, one for each direction that sent packets. RFC 5103 would have
//! both directions in one record, with reverse elements of the enterprise 29305. But nfdump 1.7.1 reads of those only the
//! reverse counts, and stores the reverse TCP flags over the forward ones; and a collector that does not know RFC 5103
//! loses a whole direction. Both records have one `flowId`, and `nfdump -B` joins them by their 5-tuple.
//!
//! *Long flows* are reported again and again ([`Reason::Active`](stream::record::Reason)), always with totals since their
//! start. IPFIX exports what came since the last record (`ipfix/deltas.rs`): the exporter subtracts what it
//! exported, and the record starts where the last one ended, so that rates are right. It is done here, behind the queue:
//! a record that found no room is not missing from the counts, since the next one has its packets, too.
//!
//! ```text
//!  export ─▶ queue ─▶ thread: deltas ─▶ Message (sets of records by template) ─▶ Transport ─▶ UDP, TCP
//! ```
//!
//! Templates are sent at the start of a TCP connection, and again on the next one (RFC 7011 §8.1); over UDP every so many
//! messages and seconds (§8.4), and when the network reports that the collector was not there. A message is sent when it
//! is full, and at the latest [`Config::flush`] after its first record. `octetDeltaCount` has the bytes of the IP packets,
//! as its definition wants, not those of the frames.
//!
//! Threads: [`Exporter`] may be shared; it has one thread of its own, and callers never wait.

mod deltas;
mod message;
mod template;
mod transport;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stream::FlowRecord;

use crate::queue::{Queue, Turn};
use deltas::Deltas;
use message::Message;
use transport::Transport;

/// The protocol that carries messages to the collector. The port of IPFIX is 4739 for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A message is a datagram.
    Udp,
    /// Messages follow one another in a connection.
    Tcp,
}

/// Where and how records are exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address and port of the collector.
    pub collector: SocketAddr,
    /// How messages get there.
    pub protocol: Protocol,
    /// Observation domain (RFC 7011 §3.1): distinguishes the exporters behind one address.
    pub observation_domain: u32,
    /// Longest message in bytes, 512 to 65,535; over UDP with room for IP and UDP headers within the path's MTU.
    pub message_len_max: usize,
    /// Over UDP: templates are sent again after this number of messages,
    pub templates_every: u32,
    /// and after this time.
    pub templates_interval: Duration,
    /// How long a record may wait for others to fill a message.
    pub flush: Duration,
    /// Room for flow records that wait for the thread.
    pub capacity: usize,
    /// Long flows whose counts are remembered; further ones are exported at their end only.
    pub long_flows_max: usize,
    /// Time between two attempts to connect.
    pub reconnect: Duration,
    /// How long the end of the exporter waits for records that are not sent yet.
    pub linger: Duration,
}

impl Config {
    /// To a collector: messages of 1,400 bytes, templates every 100 messages and 60 s, records wait for 1 s, queue of
    /// 8,192 records, 65,536 long flows, 5 s between connections, 2 s at the end.
    pub fn new(collector: SocketAddr, protocol: Protocol) -> Self {
        Self {
            collector,
            protocol,
            observation_domain: 0,
            message_len_max: 1400,
            templates_every: 100,
            templates_interval: Duration::from_secs(60),
            flush: Duration::from_secs(1),
            capacity: 8192,
            long_flows_max: 65_536,
            reconnect: Duration::from_secs(5),
            linger: Duration::from_secs(2),
        }
    }
}

/// What became of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// IPFIX records that the network took: up to two for each flow record.
    pub records: u64,
    /// Messages with them, and with templates.
    pub messages: u64,
    /// Flow records lost because the queue was full, or the exporter was closed.
    pub lost_queue_full: u64,
    /// IPFIX records lost because the collector could not be reached, or a connection broke.
    pub lost_unreachable: u64,
    /// Reports of long flows without a record of their own: too many long flows. The last report has their packets.
    pub deferred: u64,
    /// Connections, or sockets made for UDP.
    pub connections: u64,
    /// Errors of connecting and sending; over UDP also messages that the host of the collector refused.
    pub errors: u64,
}

#[derive(Default)]
struct Tally {
    records: AtomicU64,
    messages: AtomicU64,
    lost_queue_full: AtomicU64,
    lost_unreachable: AtomicU64,
    deferred: AtomicU64,
    connections: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Tally {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    fn failed(&self, collector: SocketAddr, error: &io::Error) {
        Self::add(&self.errors, 1);
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(format!("{collector}: {error}"));
    }
}

struct Shared {
    queue: Queue<FlowRecord>,
    tally: Tally,
    config: Config,
}

/// Takes flow records and exports them on a thread of its own. When it is dropped, it waits as [`Exporter::close`] does.
pub struct Exporter {
    shared: Arc<Shared>,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl Exporter {
    /// Starts the thread. The collector need not be there yet.
    ///
    /// # Errors
    /// The length of messages is out of range, or there is no further thread.
    pub fn start(config: Config) -> io::Result<Exporter> {
        if !(message::LEN_MIN..=message::LEN_MAX).contains(&config.message_len_max) {
            let (min, max) = (message::LEN_MIN, message::LEN_MAX);
            let what = format!("length of IPFIX messages: {min} to {max} bytes");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        let queue = Queue::new(config.capacity);
        let shared = Arc::new(Shared { queue, tally: Tally::default(), config });
        let (alive, ended) = sync_channel::<()>(0);
        let of_thread = Arc::clone(&shared);
        let body = move || {
            run(&of_thread);
            drop(alive);
        };
        thread::Builder::new().name("ipfix".into()).spawn(body)?;
        Ok(Exporter { shared, ended: Mutex::new(ended) })
    }

    /// Hands over a record with the totals of its flow. Never waits; false if it is lost because there is no room.
    pub fn export(&self, record: &FlowRecord) -> bool {
        let is_taken = self.shared.queue.push(std::slice::from_ref(record));
        if !is_taken {
            Tally::add(&self.shared.tally.lost_queue_full, 1);
        }
        is_taken
    }

    /// The same, and waits for room.
    pub fn export_in_time(&self, record: &FlowRecord) -> bool {
        let is_taken = self.shared.queue.push_in_time(std::slice::from_ref(record), || false);
        if !is_taken {
            Tally::add(&self.shared.tally.lost_queue_full, 1);
        }
        is_taken
    }

    /// What became of records so far.
    pub fn counters(&self) -> Counters {
        let tally = &self.shared.tally;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            records: value(&tally.records),
            messages: value(&tally.messages),
            lost_queue_full: value(&tally.lost_queue_full),
            lost_unreachable: value(&tally.lost_unreachable),
            deferred: value(&tally.deferred),
            connections: value(&tally.connections),
            errors: value(&tally.errors),
        }
    }

    /// The last error, for a log.
    pub fn last_error(&self) -> Option<String> {
        let last = self.shared.tally.last_error.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes no further records, and waits up to [`Config::linger`] until those in the queue are sent. A thread that is
    /// still in a system call then is left to itself.
    pub fn close(&self) -> Counters {
        self.shared.queue.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(self.shared.config.linger);
        self.counters()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

/// The messages by which records go to a collector, in one session: templates, then records in their order. For a file of messages
/// (RFC 5655), or for a transport of the caller.
///
/// - `long_flows_max`: as [`Config::long_flows_max`]. Of further flows that go on, nothing is written before they end.
/// - `len_max`: bytes of a message at most, 512 to 65,535; others become the nearest of these.
pub fn messages(
    records: &[FlowRecord],
    long_flows_max: usize,
    len_max: usize,
    observation_domain: u32,
) -> Vec<Vec<u8>> {
    let len_max = len_max.clamp(message::LEN_MIN, message::LEN_MAX);
    let mut deltas = Deltas::new(long_flows_max);
    let mut message = Message::new(len_max, observation_domain);
    let mut all = vec![message::of_templates(0, observation_domain)];
    let mut sequence = 0_u32;
    let mut finish = |message: &mut Message| {
        all.push(message.finish(sequence).to_vec());
        sequence = sequence.wrapping_add(message.records());
        message.clear();
    };
    for record in records {
        let Some(delta) = deltas.step(record) else { continue };
        for side in delta.sides() {
            if !message.push(record, &delta, side) {
                finish(&mut message);
                // An empty message has room for every record.
                message.push(record, &delta, side);
            }
        }
    }
    if message.records() > 0 {
        finish(&mut message);
    }
    all
}

/// How long the thread sleeps while there is nothing to send.
const WAIT_IDLE: Duration = Duration::from_secs(60);

/// The thread.
fn run(shared: &Shared) {
    let Shared { queue, tally, config } = shared;
    let closed_for = || queue.closed_for();
    let mut transport = Transport::new(config, tally, &closed_for);
    let mut deltas = Deltas::new(config.long_flows_max);
    let mut message = Message::new(config.message_len_max, config.observation_domain);
    let mut records = Vec::new();
    // When the message is sent, if it has records.
    let mut due: Option<Instant> = None;
    loop {
        let wait = due.map_or(WAIT_IDLE, |at| at.saturating_duration_since(Instant::now()));
        let turn = queue.take(&mut records, wait);
        for record in &records {
            let Some(delta) = deltas.step(record) else {
                Tally::add(&tally.deferred, 1);
                continue;
            };
            for side in delta.sides() {
                if !message.push(record, &delta, side) {
                    transport.send(&mut message);
                    // An empty message has room for every record.
                    message.push(record, &delta, side);
                    due = None;
                }
                due = due.or_else(|| Some(Instant::now() + config.flush));
            }
        }
        if turn == Turn::End || due.is_some_and(|at| at <= Instant::now()) {
            transport.send(&mut message);
            due = None;
        }
        if turn == Turn::End {
            return;
        }
    }
}
