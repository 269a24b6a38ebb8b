//! What is counted: by rule, and for `stats`.
//!
//! Threads: shared by workers and control; a lock is taken where a rule matched.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use stream::tracker::Passed;

/// A rule by its numbers: gid and sid.
pub type RuleId = (u32, u32);

/// What is known of the matches of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfRule {
    /// Its message.
    pub msg: String,
    /// Its action.
    pub action: &'static str,
    /// Alerts.
    pub alerts: u64,
    /// The time of the last one, in nanoseconds since 1970.
    pub last_ns: u64,
}

/// Counters of all workers.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets of flows and alone.
    pub packets: AtomicU64,
    /// Bytes of their frames.
    pub bytes: AtomicU64,
    /// Packets of flows in which a search before the tracker found no literal of the rules.
    pub clean: AtomicU64,
    /// Packets of encrypted streams that were passed over.
    pub passed: AtomicU64,
    /// Alerts.
    pub alerts: AtomicU64,
    /// Packets that were dropped.
    pub drops: AtomicU64,
    /// Flows that ended.
    pub flows: AtomicU64,
    /// Files in transactions.
    pub files: AtomicU64,
    /// What was wrong in what applications said.
    pub anomalies: AtomicU64,
    /// Packets that could not be decoded, and datagrams of fragments that failed.
    pub undecoded: AtomicU64,
    /// Searches of rules that were given up because they took too long.
    pub given_up: AtomicU64,
    /// Windows of thresholds and bits of hosts for which there was no room.
    pub no_room: AtomicU64,
    /// Matches that were no alerts because of a threshold.
    pub suppressed: AtomicU64,
    /// Bytes that sessions of applications hold, of all workers.
    pub session_bytes: AtomicU64,
    /// Bytes that rules keep of streams and buffers, of all workers.
    pub stream_bytes: AtomicU64,
    /// Flows whose streams were searched segment by segment, as there was no memory for more of them.
    pub streams_cut: AtomicU64,
    /// Flows without a session, as there was no memory for one.
    pub sessions_refused: AtomicU64,
    /// Sessions that were given up, as there was no memory for more of them.
    pub sessions_given_up: AtomicU64,
    /// Segments that came before others and were not kept, as there was no memory for them.
    pub not_kept: AtomicU64,
    /// Flows that were bypassed or dropped, as they exceeded a bound.
    pub limited: AtomicU64,
    /// Packets of flows for which the flow table had no place.
    pub refused: AtomicU64,
    /// The time of the first packet, in nanoseconds since 1970; 0 before.
    pub first_ns: AtomicU64,
    /// The time of the latest packet.
    pub latest_ns: AtomicU64,
    by_rule: Mutex<BTreeMap<RuleId, OfRule>>,
    /// Transactions that ended, by application.
    transactions: Mutex<BTreeMap<&'static str, u64>>,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// The value of a counter.
pub fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// `1 alert`, `2 alerts`, `2 searches`.
pub fn counted(count: u64, what: &str) -> String {
    let ending = match (count, what.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {what}{ending}", control::api::table::thousands(count))
}

impl Counters {
    /// These packets.
    pub fn packets(&self, seen: &Passed) {
        if seen.packets > 0 {
            add(&self.packets, seen.packets);
            add(&self.bytes, seen.bytes);
            self.at(seen.times_ns.0);
            self.at(seen.times_ns.1);
        }
    }

    /// Time has come as far as this.
    fn at(&self, time_ns: u64) {
        if get(&self.first_ns) == 0 {
            let _ =
                self.first_ns.compare_exchange(0, time_ns, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.first_ns.fetch_min(time_ns, Ordering::Relaxed);
        self.latest_ns.fetch_max(time_ns, Ordering::Relaxed);
    }

    /// What a detector has counted since it had counted `before`.
    pub fn detected(&self, now: detect::Counts, before: detect::Counts) {
        add(&self.given_up, now.given_up - before.given_up);
        // That of all workers.
        self.no_room.fetch_max(now.no_room, Ordering::Relaxed);
        add(&self.suppressed, now.suppressed - before.suppressed);
    }

    /// An alert of a rule.
    pub fn alert(&self, id: RuleId, msg: &str, action: &'static str, time_ns: u64) {
        add(&self.alerts, 1);
        let mut all = self.by_rule.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(id).or_insert_with(|| OfRule { msg: msg.to_owned(), ..<_>::default() });
        own.action = action;
        own.alerts += 1;
        own.last_ns = own.last_ns.max(time_ns);
    }

    /// A transaction of an application ended.
    pub fn transaction(&self, application: &'static str) {
        let mut all = self.transactions.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(application).or_default() += 1;
    }

    /// Rules with alerts.
    pub fn by_rule(&self) -> BTreeMap<RuleId, OfRule> {
        self.by_rule.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Transactions by application.
    pub fn transactions(&self) -> BTreeMap<&'static str, u64> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All start at zero.
    pub fn clear(&self) {
        let Self { packets, bytes, alerts, drops, flows, files, anomalies, .. } = self;
        let Self { given_up, no_room, suppressed, clean, passed, .. } = self;
        let Self {
            sessions_refused,
            sessions_given_up,
            streams_cut,
            limited,
            refused,
            undecoded,
            ..
        } = self;
        self.not_kept.store(0, Ordering::Relaxed);
        for counter in [packets, bytes, alerts, drops, flows, files, anomalies] {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in [given_up, no_room, suppressed, clean, passed] {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in
            [sessions_refused, sessions_given_up, streams_cut, limited, refused, undecoded]
        {
            counter.store(0, Ordering::Relaxed);
        }
        self.by_rule.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// By Suricata's names, in groups; with the numbers of rules.
    pub fn named(&self, loaded: u64, failed: u64) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = vec![
            ("decoder.pkts".into(), get(&self.packets)),
            ("decoder.bytes".into(), get(&self.bytes)),
            ("decoder.invalid".into(), get(&self.undecoded)),
            ("flow.end".into(), get(&self.flows)),
            ("tcp.segment_memcap_drop".into(), get(&self.not_kept)),
            ("ips.blocked".into(), get(&self.drops)),
            ("detect.alert".into(), get(&self.alerts)),
            ("detect.alerts_suppressed".into(), get(&self.suppressed)),
            ("detect.no_room".into(), get(&self.no_room)),
            ("detect.searches_given_up".into(), get(&self.given_up)),
            ("detect.flows_limited".into(), get(&self.limited)),
            ("detect.packets_refused".into(), get(&self.refused)),
            ("detect.memuse".into(), get(&self.stream_bytes)),
            ("detect.streams_cut".into(), get(&self.streams_cut)),
            ("detect.rules_loaded".into(), loaded),
            ("detect.rules_failed".into(), failed),
        ];
        for (name, count) in self.transactions() {
            all.push((format!("app_layer.tx.{name}"), count));
        }
        all.push(("app_layer.anomalies".into(), get(&self.anomalies)));
        all.push(("app_layer.memuse".into(), get(&self.session_bytes)));
        all.push(("app_layer.sessions_refused".into(), get(&self.sessions_refused)));
        all.push(("app_layer.sessions_given_up".into(), get(&self.sessions_given_up)));
        all.push(("file_store.files".into(), get(&self.files)));
        all
    }
}
