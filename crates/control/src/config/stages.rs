//! What the configuration must know of applications and of the kinds of stages, and which stages make a pipeline.
//!
//! A stage says what it needs and what it provides, in words that name headers and columns (`ip`, `next_hop`), and
//! whether it must be the first or the last one. A list of stages is a pipeline if each finds what it needs: no list of
//! pipelines is kept anywhere. VPP's feature arcs order their nodes in the same way.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::section::{Key, KeyDefault, SectionValue};

/// What all pipelines begin with: frames as they were received.
pub const FRAMES: &str = "frames";

/// What only a pipeline has that decodes nothing: frames that no stage has settled.
pub const RAW: &str = "raw frames";

/// What an application has in the configuration file.
#[derive(Debug)]
pub struct Application {
    /// Its name, as a folder and in messages.
    pub name: &'static str,
    /// With its article, for messages.
    pub title: &'static str,
    /// Sections of the file that it reads.
    pub sections: &'static [&'static str],
    /// Keys of a port that it reads.
    pub port_keys: &'static [&'static str],
    /// Whether Linux shares the ports: they may have TAP twins.
    pub has_host: bool,
    /// Whether its ports take frames for every station.
    pub is_promiscuous: bool,
    /// Whether its ports are joined in pairs.
    pub in_pairs: bool,
    /// The stage that its sections put behind the first stage of a shipped pipeline. Somebody relies on such a stage to
    /// be safe, so sections that do nothing are an error.
    pub joins: Option<&'static str>,
    /// Sections of other applications with which that stage joins, too: what they do needs it.
    pub joins_for: &'static [&'static str],
    /// Whether it joins for those sections, where not all of what they say needs it. `None`: always.
    pub joins_when: Option<fn(&super::Config, &KnownStages) -> bool>,
    /// Kinds of stages that come before its own, where they are there: it uses what they do.
    pub behind: &'static [&'static str],
    /// How many stages each of its stages becomes, one behind the other: more than one where something that a worker does
    /// must wait for a device. `None`: one. They have the name of the first with a number, as `modules.2`.
    pub parts: Option<fn(&super::Config) -> usize>,
    /// The stage that its sections put before the last stage of a shipped pipeline, besides. Both stages enclose the others.
    pub joins_end: Option<&'static str>,
}

/// A kind of stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageKind {
    /// Its name, as in `[pipeline.NAME] stages`.
    pub name: &'static str,
    /// One sentence: what it is for.
    pub about: &'static str,
    /// The application that it belongs to.
    pub application: &'static Application,
    /// What it needs of the stages before it.
    pub needs: &'static [&'static str],
    /// What the stages behind it find. The first stage of a pipeline hides what there was before it.
    pub provides: &'static [&'static str],
    /// It decodes received frames, so it must be the first stage.
    pub is_first: bool,
    /// It sends packets out, so it must be the last stage, and some stage must be.
    pub is_last: bool,
    /// Names of the places to which it sends packets that go through the pipeline again.
    pub places: &'static [&'static str],
    /// Of a last stage: the stages that may come behind it, all of them and in this order. It leaves packets to them.
    pub leads_to: &'static [&'static str],
    /// What `[stage.NAME]` has for it. A kind with settings of its own may be several times, under names of its own.
    pub settings: Settings,
}

impl StageKind {
    /// A kind in the middle of a pipeline that needs and provides nothing: what a declaration begins with.
    pub const fn new(name: &'static str, application: &'static Application) -> Self {
        Self {
            name,
            about: "",
            application,
            needs: &[],
            provides: &[],
            is_first: false,
            is_last: false,
            places: &[],
            leads_to: &[],
            settings: Settings::None,
        }
    }
}

/// Two applications with one name would be one: names are those of folders.
impl PartialEq for Application {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Application {}

impl Application {
    /// Nothing: what a declaration begins with.
    pub const NONE: Self = Self {
        name: "",
        title: "",
        sections: &[],
        port_keys: &[],
        has_host: false,
        is_promiscuous: false,
        in_pairs: false,
        joins: None,
        joins_for: &[],
        joins_when: None,
        behind: &[],
        parts: None,
        joins_end: None,
    };
}

/// What a stage has in `[stage.NAME]` beside the keys of all stages.
#[derive(Debug, Clone, Copy)]
pub enum Settings {
    /// Nothing: its application's sections are for all of its stages.
    None,
    /// The keys of a section; a new one has the defaults.
    Keys(fn() -> Box<dyn SectionValue>),
    /// The keys of `[firewall]`, and `[[stage.NAME.rule]]`.
    Rules,
}

impl Settings {
    /// The keys of the section `S`.
    pub const fn of<S: SectionValue + Default>() -> Self {
        Self::Keys(|| Box::new(S::default()))
    }

    /// Whether there are any.
    pub fn is_some(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether the file must have some of them: without its section, the stage cannot start.
    pub fn is_needed(self) -> bool {
        let Self::Keys(section) = self else { return false };
        let is_needed = |key: &Key| matches!(key.about().default, KeyDefault::Needed(_));
        section().keys().iter().any(is_needed)
    }
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Eq for Settings {}

/// Stages that the caller knows, and shipped pipelines.
#[derive(Debug, Clone, Default)]
pub struct KnownStages {
    /// Kinds of stages, in an order in which they make sense.
    pub kinds: Vec<StageKind>,
    /// Names of stages of the file, each with the kind that it has.
    pub aliases: Vec<(&'static str, &'static str)>,
    /// Shipped pipelines that `mode` may name; the first is the default.
    pub modes: Vec<super::Pipeline>,
    /// The Rust modules of the program.
    pub modules: Vec<RustModule>,
    /// CPUs that the process may use, the default of `system.workers`; 0: ask the system.
    pub cores: usize,
    /// The machine whose interfaces the ports are to use; `None`: nothing is said of interfaces.
    pub machine: Option<Machine>,
}

/// A Rust module of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RustModule {
    /// Its name.
    pub name: &'static str,
    /// Whether it uses flows: their states, their numbers, or streams.
    pub uses_flows: bool,
}

/// The interfaces of a machine, for [`KnownStages::machine`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Their names.
    pub interfaces: Vec<String>,
    /// Whether an interface that is missing is an error, and not a warning.
    pub is_needed: bool,
}

impl KnownStages {
    /// The kind of that name.
    pub fn kind(&self, name: &str) -> Option<&StageKind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    /// The name of the kind of a stage, itself unless the file gives the stage a name of its own.
    pub fn kind_of<'n>(&self, name: &'n str) -> &'n str
    where
        'static: 'n,
    {
        let alias = self.aliases.iter().find(|(own, _)| *own == name);
        alias.map_or(name, |(_, kind)| kind)
    }

    /// Adds a stage of the file under a name of its own.
    pub(super) fn add(&mut self, name: &str, kind: StageKind) {
        let name = kept(name);
        self.aliases.push((name, kind.name));
        // Behind its kind: the order of kinds is one in which they make sense.
        let at = self.kinds.iter().position(|own| own.name == kind.name).map_or(0, |at| at + 1);
        self.kinds.insert(at, StageKind { name, ..kind });
    }

    /// A pipeline of these stages.
    ///
    /// # Errors
    /// As [`KnownStages::arrange`].
    pub fn pipeline<S: AsRef<str>>(
        &self,
        name: &str,
        stages: &[S],
    ) -> Result<super::Pipeline, String> {
        let applications = self.arrange(stages)?;
        Ok(super::Pipeline { applications, ..self.unchecked(name, stages) })
    }

    /// The same of stages that may be no pipeline; without applications.
    pub(super) fn unchecked<S: AsRef<str>>(&self, name: &str, stages: &[S]) -> super::Pipeline {
        let own = |stage: &S| stage.as_ref().to_owned();
        super::Pipeline {
            name: name.to_owned(),
            applications: Vec::new(),
            stages: stages.iter().map(own).collect(),
            kinds: stages.iter().map(|s| self.kind_of(s.as_ref()).to_owned()).collect(),
            places: Vec::new(),
            max_delay: None,
        }
    }

    /// The applications, each once.
    pub fn applications(&self) -> Vec<&'static Application> {
        distinct(self.kinds.iter())
    }

    /// The applications of these stages: that of the last one, which says what becomes of packets, and then the others. A last
    /// stage that leaves packets to those behind it is the last one here.
    ///
    /// # Errors
    /// Why the stages are not a pipeline, and an order that works where there is one.
    pub fn arrange<S: AsRef<str>>(
        &self,
        stages: &[S],
    ) -> Result<Vec<&'static Application>, String> {
        let mut kinds = Vec::with_capacity(stages.len());
        for stage in stages {
            let name = stage.as_ref();
            let kind = self.kind(name).ok_or_else(|| format!("unknown stage `{name}`"))?;
            kinds.push(kind);
        }
        self.check(&kinds).map_err(|problem| match self.mended(&kinds) {
            Some(order) => format!("{problem}; an order that works: {}", order.join(", ")),
            None => problem,
        })?;
        // A stage that leaves packets to others says what becomes of them.
        let leader = kinds.iter().find(|kind| !kind.leads_to.is_empty()).copied();
        Ok(distinct(leader.into_iter().chain(kinds.into_iter().rev())))
    }

    /// Whether each stage finds what it needs.
    fn check(&self, kinds: &[&StageKind]) -> Result<(), String> {
        let mut found = vec![FRAMES, RAW];
        let is_double = |at: &usize| kinds[..*at].iter().any(|own| own.name == kinds[*at].name);
        if let Some(at) = (0..kinds.len()).find(is_double) {
            return Err(format!("stage `{}` is listed twice", kinds[at].name));
        }
        for (at, kind) in kinds.iter().enumerate() {
            let name = kind.name;
            let leads = kind.leads_to;
            let behind = &kinds[at + 1..];
            if !leads.is_empty()
                && (behind.len() > leads.len()
                    || behind.iter().zip(leads).any(|(own, lead)| self.kind_of(own.name) != *lead))
            {
                return Err(format!(
                    "only {} may follow `{name}`, in this order",
                    leads.join(", ")
                ));
            }
            let is_led = kinds[..at].iter().any(|own| !own.leads_to.is_empty());
            if kind.is_first && at > 0 && !is_led {
                return Err(format!(
                    "`{name}` must be the first stage: it decodes what was received"
                ));
            }
            if let Some(missing) = kind.needs.iter().find(|needed| !found.contains(needed)) {
                return Err(self.missing(name, missing));
            }
            if kind.is_last && !behind.is_empty() && leads.is_empty() {
                return Err(format!("`{name}` must be the last stage: it sends packets out"));
            }
            let is_late =
                |own: &&&StageKind| kind.application.behind.contains(&self.kind_of(own.name));
            if let Some(late) = kinds[at + 1..].iter().find(is_late) {
                return Err(format!("`{name}` must come after `{}`", late.name));
            }
            if kind.is_first {
                found.clear();
            }
            found.extend(kind.provides);
        }
        self.check_ends(kinds)?;
        match kinds.last() {
            Some(last) if !last.is_last => {
                let ends: Vec<_> = self.kinds.iter().filter(|kind| kind.is_last).collect();
                Err(format!(
                    "`{}` cannot be the last stage: add one of {}",
                    last.name,
                    names(&ends)
                ))
            }
            _ => Ok(()),
        }
    }

    /// An application that joins a pipeline at both ends encloses the stages between: its stages are right behind the
    /// first one and right before the last one, or not there.
    fn check_ends(&self, kinds: &[&StageKind]) -> Result<(), String> {
        for (at, kind) in kinds.iter().enumerate() {
            let (Some(first), Some(end)) = (kind.application.joins, kind.application.joins_end)
            else {
                continue;
            };
            let name = kind.name;
            let is_first = |own: &&StageKind| {
                own.application.joins_end.is_some() && own.application.joins == Some(own.name)
            };
            let is_end = |own: &&StageKind| own.application.joins_end == Some(own.name);
            if name == first && (at == 0 || !kinds[1..at].iter().all(is_first)) {
                return Err(format!("`{name}` must be the second stage"));
            }
            let behind = &kinds[at + 1..];
            let behind = behind.strip_suffix(&[kinds[kinds.len() - 1]]).unwrap_or_default();
            if name == end && !behind.iter().all(is_end) {
                return Err(format!("`{name}` must be the stage before the last one"));
            }
            // A list that is not finished may still get the other one.
            let last = kinds.last().and_then(|last| self.kind(last.name));
            let is_finished = last.is_some_and(|last| last.is_last);
            if name == first && is_finished && !kinds.iter().any(|own| own.name == end) {
                return Err(format!("`{name}` without `{end}`, the stage before the last one"));
            }
            // Of two that do so, the ends have the order of the firsts.
            let place = |name: &str| kinds.iter().position(|own| own.name == name);
            for other in kinds.iter().filter(|own| is_first(own)) {
                let (from, to) = (other.name, other.application.joins_end.unwrap_or_default());
                let [Some(first), Some(end), Some(from_at), Some(to_at)] =
                    [first, end, from, to].map(place)
                else {
                    continue;
                };
                if from_at < first && to_at > end {
                    let (end, first) = (kinds[end].name, kinds[first].name);
                    return Err(format!(
                        "`{to}` must come before `{end}`, as `{from}` comes before `{first}`"
                    ));
                }
            }
        }
        Ok(())
    }

    fn missing(&self, stage: &str, what: &str) -> String {
        let providers: Vec<_> =
            self.kinds.iter().filter(|kind| kind.provides.contains(&what)).collect();
        let mut text = format!("`{stage}` needs {what}, which no earlier stage provides");
        match providers.as_slice() {
            [] => text += ": remove the stages that decode",
            [one] => {
                let _ = write!(text, ": `{}` is missing", one.name);
            }
            several => {
                let _ = write!(text, ": add one of {}", names(several));
            }
        }
        text
    }

    /// The same stages, and those that they need, in an order that works; `None` where there is none.
    fn mended(&self, kinds: &[&StageKind]) -> Option<Vec<&'static str>> {
        let wanted = |chosen: &[bool]| -> Vec<&StageKind> {
            self.kinds.iter().zip(chosen).filter(|(_, is)| **is).map(|(kind, _)| kind).collect()
        };
        let mut chosen: Vec<bool> =
            self.kinds.iter().map(|kind| kinds.iter().any(|k| k.name == kind.name)).collect();
        // Each round adds one stage that another one needs.
        for _ in 0..self.kinds.len() {
            let list = wanted(&chosen);
            if self.check(&list).is_ok() {
                return Some(list.iter().map(|kind| kind.name).collect());
            }
            let is_provided = |what: &str| {
                what == FRAMES || list.iter().any(|kind| kind.provides.contains(&what))
            };
            let needed = list.iter().flat_map(|kind| kind.needs).find(|what| !is_provided(what));
            let application = list.first()?.application;
            // Of several, one of an application that is there.
            let has = |kind: &StageKind| list.iter().any(|k| k.application == kind.application);
            let next = match needed {
                Some(what) => self.kinds.iter().position(|kind| kind.provides.contains(what))?,
                None if list.iter().any(|kind| kind.is_last) => return None,
                None => self.kinds.iter().position(|kind| {
                    kind.is_last && (kind.application == application || has(kind))
                })?,
            };
            if std::mem::replace(&mut chosen[next], true) {
                return None;
            }
        }
        None
    }

    /// Every pipeline: all lists of different stages that [`KnownStages::arrange`] takes, but for stages that cannot be without
    /// a section of their own ([`Settings::is_needed`]).
    pub fn pipelines(&self) -> Vec<Vec<&'static str>> {
        let mut all = Vec::new();
        self.extend(&mut Vec::new(), &mut all);
        all
    }

    fn extend<'a>(&'a self, list: &mut Vec<&'a StageKind>, all: &mut Vec<Vec<&'static str>>) {
        for kind in self.kinds.iter().filter(|kind| !kind.settings.is_needed()) {
            list.push(kind);
            let is_whole = self.check(list).is_ok();
            if is_whole {
                all.push(list.iter().map(|kind| kind.name).collect());
            }
            let goes_on = match is_whole {
                true => !kind.leads_to.is_empty(),
                false => !kind.is_last && self.may_go_on(list),
            };
            if goes_on {
                self.extend(list, all);
            }
            list.pop();
        }
    }

    /// Whether nothing is wrong but that the end is missing.
    fn may_go_on(&self, list: &[&StageKind]) -> bool {
        let end = StageKind { is_last: true, ..*list[list.len() - 1] };
        let mut closed = list.to_vec();
        *closed.last_mut().expect("a stage") = &end;
        self.check(&closed).is_ok()
    }

    /// A configuration as if its file had a section of an application that joins shipped pipelines; `None` where none of
    /// its pipelines is a shipped one, or all have a stage of the application.
    pub fn with_joined(
        &self,
        config: &super::Config,
        application: &Application,
    ) -> Option<super::Config> {
        application.joins?;
        let mut joined = config.clone();
        let mut is_joined = false;
        let pipelines = std::iter::once(&mut joined.pipeline).chain(&mut joined.others);
        for (number, pipeline) in pipelines.enumerate() {
            if !self.modes.contains(pipeline) {
                continue;
            }
            let mut places: Vec<usize> = self
                .companions(application)
                .into_iter()
                .flat_map(|own| self.join(pipeline, own))
                .collect();
            let own = self.join(pipeline, application);
            is_joined |= !own.is_empty();
            places.extend(own);
            for at in places {
                if let Some(lines) = joined.stage_lines.get_mut(number) {
                    lines.insert(at.min(lines.len()), None);
                }
            }
        }
        is_joined.then_some(joined)
    }

    /// Applications that join with the sections of this one: it may need what their stages provide.
    fn companions(&self, application: &Application) -> Vec<&'static Application> {
        let joins_for = |own: &&'static Application| {
            own.joins_for.iter().any(|section| application.sections.contains(section))
        };
        self.applications().into_iter().filter(joins_for).collect()
    }

    /// Puts the stages of an application into a shipped pipeline; their places, in the order in which they were put in.
    pub(super) fn join(
        &self,
        pipeline: &mut super::Pipeline,
        application: &Application,
    ) -> Vec<usize> {
        let first = application.joins.and_then(|stage| {
            let at = self.place_of_joining(&pipeline.stages, stage)?;
            Some((at, stage))
        });
        let Some((at, stage)) = first else { return Vec::new() };
        let mut new = vec![(at, stage)];
        if let Some(stage) = application.joins_end {
            // Before the last stage, which the first one may have moved.
            new.push((self.place_of_end(&pipeline.stages, at) + 1, stage));
        }
        for (at, stage) in &new {
            pipeline.stages.insert(*at, (*stage).to_owned());
            pipeline.kinds.insert(*at, (*stage).to_owned());
        }
        let places = new.into_iter().map(|(at, _)| at).collect();
        pipeline.applications = self.arrange(&pipeline.stages).unwrap_or_default();
        places
    }

    /// Where the stage that ends what a stage at place `at` begins would be: before the last one, and before the ends of
    /// those that begin behind it.
    fn place_of_end(&self, stages: &[String], at: usize) -> usize {
        let behind = stages.iter().skip(at);
        let has_end = |own: &&String| {
            let application = self.kind(own).map(|kind| kind.application);
            application.is_some_and(|a| a.joins_end.is_some() && a.joins == Some(own.as_str()))
        };
        stages.len().saturating_sub(1 + behind.filter(has_end).count()).max(at)
    }

    /// Where the stage that an application puts in is in a shipped pipeline: behind the first stage that decodes,
    /// else first, else at the first place that it can have; `None` where there is none.
    pub(super) fn place_of_joining(&self, stages: &[String], stage: &str) -> Option<usize> {
        if stages.iter().any(|own| own == stage) {
            return None;
        }
        let end = self.kind(stage).and_then(|kind| kind.application.joins_end);
        [1, 0].into_iter().chain(2..=stages.len()).find(|at| {
            let mut with = stages.to_vec();
            *at <= with.len() && {
                with.insert(*at, stage.to_owned());
                if let Some(end) = end {
                    with.insert(self.place_of_end(stages, *at) + 1, end.to_owned());
                }
                self.arrange(&with).is_ok()
            }
        })
    }

    /// Makes of each stage as many as its application says ([`Application::parts`]), in pipelines where that was not done.
    pub fn part(&self, config: &mut super::Config) {
        let parts: Vec<(&str, usize)> = self
            .kinds
            .iter()
            .filter_map(|kind| Some((kind.name, kind.application.parts?(config))))
            .collect();
        let super::Config { pipeline, others, stage_lines, .. } = config;
        for (pipeline, lines) in std::iter::once(pipeline).chain(others).zip(stage_lines) {
            for (kind, count) in &parts {
                let Some(first) = pipeline.kinds.iter().position(|own| own == kind) else {
                    continue;
                };
                let name = pipeline.stages[first].clone();
                let line = lines.get(first).copied().flatten();
                for number in 2..=*count {
                    let at = first + number - 1;
                    pipeline.stages.insert(at, format!("{name}.{number}"));
                    pipeline.kinds.insert(at, (*kind).to_owned());
                    lines.insert(at.min(lines.len()), line);
                }
            }
        }
    }

    /// The titles of those that read a section: applications that have it, and for one that joins others, those.
    pub(super) fn readers_of(&self, section: &str) -> Vec<&'static str> {
        let mut titles = Vec::new();
        for application in self.applications().iter().filter(|a| a.sections.contains(&section)) {
            match application.joins {
                None => titles.push(application.title),
                Some(stage) => titles.extend(self.modes.iter().filter_map(|mode| {
                    let is_there = mode.stages.iter().any(|own| own == stage);
                    let mut with = mode.clone();
                    for own in self.companions(application) {
                        self.join(&mut with, own);
                    }
                    let may = is_there || self.place_of_joining(&with.stages, stage).is_some();
                    may.then(|| mode.main().title)
                })),
            }
        }
        titles
    }

    /// Whether a pipeline reads a section of the file: one of its applications has it, or one that could join it.
    pub(super) fn reads(&self, main: &Application, section: &str) -> bool {
        self.readers_of(section).contains(&main.title)
    }

    /// Whether one of several pipelines reads a section; where it is not known what one is about, it may.
    pub(super) fn any_reads(&self, mains: &[Option<&'static Application>], section: &str) -> bool {
        mains.iter().any(|main| main.is_none_or(|main| self.reads(main, section)))
    }

    /// Sections that no stage of these pipelines reads.
    pub(super) fn foreign_sections(
        &self,
        mains: &[Option<&'static Application>],
    ) -> Vec<&'static str> {
        let all = self.applications().into_iter().flat_map(|application| application.sections);
        all.copied().filter(|section| !self.any_reads(mains, section)).collect()
    }

    /// Keys of a port without effect in a pipeline of `main`.
    pub(super) fn foreign_port_keys(&self, main: Option<&Application>) -> Vec<&'static str> {
        let Some(main) = main else { return Vec::new() };
        let all = self.applications().into_iter().flat_map(|application| application.port_keys);
        let mut keys: Vec<_> = all.copied().filter(|key| !main.port_keys.contains(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// The same name, kept as long as the program: names of stages are in programs of devices and in counters. A name is
/// kept once, however often a file is read.
pub fn kept(name: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let new: &'static str = String::leak(name.to_owned());
    names.insert(new);
    new
}

fn distinct<'a>(kinds: impl Iterator<Item = &'a StageKind>) -> Vec<&'static Application> {
    let mut all = Vec::new();
    for kind in kinds {
        if !all.contains(&kind.application) {
            all.push(kind.application);
        }
    }
    all
}

/// `` `a`, `b` ``.
fn names(kinds: &[&StageKind]) -> String {
    kinds.iter().map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const fn application(name: &'static str, title: &'static str) -> Application {
        Application {
            name,
            title,
            sections: &[],
            port_keys: &[],
            has_host: false,
            is_promiscuous: false,
            in_pairs: false,
            joins: None,
            joins_for: &[],
            joins_when: None,
            behind: &[],
            parts: None,
            joins_end: None,
        }
    }

    /// As the program has them.
    pub(in crate::config) static ROUTER: Application = Application {
        sections: &["router", "route", "routes", "neighbour"],
        port_keys: &[
            "addresses",
            "twin",
            "host",
            "accept_ra",
            "accept_ra_routes",
            "rpf",
            "parent",
            "vlan",
        ],
        has_host: true,
        ..application("router", "a router")
    };
    pub(in crate::config) static SWITCH: Application = Application {
        sections: &["switch", "station"],
        port_keys: &[
            "access",
            "trunk",
            "native",
            "learning",
            "stations",
            "extra_stations",
            "storm",
        ],
        is_promiscuous: true,
        ..application("switch", "a switch")
    };
    pub(in crate::config) static NDN: Application = Application {
        sections: &["neighbour", "ndn", "name", "names"],
        port_keys: &["addresses", "twin", "host", "faces", "register"],
        has_host: true,
        ..application("ndn", "a named-data forwarder")
    };
    pub(in crate::config) static WIRE: Application =
        Application { in_pairs: true, ..application("wire", "a wire") };
    pub(in crate::config) static FIREWALL: Application = Application {
        sections: &["firewall", "rule"],
        joins: Some("firewall"),
        joins_for: &[],
        joins_when: None,
        behind: &[],
        parts: None,
        joins_end: None,
        ..application("firewall", "a firewall")
    };

    /// A kind in the middle of a pipeline.
    pub(in crate::config) const fn kind(
        name: &'static str,
        application: &'static Application,
        needs: &'static [&'static str],
        provides: &'static [&'static str],
    ) -> StageKind {
        let (is_first, is_last) = (false, false);
        StageKind {
            name,
            about: "",
            application,
            needs,
            provides,
            is_first,
            is_last,
            places: &[],
            leads_to: &[],
            settings: Settings::None,
        }
    }

    fn known() -> KnownStages {
        let first = |kind| StageKind { is_first: true, ..kind };
        let last = |kind| StageKind { is_last: true, ..kind };
        KnownStages {
            kinds: vec![
                first(kind("decode", &ROUTER, &[], &[FRAMES, "ip"])),
                first(kind("bridge_in", &SWITCH, &[], &[FRAMES, "link"])),
                first(kind("ndn_decode", &NDN, &[], &["name"])),
                kind("firewall", &FIREWALL, &[FRAMES], &[]),
                kind("rpf", &ROUTER, &["ip"], &[]),
                kind("route", &ROUTER, &["ip"], &["next_hop"]),
                kind("bridge", &SWITCH, &["link"], &["output"]),
                last(kind("rewrite", &ROUTER, &["next_hop"], &[])),
                last(kind("bridge_out", &SWITCH, &["output"], &[])),
                last(kind("pit", &NDN, &["name"], &[])),
                last(kind("wire", &WIRE, &[RAW], &[])),
            ],
            ..KnownStages::default()
        }
    }

    fn names_of(list: &str) -> Vec<&str> {
        list.split(' ').collect()
    }

    #[test]
    fn stages_that_find_what_they_need_make_a_pipeline() {
        let known = known();
        for (list, expected) in [
            ("decode route rewrite", &["router"][..]),
            ("decode route firewall rpf rewrite", &["router", "firewall"]),
            ("bridge_in bridge bridge_out", &["switch"]),
            ("firewall wire", &["wire", "firewall"]),
            ("wire", &["wire"]),
            ("ndn_decode pit", &["ndn"]),
        ] {
            let found = known.arrange(&names_of(list)).unwrap_or_else(|e| panic!("{list}: {e}"));
            assert_eq!(found.iter().map(|a| a.name).collect::<Vec<_>>(), expected, "{list}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_an_order_that_works() {
        let known = known();
        for (list, expected) in [
            (
                "route rewrite",
                "`route` needs ip, which no earlier stage provides: `decode` is missing; \
                 an order that works: decode, route, rewrite",
            ),
            (
                "decode rewrite",
                "`rewrite` needs next_hop, which no earlier stage provides: `route` is missing; \
                 an order that works: decode, route, rewrite",
            ),
            (
                "firewall decode route rewrite",
                "`decode` must be the first stage: it decodes what was received; \
                 an order that works: decode, firewall, route, rewrite",
            ),
            (
                "decode rewrite route",
                "`rewrite` needs next_hop, which no earlier stage provides: `route` is missing; \
                 an order that works: decode, route, rewrite",
            ),
            (
                "decode route",
                "`route` cannot be the last stage: \
                 add one of `rewrite`, `bridge_out`, `pit`, `wire`; \
                 an order that works: decode, route, rewrite",
            ),
            (
                "ndn_decode firewall pit",
                "`firewall` needs frames, which no earlier stage provides: \
                 add one of `decode`, `bridge_in`",
            ),
            (
                "decode wire",
                "`wire` needs raw frames, which no earlier stage provides: \
                 remove the stages that decode",
            ),
            (
                "decode rpf rpf route rewrite",
                "stage `rpf` is listed twice; an order that works: decode, rpf, route, rewrite",
            ),
            ("decode rout rewrite", "unknown stage `rout`"),
        ] {
            assert_eq!(known.arrange(&names_of(list)).unwrap_err(), expected, "{list}");
        }
    }

    #[test]
    fn all_pipelines_are_those_that_are_taken() {
        let known = known();
        let all = known.pipelines();
        assert!(all.iter().all(|list| known.arrange(list).is_ok()));
        // A router with any order of rpf, route and firewall; a switch with a firewall or none; and so on.
        assert_eq!(all.len(), (1 + 2 + 2 + 6) + 3 + 1 + 2, "{all:?}");
        // Every list of up to four kinds that is not among them is refused.
        let names: Vec<_> = known.kinds.iter().map(|kind| kind.name).collect();
        let n = names.len();
        for number in 0..n.pow(4) {
            let list: Vec<_> = (0..4).map(|digit| names[number / n.pow(digit) % n]).collect();
            for len in 1..=4 {
                let is_in = all.iter().any(|known| known == &list[..len]);
                assert_eq!(known.arrange(&list[..len]).is_ok(), is_in, "{:?}", &list[..len]);
            }
        }
    }
}
