//! The part of the control plane: reads keys, makes stages, adds their counters up.

use std::ops::Range;
use std::sync::Arc;

use control::api::table::thousands;
use control::config::Config;
use control::metrics::Metrics;
use controlplane::{
    Built, Call, ControlPart, Environment, Findings, Interfaces, PartId, Refusal, Rows, Section,
    Setup, Tables, TablesPatch, WorkerSetup,
};
use crypto::Secret;
use engine::Stage;
use serde_json::{Map, Value};

use super::keys::Master;
use super::settings::{Direction, Keys, Settings};
use super::shade::Counters;
use super::stage::Cipher;
use super::table::{KeyPart, KeyPatch, KeyTable};

/// What is counted: a name, and a sentence.
const COLUMNS: [(&str, &str); 4] = [
    ("packets", "Packets encrypted or decrypted."),
    ("bytes", "Bytes of their payload, without what the cipher adds."),
    ("passed", "Packets without payload of TCP or UDP, which passed as they were."),
    ("keys_derived", "Keys of connections that workers derived."),
];

struct CipherControl {
    name: String,
    settings: Settings,
    part: PartId<KeyPart>,
    /// The key, as last published or to be published.
    master: Arc<Master>,
    changed: bool,
    /// What a reload has read.
    read: Option<(Settings, Arc<Master>)>,
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
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let name = setup.name.to_owned();
    let settings = settings(setup.config, &name);
    let master = open(&settings, &name)?;
    Ok(Box::new(CipherControl::new(name, settings, master, tables)))
}

/// Starts it with a key of zeros.
pub(super) fn example(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let settings = Settings::default();
    let master = Arc::new(Master::new(&settings, &Secret::new(vec![0; 32]))?);
    Ok(Box::new(CipherControl::new(setup.name.to_owned(), settings, master, tables)))
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
    fn new(name: String, settings: Settings, master: Arc<Master>, tables: &mut Tables) -> Self {
        let part = tables.add::<KeyPart>(KeyTable(master.clone()));
        let (workers, cleared) = (Vec::new(), [0; COLUMNS.len()]);
        Self { name, settings, part, master, changed: false, read: None, workers, cleared }
    }

    /// The stage of a worker, by the settings that come with the next engine, if there is one.
    fn make(&self, name: &'static str, counters: Arc<Counters>) -> Cipher {
        let (settings, master) = match &self.read {
            Some((settings, master)) => (settings, master),
            None => (&self.settings, &self.master),
        };
        Cipher::new(name, settings, self.part, master.clone(), counters)
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
            let stage = self.make(worker.name(), counters);
            Box::new(stage.sharing(crate::records::are_shared(&worker.pipeline.kinds))) as _
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
        // Stages that run keep what they were made with; those that follow them get this.
        self.read = Some((settings, master));
        Ok(())
    }

    fn roll_back(&mut self, _: &mut Environment<'_>) {
        self.read = None;
    }

    fn commit(&mut self, _: &Config, _: &Config, _: &mut Environment<'_>) -> String {
        if let Some((settings, master)) = self.read.take() {
            (self.settings, self.master, self.changed) = (settings, master, true);
        }
        String::new()
    }

    fn regions(&self) -> Range<usize> {
        self.part.regions()
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| self.part.patch(vec![KeyPatch::new(&self.master)]))
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
        let [packets, bytes, passed, _] = std::array::from_fn(|at| thousands(self.value(at)));
        let text = format!(
            "{stage}: {cipher} {direction}, {packets} packets, {bytes} bytes, {passed} passed\n"
        );
        // How many keys a worker derives depends on what a device does, and nothing else here may.
        let mut fields = self.fields();
        fields.remove("keys_derived");
        vec![Section::new(&format!("cipher_{stage}"), &fields, text)]
    }
}
