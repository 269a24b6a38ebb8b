//! The publisher: the one place from which tables become visible.
//!
//! ```text
//!  ControlPart::take_patches, of each part ─▶ Publisher::publish ─one version─▶ Reader<Tables> of each worker
//!                                                              └─patches────▶ Changes, for a device
//! ```

use control::config::{Config, Pipeline};
use engine::Stage;
use lookup::versions::{Reader, Writer, versions};

use crate::application::{ControlPart, Descriptor, Setup, StartPart, WorkerSetup};
use crate::module::ModuleKind;
use crate::tables::{Tables, TablesImages, TablesPatch};

/// A part of the control plane that runs, with its descriptor and the name of its stages.
pub struct Running {
    /// What its application declares.
    pub descriptor: &'static Descriptor,
    /// The name of its stages where they have one of their own (`[stage.NAME]`), else that of the application.
    pub name: String,
    /// The part.
    pub part: Box<dyn ControlPart>,
    /// Where its tables are among all.
    places: Vec<usize>,
}

/// Parts that have started and that nobody uses yet.
pub struct Fresh {
    parts: Vec<Running>,
    tables: Tables,
}

/// In place of a part that is gone, whose number may be another one's later.
struct Nothing;

impl ControlPart for Nothing {
    fn stage(&mut self, _: &str, _: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        None
    }
}

impl Running {
    /// A part with the descriptor of its application and the name of its stages.
    pub fn new(
        descriptor: &'static Descriptor,
        name: impl Into<String>,
        part: Box<dyn ControlPart>,
    ) -> Self {
        Self { descriptor, name: name.into(), part, places: Vec::new() }
    }

    /// Whether it is a part, and not in the place of one that is gone.
    pub fn is_there(&self) -> bool {
        !self.name.is_empty()
    }

    /// Whether it is the part of that application and name.
    fn is(&self, descriptor: &Descriptor, name: &str) -> bool {
        self.name == name && self.descriptor.application.name == descriptor.application.name
    }

    /// Whether a stage of the pipeline belongs to it.
    pub fn has(&self, pipeline: &Pipeline, at: usize) -> bool {
        part_of(self.descriptor, pipeline, at) == Some(&*self.name)
    }
}

/// The Rust modules of all applications.
fn modules(descriptors: &[&'static Descriptor]) -> Vec<ModuleKind> {
    descriptors.iter().flat_map(|own| own.modules).copied().collect()
}

/// Starts the part of an application.
fn start(
    descriptor: &'static Descriptor,
    how: StartPart,
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Running, String> {
    let before = tables.places();
    let part = how(setup, tables)?;
    let mut places = tables.places();
    places.retain(|place| !before.contains(place));
    Ok(Running { places, ..Running::new(descriptor, setup.name, part) })
}

/// The name of the part of this application that a stage belongs to: its own, if its kind has settings of its own.
fn part_of<'a>(descriptor: &Descriptor, pipeline: &'a Pipeline, at: usize) -> Option<&'a str> {
    let kind = descriptor.stages.iter().find(|kind| kind.name == pipeline.kinds[at])?;
    Some(if kind.settings.is_some() { &pipeline.stages[at] } else { descriptor.application.name })
}

/// The names of the parts that an application has, in the order of their first stages.
fn names<'a>(descriptor: &Descriptor, config: &'a Config) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for pipeline in config.in_use() {
        for name in (0..pipeline.stages.len()).filter_map(|at| part_of(descriptor, pipeline, at)) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
    }
    all
}

/// What makes the tables, and the one place from which they are published.
pub struct Publisher {
    /// The parts, in the order of their descriptors.
    pub parts: Vec<Running>,
    pub(crate) writer: Writer<Tables>,
    /// Taken, and not published yet.
    pending: Vec<TablesPatch>,
}

impl Publisher {
    /// Starts the parts of those applications that have a stage in a pipeline of the configuration, and publishes the first
    /// version of their tables.
    ///
    /// # Errors
    /// A part cannot start: a file cannot be read, or there is no room or memory.
    pub fn start(
        descriptors: &[&'static Descriptor],
        setup: &Setup<'_>,
    ) -> Result<(Self, Reader<Tables>), String> {
        Self::start_by(descriptors, setup, |own| own.start)
    }

    /// The same of applications that may lack what the file must say of them: see [`Descriptor::example`].
    ///
    /// # Errors
    /// As [`Publisher::start`].
    pub fn start_examples(
        descriptors: &[&'static Descriptor],
        setup: &Setup<'_>,
    ) -> Result<(Self, Reader<Tables>), String> {
        Self::start_by(descriptors, setup, |own| own.example.unwrap_or(own.start))
    }

    fn start_by(
        descriptors: &[&'static Descriptor],
        setup: &Setup<'_>,
        how: impl Fn(&Descriptor) -> StartPart,
    ) -> Result<(Self, Reader<Tables>), String> {
        let mut tables = Tables::default();
        let mut parts = Vec::new();
        let modules = modules(descriptors);
        for descriptor in descriptors {
            for name in names(descriptor, setup.config) {
                let setup = Setup { name, modules: &modules, ..*setup };
                parts.push(start(descriptor, how(descriptor), &setup, &mut tables)?);
            }
        }
        Ok(Self::new(tables, parts))
    }

    /// The publisher of parts that have started.
    pub fn new(tables: Tables, parts: Vec<Running>) -> (Self, Reader<Tables>) {
        let (writer, reader) = versions(tables);
        let mut publisher = Self { parts, writer, pending: Vec::new() };
        publisher.introduce();
        publisher.publish();
        (publisher, reader)
    }

    /// Starts parts that the stages of a configuration need and that are not there, for [`Publisher::take_in`].
    ///
    /// # Errors
    /// As [`Publisher::start`]; nothing has changed.
    pub fn start_new(
        &self,
        descriptors: &[&'static Descriptor],
        setup: &Setup<'_>,
    ) -> Result<Fresh, String> {
        let mut fresh = Fresh { parts: Vec::new(), tables: self.current().beside() };
        let modules = modules(descriptors);
        for descriptor in descriptors {
            for name in names(descriptor, setup.config) {
                if !self.parts.iter().any(|own| own.is(descriptor, name)) {
                    let setup = Setup { name, modules: &modules, ..*setup };
                    let part = start(descriptor, descriptor.start, &setup, &mut fresh.tables)?;
                    fresh.parts.push(part);
                }
            }
        }
        Ok(fresh)
    }

    /// Makes parts and their tables those of the program; their numbers.
    pub fn take_in(&mut self, fresh: Fresh) -> Vec<usize> {
        self.pending.extend(fresh.tables.added());
        let mut numbers = Vec::new();
        for own in fresh.parts {
            let vacant = self.parts.iter().position(|own| !own.is_there());
            let number = vacant.unwrap_or(self.parts.len());
            match self.parts.get_mut(number) {
                Some(place) => *place = own,
                None => self.parts.push(own),
            }
            numbers.push(number);
        }
        self.introduce();
        numbers
    }

    /// Lets each part see what the others offer.
    fn introduce(&mut self) {
        for from in 0..self.parts.len() {
            let Some(offered) = self.parts[from].part.offer() else { continue };
            for to in (0..self.parts.len()).filter(|to| *to != from) {
                self.parts[to].part.attach(&*offered);
            }
        }
    }

    /// The numbers of parts that no stage of a configuration belongs to.
    pub fn unused(&self, config: &Config) -> Vec<usize> {
        let is_used = |own: &Running| names(own.descriptor, config).contains(&&*own.name);
        let all = self.parts.iter().enumerate();
        all.filter(|(_, own)| own.is_there() && !is_used(own)).map(|(number, _)| number).collect()
    }

    /// Takes parts and their tables away; no stage of theirs runs any more.
    pub fn take_out(&mut self, numbers: &[usize]) {
        for &number in numbers {
            let nothing = Running::new(&Descriptor::NONE, "", Box::new(Nothing));
            let own = std::mem::replace(&mut self.parts[number], nothing);
            let current = self.writer.current();
            self.pending.extend(own.places.iter().map(|place| current.removal(*place)));
        }
    }

    /// The tables from now on, for a device.
    pub fn images(&self) -> TablesImages {
        TablesImages(self.writer.changes())
    }

    /// The newest version.
    pub fn current(&self) -> &Tables {
        self.writer.current()
    }

    /// Its number.
    pub fn version(&self) -> u64 {
        self.writer.version()
    }

    /// Makes everything visible that changed, as one version; its number. Waits, sleeping, until nobody reads
    /// the version before the current one.
    pub fn publish(&mut self) -> u64 {
        self.take_patches();
        let patches = std::mem::take(&mut self.pending);
        if patches.is_empty() {
            return self.writer.version();
        }
        let version = self.writer.publish(patches);
        self.tell();
        version
    }

    /// The same without waiting; `false` where somebody still reads, and nothing is lost.
    pub fn try_publish(&mut self) -> bool {
        self.take_patches();
        if self.pending.is_empty() {
            return true;
        }
        match self.writer.try_publish(std::mem::take(&mut self.pending)) {
            Ok(_) => {
                self.tell();
                true
            }
            Err(patches) => {
                self.pending = patches;
                false
            }
        }
    }

    fn take_patches(&mut self) {
        self.pending.extend(self.parts.iter_mut().filter_map(|own| own.part.take_patches()));
    }

    fn tell(&mut self) {
        let tables = self.writer.current();
        self.parts.iter_mut().for_each(|own| own.part.published(tables));
    }

    /// Brings the idle copy of the tables up to date if nobody holds it, so that the next version is there
    /// sooner. For idle moments.
    pub fn settle(&mut self) {
        self.writer.try_settle();
    }
}
