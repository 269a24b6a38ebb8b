//! Rules from files to what detectors evaluate.
//!
//! ```text
//!  rules, classification.config, threshold.config, variables ─▶ signatures::Loader ─▶ detect::Ruleset
//!                                                                └ problems ─┬─ refused ┘
//!                                                                            └▶ `shadeline ids -T`, log
//! ```
//!
//! Threads: any; it is what takes long of a start or a reload.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::config::{Config, Ids};
use detect::{Datasets, Options, Reputation, Ruleset};
use signatures::config::{LimitKind, classifications, thresholds};
use signatures::{
    Action, Check, Condition, FileProblem, LoadError, Loader, Problem, Rule, RuleSet, SetOperation,
    TagScope, Variables,
};

use super::counters::counted;
use super::notes::{self, UnsetBit, Unused};
use crate::flow::search::Literals;

pub use detect::{is_later, keywords};

/// What became of rule files.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// What detectors evaluate.
    pub rules: Arc<Ruleset>,
    /// What of the rules is searched for before it is known whose bytes it is, where the configuration asks for that.
    pub literals: Option<Arc<Literals>>,
    /// The sets that rules ask for and write.
    pub datasets: Datasets,
    /// The rules as they were read, for who explains them.
    pub set: Arc<RuleSet>,
    /// What is wrong in files of rules, and what of them is not evaluated: file, line, column, reason.
    pub problems: Vec<Refusal>,
    /// Problems that were not kept.
    pub problems_dropped: u64,
    /// What is wrong in the files beside the rules.
    pub warnings: Vec<String>,
    /// What is odd about files of rules: they have none, or are named twice; rules never match or name classes that there are not;
    /// limits are those of no rule.
    pub of_files: Vec<String>,
    /// Variables with a value that no rule names.
    pub unused: Vec<Unused>,
    /// Flowbits that rules test and none sets.
    pub unset_bits: Vec<UnsetBit>,
    /// Rules that are read.
    pub total: u64,
    /// Rules that are evaluated.
    pub loaded: u64,
    /// Rules that are not, as another one with their `gid` and `sid` has a higher revision.
    pub replaced: u64,
    /// Rules behind `#`.
    pub disabled: u64,
    /// What rules find depends on other flows of a host, whoever they are with: thresholds, tags, bits of hosts.
    pub counts_hosts: bool,
}

/// A rule that is not evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the file.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// Byte of the line, from 1.
    pub column: u64,
    /// Why, in words.
    pub reason: String,
    /// Only because another rule with its `gid` and `sid` has a higher revision.
    pub is_replaced: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, column, reason, .. } = self;
        write!(f, "{file}:{line}:{column}: {reason}")
    }
}

impl From<&FileProblem> for Refusal {
    fn from(own: &FileProblem) -> Self {
        let problem = &own.problem;
        let (line, column, reason) = (problem.line, problem.column, problem.message());
        let is_replaced = own.is_replaced;
        Self { file: own.file.clone(), line, column, reason, is_replaced }
    }
}

impl Loaded {
    /// Evaluated rules among all that are not disabled, 0 to 1; 1 where there are none.
    pub fn share(&self) -> f64 {
        if self.total == 0 { 1.0 } else { self.loaded as f64 / self.total as f64 }
    }

    /// Problems, those of replaced rules first: such rules are right, and one may be missed.
    pub fn foremost(&self) -> impl Iterator<Item = &Refusal> {
        let replaced = self.problems.iter().filter(|own| own.is_replaced);
        replaced.chain(self.problems.iter().filter(|own| !own.is_replaced))
    }

    /// How many flowbits are tested in vain; the first is said behind it.
    pub fn tested_bits(&self) -> String {
        let bits = super::counters::counted(self.unset_bits.len() as u64, "flowbit");
        format!("{bits} tested that no rule sets, such as")
    }

    /// One line: how many rules there are.
    pub fn summary(&self) -> String {
        // Never rounded up to all of them.
        let most = if self.loaded == self.total { 100.0 } else { 99.99 };
        let percent = ((self.share() * 1e4).round() / 100.0).min(most);
        let replaced = match self.replaced {
            0 => String::new(),
            replaced => format!(" ({replaced} replaced)"),
        };
        format!(
            "{}: {} loaded ({percent:.2} %), {} not{replaced}; {} disabled",
            counted(self.total, "rule"),
            self.loaded,
            self.total - self.loaded,
            self.disabled
        )
    }
}

/// A rule that takes more time than others.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Dear {
    /// Name of the file.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// The rule's `gid`.
    pub gid: u32,
    /// Its `sid`.
    pub sid: u32,
    /// Why, in words.
    pub why: String,
}

impl Loaded {
    /// Rules of which a part is evaluated on every buffer, whatever is in it; the dearest first, by an estimate.
    pub fn dear(&self) -> Vec<Dear> {
        let mut all = self.rules.dear();
        all.sort_by_key(|(_, own)| std::cmp::Reverse(own.weight));
        let of = |(number, own): &(u32, detect::Dear)| {
            let info = self.rules.rule(*number);
            let rule = &self.set.rules[info.index];
            let (file, line) = (self.set.files[rule.file].clone(), rule.line);
            Dear { file, line, gid: info.gid, sid: info.sid, why: own.to_string() }
        };
        all.iter().map(of).collect()
    }
}

/// A warning of rules that drop packets and may match late.
fn late(rules: &Ruleset, set: &RuleSet) -> Option<String> {
    let all = rules.late();
    let (number, why) = all.first()?;
    let info = rules.rule(*number);
    let rule = &set.rules[info.index];
    let place = format!("{}:{}", set.files[rule.file], rule.line);
    let count = super::counters::counted(all.len() as u64, "rule");
    Some(format!(
        "inline, {count} may drop a flow after packets that match were forwarded, such as {} ({place}): {why}",
        info.sid
    ))
}

/// The name of what [`load_with`] adds, in place of a file's.
pub const FURTHER: &str = "(made)";

/// The variables of a configuration.
///
/// # Errors
/// One is not a list, or does not resolve; in words.
pub fn variables(own: &Ids) -> Result<Variables, String> {
    let is_port = |name: &str| name.ends_with("_PORT") || name.ends_with("_PORTS");
    let pairs = || own.vars.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let addresses = pairs().filter(|(name, _)| !is_port(name));
    let ports = pairs().filter(|(name, _)| is_port(name));
    Variables::with_defaults(addresses, ports).map_err(|error| format!("ids.vars: {error}"))
}

/// Reads and compiles what a configuration names. `before`: what detectors have; names keep their meaning, and sets that rules
/// write keep their values.
///
/// # Errors
/// A file cannot be read, or a variable is wrong; in words. Wrong rules are no error.
pub fn load(config: &Config, before: Option<(&Ruleset, &Datasets)>) -> Result<Loaded, String> {
    load_with(config, before, |_| Vec::new())
}

/// The same with further rules, made of those of the files; their text is one rule a line. If there are any, rules of all actions
/// only alert: none hides from others what it drops or passes.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    config: &Config,
    before: Option<(&Ruleset, &Datasets)>,
    further: impl FnOnce(&RuleSet) -> Vec<u8>,
) -> Result<Loaded, String> {
    let own = &config.ids;
    let variables = variables(own)?;
    let (paths, mut of_files) = once(&own.rules);
    let read = || {
        let mut loader = Loader::new(variables.clone());
        let (mut empty, mut left) = (Vec::new(), RULES_BYTES_MAX);
        for path in &paths {
            let before = loader.entries();
            read_rules(&mut loader, path, &mut left).map_err(|LoadError { file, error }| {
                format!("cannot read the rule file {file}: {error}")
            })?;
            if loader.entries() == before {
                empty.push(format!("{}: the file has no rules", path.display()));
            }
        }
        Ok::<_, String>((loader, empty))
    };
    let (loader, empty) = read()?;
    let set = loader.finish();
    of_files.extend(empty);
    let text = further(&set);
    let set = if text.is_empty() {
        set
    } else {
        let (mut loader, _) = read()?;
        loader.read(FURTHER, &text[..]).map_err(|error| error.to_string())?;
        let mut set = loader.finish();
        set.rules.iter_mut().for_each(|own| own.rule.action = Action::Alert);
        set
    };
    let mut warnings = Vec::new();
    let mut options = Options { midstream: config.flow.midstream, ..Options::default() };
    let say = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    if let Some(path) = &own.classification {
        let open = File::open(path).and_then(|file| classifications(BufReader::new(file)));
        let read = open.map_err(|error| say(path, error))?;
        warnings.extend(read.problems.iter().map(|own| placed(path, own)));
        options.classes = read.found;
    }
    warnings.extend(unclassified(own, &set));
    if own.classification.is_some() {
        of_files.extend(notes::unknown_classes(&set, &options.classes));
    }
    if let Some(path) = &own.thresholds {
        let open = File::open(path).and_then(|file| thresholds(BufReader::new(file)));
        let read = open.map_err(|error| say(path, error))?;
        warnings.extend(read.problems.iter().map(|own| placed(path, own)));
        options.limits = read.found;
        // A list that comes to nothing is wrong once, and no rule is refused for it.
        options.limits.retain(|limit| {
            let LimitKind::Suppress(Some(own)) = &limit.kind else { return true };
            let resolved = own.addresses.resolve(&variables);
            let wrong = resolved.err().map(|e| format!("{}:{}: {e}", path.display(), limit.line));
            warnings.extend(wrong.clone());
            wrong.is_none()
        });
    }
    options.reputation = reputation(own, &mut warnings)?;
    let none = Datasets::default();
    let sets = before.map_or(&none, |(_, sets)| sets);
    let open = |name: &str, rules: usize| dataset_file(own, name, set.files.get(rules));
    let (datasets, mut wrong) = Datasets::prepare(&set, sets, open);
    options.datasets = datasets;
    let compile = |options: &Options| match before {
        Some((before, _)) => Ruleset::compile_after(before, &set, &variables, options),
        None => Ruleset::compile(&set, &variables, options),
    };
    let (mut rules, mut refused) = compile(&options);
    // What a rule says of sets does not hold if it is refused for another reason than these.
    let without = refused.iter().map(|own| own.index);
    let without = without.filter(|at| options.datasets.has_all_of(*at, &set.rules[*at].rule));
    let without: HashSet<usize> = without.collect();
    if !without.is_empty() {
        (options.datasets, wrong) = Datasets::prepare_without(&set, sets, &without, open);
        (rules, refused) = compile(&options);
    }
    warnings.extend(wrong);
    warnings.extend(late(&rules, &set));
    let literals = if own.device { literals(&rules, &mut warnings) } else { None };
    let mut problems: Vec<Refusal> = set.problems.iter().map(Refusal::from).collect();
    for own in &refused {
        let rule = &set.rules[own.index];
        problems.push(Refusal {
            file: set.files[rule.file].clone(),
            line: rule.line,
            column: 1,
            reason: format!("rule {} is not supported: {}", own.sid, own.reason),
            is_replaced: false,
        });
    }
    // By file and line, as they stand there.
    let number = |file: &String| set.files.iter().position(|own| own == file);
    problems.sort_by_cached_key(|own| (number(&own.file), own.line, own.column));
    let summary = set.summary;
    if let Some(path) = &own.thresholds {
        of_files.extend(notes::limits_of_no_rule(&set, &options.limits, path));
    }
    let counts_hosts =
        !options.limits.is_empty() || set.rules.iter().any(|own| counts_hosts(&own.rule));
    let indices: HashSet<usize> = refused.iter().map(|own| own.index).collect();
    let is_refused = |index: usize| indices.contains(&index);
    of_files.extend(notes::never(&set, is_refused));
    of_files.extend(notes::stored_files(&set, is_refused));
    let (unused, unset_bits) = (notes::unused(own, &set), notes::unset_bits(&set, is_refused));
    Ok(Loaded {
        counts_hosts,
        unused,
        unset_bits,
        datasets: options.datasets,
        rules: Arc::new(rules),
        literals,
        problems,
        problems_dropped: set.problems_dropped,
        warnings,
        of_files,
        total: summary.total,
        loaded: summary.loaded - refused.len() as u64,
        replaced: summary.replaced,
        disabled: summary.disabled,
        set: Arc::new(set),
    })
}

/// A problem with its file, line and column.
fn placed(path: &Path, own: &Problem) -> String {
    format!("{}:{}:{}: {}", path.display(), own.line, own.column, own.message())
}

/// The literals of rules as a device searches for them.
fn literals(rules: &Ruleset, warnings: &mut Vec<String>) -> Option<Arc<Literals>> {
    match rules.literals() {
        Ok(automaton) => {
            automaton.map(|automaton| Arc::new(Literals::new(rules.generation(), automaton)))
        }
        Err(error) => {
            warnings.push(format!("packets are not searched on a device: {error}"));
            None
        }
    }
}

/// Whether a rule looks at what a host does in other flows.
fn counts_hosts(rule: &Rule) -> bool {
    rule.threshold.is_some()
        || rule.detection_filter.is_some()
        || rule.tags.iter().any(|own| own.scope != TagScope::Session)
        || rule
            .conditions
            .iter()
            .any(|own| matches!(own, Condition::Xbits(_) | Condition::Hostbits(_)))
        || rule.inspections.iter().flat_map(|own| &own.checks).any(writes_set)
}

fn writes_set(check: &Check) -> bool {
    let Check::Dataset(own) = check else { return false };
    matches!(own.operation, SetOperation::Set | SetOperation::Unset)
}

/// Classes of rules say nothing without the file that has them.
fn unclassified(own: &Ids, set: &RuleSet) -> Option<String> {
    let count = set.rules.iter().filter(|own| own.rule.classtype.is_some()).count();
    (own.classification.is_none() && count > 0).then(|| {
        let name = if count == 1 { "names" } else { "name" };
        format!(
            "{} {name} a class and no classification file is given: alerts have no class, and priority 3 where \
             the rule has none",
            counted(count as u64, "rule")
        )
    })
}

/// The reputations that a configuration names.
fn reputation(own: &Ids, warnings: &mut Vec<String>) -> Result<Reputation, String> {
    let Some(categories) = &own.reputation_categories else {
        return match own.reputation.is_empty() {
            true => Ok(Reputation::default()),
            false => Err("reputation needs reputation_categories".to_owned()),
        };
    };
    let open = |path: &PathBuf| {
        files::input::open(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let files = own.reputation.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let (read, wrong) =
        Reputation::read(open(categories)?, files).map_err(|e| format!("reputation: {e}"))?;
    warnings.extend(wrong.iter().map(|wrong| {
        let path = wrong.file.and_then(|at| own.reputation.get(at)).unwrap_or(categories);
        format!("{}:{}: {}", path.display(), wrong.line, wrong.reason)
    }));
    Ok(read)
}

/// A file of values: beside the file of rules that names it; a state that was saved, in the folder of outputs.
fn dataset_file(own: &Ids, name: &str, rules: Option<&String>) -> io::Result<Box<dyn BufRead>> {
    let saved = own.output.as_ref().map(|folder| folder.join(name));
    let beside = rules.and_then(|file| Path::new(file).parent()).map(|folder| folder.join(name));
    let path = match beside {
        Some(beside) => beside,
        None => PathBuf::from(name),
    };
    let path = saved.filter(|path| path.is_file()).unwrap_or(path);
    Ok(Box::new(files::input::open(&path)?))
}

/// Files of a folder of outputs that are not those of sets.
const OUTPUTS: [&str; 3] = ["eve.json", "fast.log", "stats.log"];

/// Writes the sets that are saved into the folder of outputs, each as a whole: a file that is there is replaced at once.
///
/// # Errors
/// A file cannot be written, or has the name of one of the events; in words.
pub fn save_datasets(datasets: &Datasets, output: &Path) -> Result<(), String> {
    for set in datasets.all() {
        let Some((name, lines)) = set.saved() else { continue };
        let path = output.join(name);
        if OUTPUTS.iter().any(|own| path == output.join(own)) {
            return Err(format!("dataset {}: `{name}` is a file of events", set.name()));
        }
        let write = || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut text = lines.join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            // No other file has this name, and it is no link: it is made here or not at all.
            let mut new = path.clone().into_os_string();
            new.push(format!(".{}.new", std::process::id()));
            let made = File::options().write(true).create_new(true).open(&new);
            made.and_then(|mut file| file.write_all(text.as_bytes()))?;
            std::fs::rename(&new, &path)
        };
        write().map_err(|error: io::Error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The files, each once, and what is said of those that are named again.
fn once(paths: &[PathBuf]) -> (Vec<&PathBuf>, Vec<String>) {
    let (mut known, mut said) = (HashSet::new(), Vec::new());
    let is_first = |path: &&PathBuf| {
        // What is not there is said when it is opened.
        let is_new = known.insert(path.canonicalize().unwrap_or_else(|_| (*path).clone()));
        if !is_new {
            said.push(format!("{}: the file is named twice; it is read once", path.display()));
        }
        is_new
    };
    (paths.iter().filter(is_first).collect(), said)
}

/// A file of rules, which may be compressed by gzip, xz or zstd.
/// `left`: bytes of rules that may be read.
fn read_rules(loader: &mut Loader, path: &Path, left: &mut u64) -> Result<(), LoadError> {
    let name = path.display().to_string();
    let failed = |error| LoadError { file: name.clone(), error };
    let mut open = files::input::open(path).map_err(failed)?;
    let mut start = Vec::new();
    (&mut open).take(START).read_to_end(&mut start).map_err(failed)?;
    if let Some(what) = no_text(&start) {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    loader.read(&name, Bounded { reader: io::Cursor::new(start).chain(open), left })
}

/// Bytes of all files of rules, as text. A rule takes up to about eighty times its length of memory, most of it for expressions.
const RULES_BYTES_MAX: u64 = 64 << 20;

/// Reads no more than there may be.
struct Bounded<'a, R> {
    reader: R,
    left: &'a mut u64,
}

impl<R: BufRead> Read for Bounded<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Bounded<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let bytes = self.reader.fill_buf()?;
        match *self.left {
            0 if !bytes.is_empty() => {
                let most = RULES_BYTES_MAX >> 20;
                let what = format!("the files of rules have more than {most} MiB together");
                Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
            }
            left => Ok(&bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))]),
        }
    }

    fn consume(&mut self, len: usize) {
        *self.left -= len as u64;
        self.reader.consume(len);
    }
}

/// Bytes by which it is known whether a file is text.
const START: u64 = 4096;

/// What a file is by its first bytes that is no text, in words.
fn no_text(start: &[u8]) -> Option<&'static str> {
    const KINDS: &[(usize, &[u8], &str)] = &[
        (257, b"ustar", "the file is a tar archive, not rules: unpack it"),
        (0, b"PK\x03\x04", "the file is a zip archive, not rules: unpack it"),
        (0, b"BZh", "the file is compressed by bzip2; gzip, xz and zstd are read"),
        (0, b"\xff\xfe", "the file is text in UTF-16; save it in UTF-8"),
        (0, b"\xfe\xff", "the file is text in UTF-16; save it in UTF-8"),
    ];
    let is_there = |at: usize, magic: &[u8]| start.get(at..).is_some_and(|s| s.starts_with(magic));
    let kind = KINDS.iter().find(|(at, magic, _)| is_there(*at, magic));
    let is_binary = || start.contains(&0);
    kind.map(|(.., what)| *what)
        .or_else(|| is_binary().then_some("the file has binary data, not rules"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is loaded of files.
    fn loaded_of(files: Vec<PathBuf>) -> Result<Loaded, String> {
        let text = "mode = \"monitor\"\n[port.a]\n[ids]\n";
        let (mut config, _) = control::config::parse(text, &crate::known_stages()).expect("right");
        config.ids.rules = files;
        load(&config, None)
    }

    #[test]
    fn files_of_rules_have_a_bound_together() {
        let mut left = 10;
        let mut read = |text: &[u8], all: &mut Vec<u8>| {
            Bounded { reader: text, left: &mut left }.read_to_end(all).map_err(|own| own.kind())
        };
        let mut all = Vec::new();
        assert_eq!(read(b"sixsix", &mut all), Ok(6));
        assert_eq!(read(b"more", &mut all), Ok(4));
        assert_eq!(read(b"", &mut all), Ok(0));
        assert_eq!(read(b"x", &mut all), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(all, b"sixsixmore");
    }

    #[test]
    fn shares_are_rounded_but_not_up_to_all() {
        let text = |loaded, total| Loaded { loaded, total, ..Loaded::default() }.summary();
        assert!(text(11, 89).contains("(12.36 %)"), "{}", text(11, 89));
        assert!(text(13, 14).contains("(92.86 %)"), "{}", text(13, 14));
        assert!(text(99_999, 100_000).contains("(99.99 %)"));
        assert!(text(14, 14).contains("(100.00 %)"));
    }

    /// What is loaded of rules.
    fn loaded(name: &str, rules: &str) -> Loaded {
        let path = std::env::temp_dir().join(format!("shadeline-{name}-{}", std::process::id()));
        std::fs::write(&path, rules).expect("a temporary file");
        let own = loaded_of(vec![path.clone()]).expect("it can be read");
        std::fs::remove_file(&path).expect("it was made");
        own
    }

    /// Of two rules with one identifier one is evaluated, whichever comes first, and the other one is named.
    #[test]
    fn a_replaced_rule_is_not_loaded() {
        let (old, new) = (
            "drop ip any any -> any any (sid:7; rev:1;)\n",
            "alert ip any any -> any any (sid:7; rev:2;)\n",
        );
        let bad = "alert ip any any -> any any (sid:8; nosuch;)\n";
        for (name, rules, lines) in
            [("older", [bad, old, new], (2, 3)), ("newer", [bad, new, old], (3, 2))]
        {
            let own = loaded(name, &rules.concat());
            assert_eq!((own.total, own.loaded, own.replaced, own.rules.len()), (3, 1, 1, 1));
            assert_eq!(
                own.summary(),
                "3 rules: 1 loaded (33.33 %), 2 not (1 replaced); 0 disabled"
            );
            let first = own.foremost().next().expect("two are refused");
            assert_eq!((first.line, first.is_replaced), (lines.0, true));
            let said = first.to_string();
            assert!(said.contains(": replaced: sid 7 has revision 2 at "), "{said}");
            assert!(said.ends_with(&format!(":{}", lines.1)), "{said}");
            assert_eq!(own.foremost().count(), own.problems.len());
            assert_eq!(own.problems.len(), 2, "once: {:?}", own.problems);
        }
    }

    /// What is not done with a file is said once for all rules.
    #[test]
    fn files_are_not_stored() {
        let of = |sid: u32, more: &str| {
            format!("alert http any any -> any any (filestore; {more}sid:{sid};)\n")
        };
        let own = loaded("stored", &[of(1, "nosuch; "), of(2, ""), of(3, "")].concat());
        let [said] = &own.of_files[..] else { panic!("{:?}", own.of_files) };
        assert!(
            said.ends_with(
                ":2: rule 2 is evaluated, but `filestore` stores no file; another rule has it, too"
            ),
            "{said}"
        );
        assert_eq!(own.loaded, 2);
    }

    /// A rule that is refused for something else writes no set and saves none.
    #[test]
    fn refused_rules_leave_nothing_in_sets() {
        let own = loaded(
            "refused-sets",
            "alert http any any -> any any (http.host; dataset:set,a,type string,save a.lst; file.magic; content:\"x\"; sid:1;)\n\
             alert http any any -> any any (http.host; dataset:isset,a,type string; sid:2;)\n",
        );
        assert_eq!((own.loaded, own.problems.len()), (1, 1), "{:?}", own.problems);
        assert!(own.problems[0].reason.contains("file.magic"), "{:?}", own.problems);
        let set = own.datasets.get("a").expect("a rule names it");
        assert!(set.saved().is_none(), "nobody writes it");
        assert!(own.warnings.is_empty(), "{:?}", own.warnings);
    }

    /// What people name in place of a file of rules: what is said has its name and the reason.
    #[test]
    fn files_that_are_no_rules() {
        let folder = std::env::temp_dir().join(format!("shadeline-kinds-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let rule = b"alert tcp any any -> any any (sid:1;)\n";
        let tar = [&[b'a'; 99][..], &[0; 158], b"ustar", &[0; 250]].concat();
        let utf16: Vec<u8> =
            [0xff, 0xfe].into_iter().chain(rule.iter().flat_map(|b| [*b, 0])).collect();
        let late = [&[b'#'; 3000][..], b"\n\0"].concat();
        let cases: [(&str, Option<&[u8]>, &str); 8] = [
            ("none", None, "No such file"),
            ("tar", Some(&tar), "is a tar archive"),
            ("zip", Some(b"PK\x03\x04..."), "is a zip archive"),
            ("bz2", Some(b"BZh91AY"), "compressed by bzip2"),
            ("utf16", Some(&utf16), "UTF-16"),
            ("pcap", Some(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]), "binary data"),
            ("late", Some(&late), "binary data"),
            ("gz", Some(&[0x1f, 0x8b, 8, 0]), "gzip data is truncated"),
        ];
        for (name, bytes, expected) in cases {
            let path = folder.join(name);
            bytes.iter().for_each(|bytes| std::fs::write(&path, bytes).expect("it is written"));
            let said = loaded_of(vec![path.clone()]).expect_err(name);
            let start = format!("cannot read the rule file {}: ", path.display());
            assert!(said.starts_with(&start) && said.contains(expected), "{said}");
        }
        let said = loaded_of(vec![folder.clone()]).expect_err("a folder");
        assert!(said.ends_with(": Is a directory"), "{said}");

        // Those without rules, and those named twice, are said; rules that are commented out are some.
        let file = |name: &str, text: &[u8]| {
            std::fs::write(folder.join(name), text).expect("it is written");
            folder.join(name)
        };
        let (own, off) =
            (file("own", rule), file("off", b"#alert tcp any any -> any any (sid:2;)\n"));
        let again = folder.join(".").join("own");
        let own =
            loaded_of(vec![own, file("empty", b"# nothing\n"), off, again.clone()]).expect("rules");
        let expected = [
            format!("{}: the file is named twice; it is read once", again.display()),
            format!("{}: the file has no rules", folder.join("empty").display()),
        ];
        assert_eq!((own.of_files, own.total, own.problems), (expected.to_vec(), 1, Vec::new()));
        std::fs::remove_dir_all(&folder).expect("it was made");
    }

    /// Many rules are one warning.
    #[test]
    fn classes_without_their_file_are_said_once() {
        let rules = "alert tcp any any -> any any (classtype:misc-activity; sid:1;)\n\
                     alert tcp any any -> any any (classtype:bad-unknown; sid:2;)\n\
                     alert tcp any any -> any any (sid:3;)\n";
        let own = loaded("classes", rules);
        assert_eq!(own.warnings.len(), 1, "{:?}", own.warnings);
        assert!(own.warnings[0].starts_with("2 rules name a class"), "{:?}", own.warnings);
    }

    /// Rules come from others: what they save does not replace alerts.
    #[test]
    fn a_set_is_not_saved_over_events() {
        let output = std::env::temp_dir().join(format!("shadeline-sets-{}", std::process::id()));
        for (file, is_saved) in [("eve.json", false), ("fast.log", false), ("own.lst", true)] {
            let mut loader = Loader::new(Variables::with_defaults([], []).expect("defaults"));
            let text = format!(
                "alert http any any -> any any (http.host; dataset:set,a,type string,save {file}; sid:1;)"
            );
            loader.read("rules", text.as_bytes()).expect("memory");
            let none = |_: &str, _| Err(io::Error::from(io::ErrorKind::NotFound));
            let (sets, _) = Datasets::prepare(&loader.finish(), &Datasets::default(), none);
            assert_eq!(save_datasets(&sets, &output).is_ok(), is_saved, "{file}");
            assert_eq!(output.join(file).exists(), is_saved, "{file}");
        }
        std::fs::remove_dir_all(&output).expect("it was made");
    }
}
