//! The part of the control plane: reads keys, makes stages, adds their counters up.

use std::sync::Arc;

use control::api::table::thousands;
use control::config::Config;
use control::metrics::Metrics;
use controlplane::{
    Built, Call, ControlPart, Environment, Findings, Interfaces, Refusal, Rows, Section, Setup,
    Tables, WorkerSetup,
};
use crypto::Secret;
use engine::Stage;
use serde_json::{Map, Value};

use super::keys::Master;
use super::settings::{Direction, Keys, Settings};
use super::shade::{Counters, Current};
use super::stage::Cipher;

/// What is counted: a name, and a sentence.
const COLUMNS: [(&str, &str); 4] = [
    ("packets", "Packets encrypted or decrypted."),
    ("bytes", "Bytes of their payload, without what the cipher adds."),
    ("passed", "Packets without payload of TCP or UDP, which passed as they were."),
    ("keys_derived", "Keys of connections that were derived."),
];

struct CipherControl {
    name: String,
    settings: Settings,
    current: Arc<Current>,
    /// What there was before a reload that is under way.
    before: Option<(Settings, Arc<Current>)>,
    /// The key that a reload has read.
    read: Option<Arc<Master>>,
    workers: Vec<Arc<Counters>>,
    cleared: [u64; COLUMNS.len()],
}

/// The settings of the stages of a name; defaults where the file has no such section.
fn settings(config: &Config, name: &str) -> Settings {
    let own = config.stage(name).and_then(|stage| stage.settings.as_deref()?.get::<Settings>());
    own.cloned().unwrap_or_default()
}

/// The key of a stage.
fn open(settings: &Settings, name: &str) -> Result<Arc<Master>, String> {
    Master::open(settings).map(Arc::new).map_err(|error| format!("stage {name}: {error}"))
}

/// Starts it.
pub(super) fn start(setup: &Setup<'_>, _: &mut Tables) -> Result<Box<dyn ControlPart>, String> {
    let name = setup.name.to_owned();
    let settings = settings(setup.config, &name);
    let master = open(&settings, &name)?;
    Ok(Box::new(CipherControl::new(name, settings, master)))
}

/// A stage and its part.
type Example = (Box<dyn Stage<Tables>>, Box<dyn ControlPart>);

/// What it would be with a key: one of zeros, which encrypts nothing.
pub(super) fn example() -> Result<Example, String> {
    let settings = Settings::default();
    let master = Arc::new(Master::new(&settings, &Secret::new(vec![0; 32]))?);
    let part = CipherControl::new(super::STAGE.to_owned(), settings, master);
    let (current, counters) = (part.current.clone(), Arc::default());
    let stage = Cipher::new(super::STAGE, &part.settings, current, counters);
    Ok((Box::new(stage), Box::new(part)))
}

/// `check`: keys that cannot be read, and what is weak.
pub(super) fn check_files(config: &Config, _: &Interfaces, findings: &mut Findings) {
    let mut names: Vec<&str> = config.in_use().flat_map(|own| own.named(super::STAGE)).collect();
    names.sort_unstable();
    names.dedup(); // pipelines may share a stage
    for name in names {
        let settings = settings(config, name);
        if let Err(error) = open(&settings, name) {
            findings.error_of_all(error);
        }
        if let Some(weakness) = settings.weakness() {
            findings.warn_of_all(format!("stage {name}: {weakness}"));
        }
    }
}

impl CipherControl {
    fn new(name: String, settings: Settings, master: Arc<Master>) -> Self {
        let current = Arc::new(Current::new(master));
        let (workers, cleared) = (Vec::new(), [0; COLUMNS.len()]);
        Self { name, settings, current, before: None, read: None, workers, cleared }
    }

    fn total(&self, column: usize) -> u64 {
        let of = |own: &Counters| match column {
            0 => own.packets.get(),
            1 => own.bytes.get(),
            2 => own.passed.get(),
            _ => own.derived.get(),
        };
        self.workers.iter().map(|own| of(own)).sum()
    }

    fn value(&self, column: usize) -> u64 {
        self.total(column).saturating_sub(self.cleared[column])
    }

    /// What it is, as texts: stage, direction, cipher, keys.
    fn about(&self) -> [(&'static str, String); 4] {
        let direction = match self.settings.direction {
            Direction::Encrypt => "encrypt",
            Direction::Decrypt => "decrypt",
        };
        let keys = match self.settings.keys {
            Keys::Connection => "connection",
            Keys::Static => "static",
        };
        [
            ("stage", self.name.clone()),
            ("direction", direction.to_owned()),
            ("cipher", self.settings.name()),
            ("keys", keys.to_owned()),
        ]
    }

    fn fields(&self) -> Map<String, Value> {
        let about = self.about().into_iter().map(|(name, text)| (name.to_owned(), text.into()));
        let counts = (0..COLUMNS.len()).map(|at| (COLUMNS[at].0.to_owned(), self.value(at).into()));
        about.chain(counts).collect()
    }
}

impl ControlPart for CipherControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        (kind == super::STAGE).then(|| {
            // An instance that follows another one counts on.
            while self.workers.len() <= worker.worker {
                self.workers.push(Arc::default());
            }
            let counters = self.workers[worker.worker].clone();
            let current = self.current.clone();
            Box::new(Cipher::new(worker.name(), &self.settings, current, counters)) as _
        })
    }

    fn table(&self, call: Call<'_>, _: &Environment<'_>) -> Result<Rows, Refusal> {
        let titles = self.about().map(|(name, _)| name.to_owned()).into_iter();
        let numbers = COLUMNS.iter().map(|(name, _)| format!(">{}", name.replace('_', " ")));
        let titles = titles.chain(numbers).collect();
        let mut rows = Rows::with_columns("ciphers", call.as_text, titles);
        let texts = self.about().map(|(_, text)| text).into_iter();
        let counts = (0..COLUMNS.len()).map(|column| thousands(self.value(column)));
        rows.push_cells(texts.chain(counts).collect(), Value::Object(self.fields()));
        Ok(rows)
    }

    /// The file of the key is read again. A key that cannot be read refuses the reload.
    fn apply(
        &mut self,
        _: &Config,
        _: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        let settings = settings(env.config, &self.name);
        let master = open(&settings, &self.name)?;
        if settings == self.settings {
            self.read = Some(master);
        } else {
            // Stages that run keep what they were made with; those that follow them get this.
            let current = Arc::new(Current::new(master));
            let before = std::mem::replace(&mut self.settings, settings);
            self.before = Some((before, std::mem::replace(&mut self.current, current)));
        }
        Ok(())
    }

    fn roll_back(&mut self, _: &mut Environment<'_>) {
        self.read = None;
        if let Some(before) = self.before.take() {
            (self.settings, self.current) = before;
        }
    }

    fn commit(&mut self, _: &Config, _: &Config, _: &mut Environment<'_>) -> String {
        self.before = None;
        if let Some(master) = self.read.take() {
            self.current.set(master);
        }
        String::new()
    }

    fn clear(&mut self) {
        self.cleared = std::array::from_fn(|column| self.total(column));
    }

    fn metrics(&self, out: &mut Metrics) {
        for (column, (name, about)) in COLUMNS.iter().enumerate() {
            let family_name = format!("cipher_{name}_total");
            let mut family = out.counter(&family_name, about);
            family.sample(&[("stage", &self.name)], self.value(column));
        }
    }

    fn report(&self) -> Vec<Section> {
        let [(_, stage), (_, direction), (_, cipher), _] = self.about();
        let [packets, bytes, passed, derived] = std::array::from_fn(|at| thousands(self.value(at)));
        let text = format!(
            "{stage}: {cipher} {direction}, {packets} packets, {bytes} bytes, {passed} passed, {derived} keys derived\n"
        );
        vec![Section::new(&format!("cipher_{stage}"), &self.fields(), text)]
    }
}
