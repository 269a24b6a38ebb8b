//! `eve.json`, `fast.log` and `stats.log` of `[ids] output`.
//!
//! Live, lines go to the writers as they come, and what they cannot take is dropped and counted. Over captures they are
//! sorted ([`crate::flow::order`]), and the workers wait for the writers.
//!
//! Threads: shared by workers and control; a writer for each file.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::config::{Ids, IdsEvent};
use flowlog::eve::{Eve, Stats};
use flowlog::sink::{self, Sink, Target};

use crate::flow::order::{Key, Ordered};

/// Which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// `eve.json`
    Eve,
    /// `fast.log`
    Fast,
}

/// A line and where it goes.
pub type Line = (To, Vec<u8>);

/// The files.
struct Files {
    eve: Sink,
    fast: Sink,
    stats: Sink,
}

/// All outputs.
pub struct Outputs {
    /// What `eve.json` has.
    types: Vec<IdsEvent>,
    /// Writes lines.
    pub(super) eve: Eve,
    files: Option<Arc<Files>>,
    is_sorted: bool,
    ordered: OnceLock<Arc<Ordered<Line>>>,
    /// Names of ports, by number.
    pub(super) ports: Arc<[String]>,
}

impl Outputs {
    /// Opens the files.
    ///
    /// # Errors
    /// One cannot be opened, in words.
    pub fn open(own: &Ids, seed: u16, ports: Arc<[String]>, is_live: bool) -> Result<Self, String> {
        let files = own.output.as_deref().map(open).transpose()?;
        let eve = Eve { community_id_seed: Some(seed) };
        let (types, ordered) = (own.event_types.clone(), OnceLock::new());
        Ok(Self { types, eve, files: files.map(Arc::new), is_sorted: !is_live, ordered, ports })
    }

    /// Whether `eve.json` has lines of this type.
    pub(super) fn has(&self, kind: IdsEvent) -> bool {
        self.files.is_some() && self.types.contains(&kind)
    }

    /// Whether there are files.
    pub(super) fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// What puts the lines of workers into order, if they are.
    pub(super) fn ordered(&self) -> Option<Arc<Ordered<Line>>> {
        let files = self.files.as_ref().filter(|_| self.is_sorted)?.clone();
        let out = move |(to, line): Line| {
            let _ = files.of(to).push_in_time(&line);
        };
        Some(self.ordered.get_or_init(|| Arc::new(Ordered::new(out))).clone())
    }

    /// A line, at once.
    pub(super) fn push(&self, to: To, line: &[u8]) {
        if let Some(files) = &self.files {
            files.of(to).push(line);
        }
    }

    /// The counters of `named`, as of a time.
    pub(super) fn stats(&self, at_ns: u64, uptime_s: u64, named: &[(String, u64)]) {
        let Some(files) = &self.files else { return };
        let counters: Vec<(&str, u64)> =
            named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let stats = Stats { uptime_s, counters: &counters };
        let mut text = Vec::new();
        flowlog::stats::table(at_ns, &stats, &mut text);
        let _ = files.stats.push_in_time(&text);
        if self.has(IdsEvent::Stats) {
            text.clear();
            self.eve.stats(at_ns, &stats, &mut text);
            let _ = files.eve.push_in_time(&text);
        }
    }

    pub(super) fn reopen(&self) {
        if let Some(files) = &self.files {
            files.all().iter().for_each(|(_, sink)| sink.reopen());
        }
    }

    /// Waits until all is written, for a time; what went wrong, a line each.
    pub(super) fn close(&self) -> Vec<String> {
        let Some(files) = &self.files else { return Vec::new() };
        let errors = files.all().into_iter().filter_map(|(name, sink)| {
            let counters = sink.close();
            let lost = counters.lost_queue_full + counters.lost_not_connected + counters.lost_write;
            match sink.last_error() {
                Some(why) => Some(format!("{name}: {lost} lines lost: {why}")),
                None if lost == 0 => None,
                None => Some(format!("{name}: {lost} lines lost: the output is too slow")),
            }
        });
        errors.collect()
    }

    /// Lines written and lost, by file.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64, u64)> {
        let Some(files) = &self.files else { return Vec::new() };
        let counts = files.all().into_iter().map(|(name, sink)| {
            let own = sink.counters();
            (name, own.written, own.lost_queue_full + own.lost_not_connected + own.lost_write)
        });
        counts.collect()
    }
}

impl Files {
    fn of(&self, to: To) -> &Sink {
        match to {
            To::Eve => &self.eve,
            To::Fast => &self.fast,
        }
    }

    fn all(&self) -> [(&'static str, &Sink); 3] {
        [("eve.json", &self.eve), ("fast.log", &self.fast), ("stats.log", &self.stats)]
    }
}

fn open(folder: &Path) -> Result<Files, String> {
    let say = |error| format!("ids.output: {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(say)?;
    let sink = |name: &str| {
        let options = sink::Options { linger: Duration::from_secs(10), ..<_>::default() };
        let path = folder.join(name);
        let text = path.display().to_string();
        Sink::start(Target::File(path), options)
            .map_err(|error| format!("ids.output: {text}: {error}"))
    };
    Ok(Files { eve: sink("eve.json")?, fast: sink("fast.log")?, stats: sink("stats.log")? })
}

/// The lines of a worker on their way.
pub(super) struct Lines {
    pub(super) outputs: Arc<Outputs>,
    worker: usize,
    ordered: Option<Arc<Ordered<Line>>>,
    items: Vec<(Key, Line)>,
    /// Lines of a flow that is closing: their place in the order is known when it has ended.
    held: Option<Vec<(Key, Line)>>,
    pub(super) line: Vec<u8>,
}

impl Lines {
    pub(super) fn new(outputs: Arc<Outputs>) -> Self {
        let ordered = outputs.ordered();
        let worker = ordered.as_ref().map_or(0, |ordered| ordered.join());
        Self { outputs, worker, ordered, items: Vec::new(), held: None, line: Vec::new() }
    }

    /// Hands over the line that is there, unless it is empty.
    pub(super) fn put(&mut self, to: To, key: Key) {
        if self.line.is_empty() {
            return;
        }
        if self.ordered.is_none() {
            self.outputs.push(to, &self.line);
            self.line.clear();
            return;
        }
        let items = self.held.as_mut().unwrap_or(&mut self.items);
        items.push((key, (to, std::mem::take(&mut self.line))));
    }

    /// The lines that follow wait for [`Lines::release`].
    pub(super) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// The flow whose lines wait has ended.
    pub(super) fn release(&mut self, time_ns: u64) {
        let held = self.held.take().unwrap_or_default();
        self.items
            .extend(held.into_iter().map(|(key, line)| ((time_ns, key.1, key.2, key.3), line)));
    }

    /// No line before this time follows.
    pub(super) fn advance(&mut self, time_ns: u64) {
        if let Some(ordered) = &self.ordered {
            ordered.advance(self.worker, &mut self.items, time_ns);
        }
    }
}
