//! Many files into one set of rules.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::parse::too_long;
use crate::text::{Entry, Lines};
use crate::{Problem, ResolveError, Rule, Variables};

/// So many problems are kept; more are counted.
pub const PROBLEMS_MAX: usize = 10_000;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {error}")]
pub struct LoadError {
    /// Its name.
    pub file: String,
    /// Why.
    #[source]
    pub error: io::Error,
}

/// A rule and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Index into [`RuleSet::files`].
    pub file: usize,
    /// The line where it begins.
    pub line: u64,
    /// The rule.
    pub rule: Rule,
}

/// A problem and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// Name of the file.
    pub file: String,
    /// What is wrong.
    pub problem: Problem,
    /// Nothing is but that another rule with its `gid` and `sid` has a higher revision.
    pub is_replaced: bool,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.problem)
    }
}

impl std::error::Error for FileProblem {}

/// How many rules there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rules that are not disabled.
    pub total: u64,
    /// Those that can be evaluated, as many as [`RuleSet::rules`].
    pub loaded: u64,
    /// Those that are right and ask for what nothing here evaluates.
    pub unsupported: u64,
    /// Those with an error.
    pub failed: u64,
    /// Those that could be evaluated, but another rule with their `gid` and `sid` has a higher revision.
    pub replaced: u64,
    /// Rules behind `#`; in none of the other counts.
    pub disabled: u64,
}

impl Summary {
    /// Loaded rules among all, 0 to 1; 1 where there are none.
    pub fn share(&self) -> f64 {
        match self.total {
            0 => 1.0,
            total => self.loaded as f64 / total as f64,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, loaded, unsupported, failed, replaced, disabled } = self;
        // Never rounded up to all of them.
        let percent = (self.share() * 1e4).floor() / 100.0;
        write!(
            f,
            "{total} rules: {loaded} loaded ({percent:.2} %), {unsupported} with unsupported "
        )?;
        write!(f, "options, {failed} with errors")?;
        if *replaced > 0 {
            write!(f, ", {replaced} replaced")?;
        }
        write!(f, "; {disabled} disabled")
    }
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// Names of the files, in order.
    pub files: Vec<String>,
    /// The rules that can be evaluated, in order.
    pub rules: Vec<Loaded>,
    /// The first [`PROBLEMS_MAX`] problems: of rules with errors, of those with unsupported options, and of those that are replaced.
    pub problems: Vec<FileProblem>,
    /// Problems that were not kept.
    pub problems_dropped: u64,
    /// Counts.
    pub summary: Summary,
}

/// Reads files of rules one after the other, line by line: time and memory grow with their size and no faster.
#[derive(Debug)]
pub struct Loader {
    variables: Variables,
    set: RuleSet,
    /// Index into `slots` by gid and sid.
    by_id: HashMap<(u32, u32), Known>,
    /// Rules in order; none where one is replaced.
    slots: Vec<Option<Loaded>>,
}

/// The newest of an identifier so far.
#[derive(Clone, Copy, Debug)]
struct Known {
    rev: u32,
    file: usize,
    line: u64,
    /// None where the rule asks for something unsupported.
    slot: Option<usize>,
}

impl Loader {
    /// A loader of rules whose headers name these variables.
    pub fn new(variables: Variables) -> Self {
        let (set, by_id, slots) = (RuleSet::default(), HashMap::new(), Vec::new());
        Self { variables, set, by_id, slots }
    }

    /// How many rules it has read, those behind `#` included.
    pub fn entries(&self) -> u64 {
        self.set.summary.total + self.set.summary.disabled
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read. What was read before stays. Wrong rules are no error, but in [`RuleSet::problems`].
    pub fn read_file(&mut self, path: &Path) -> Result<(), LoadError> {
        let file = path.display().to_string();
        match std::fs::File::open(path) {
            Ok(open) => self.read(&file, BufReader::new(open)),
            Err(error) => Err(LoadError { file, error }),
        }
    }

    /// Reads rules from anywhere; the name is for messages.
    ///
    /// # Errors
    /// As [`Loader::read_file`].
    pub fn read(&mut self, name: &str, reader: impl BufRead) -> Result<(), LoadError> {
        let file = self.set.files.len();
        self.set.files.push(name.to_owned());
        let mut lines = Lines::new(reader);
        loop {
            let entry = lines.next_entry();
            let entry = entry.map_err(|error| LoadError { file: name.to_owned(), error })?;
            let whole = |line, reason: String| Problem {
                line,
                column: 1,
                keyword: None,
                reason,
                unknown: None,
            };
            let result = match entry {
                None => return Ok(()),
                Some(Entry::Disabled) => {
                    self.set.summary.disabled += 1;
                    continue;
                }
                Some(Entry::TooLong(line)) => Err(whole(line, too_long())),
                Some(Entry::Rule(joined)) => {
                    let (line, _) = joined.place(0);
                    let rule = Rule::parse_joined(&joined);
                    rule.and_then(|rule| self.add(file, line, rule).map_err(|r| whole(line, r)))
                }
            };
            self.set.summary.total += 1;
            if let Err(problem) = result {
                self.set.summary.failed += 1;
                self.problem(file, problem, false);
            }
        }
    }

    fn problem(&mut self, file: usize, problem: Problem, is_replaced: bool) {
        if self.set.problems.len() == PROBLEMS_MAX {
            self.set.problems_dropped += 1;
            return;
        }
        let file = self.set.files[file].clone();
        self.set.problems.push(FileProblem { file, problem, is_replaced });
    }

    /// A rule that is not evaluated, as another one has its identifier and a higher revision.
    fn replaced(&mut self, (file, line): (usize, u64), sid: u32, by: &Known) {
        self.set.summary.replaced += 1;
        let newer = &self.set.files[by.file];
        let reason = format!("replaced: sid {sid} has revision {} at {newer}:{}", by.rev, by.line);
        let problem = Problem { line, column: 1, keyword: None, reason, unknown: None };
        self.problem(file, problem, true);
    }

    fn add(&mut self, file: usize, line: u64, rule: Rule) -> Result<(), String> {
        check_header(&rule, &self.variables)?;
        let names: Vec<&str> = rule.unsupported_names().collect();
        let unsupported = (!names.is_empty()).then(|| names.join(", "));
        let slot = unsupported.is_none().then_some(self.slots.len());
        let known = Known { rev: rule.rev, file, line, slot };
        match self.by_id.entry((rule.gid, rule.sid)) {
            MapEntry::Vacant(entry) => {
                entry.insert(known);
            }
            MapEntry::Occupied(mut entry) => {
                let other = *entry.get();
                if rule.rev == other.rev {
                    let Known { rev, file, line, .. } = other;
                    let (sid, other) = (rule.sid, &self.set.files[file]);
                    return Err(format!("sid {sid} has revision {rev} already ({other}:{line})"));
                }
                // One that is not supported has its reason, and keeps it.
                if rule.rev > other.rev {
                    entry.insert(known);
                    if let Some(slot) = other.slot {
                        self.slots[slot] = None;
                        self.set.summary.loaded -= 1;
                        self.replaced((other.file, other.line), rule.sid, &known);
                    }
                } else if unsupported.is_none() {
                    self.replaced((file, line), rule.sid, &other);
                    return Ok(());
                }
            }
        }
        match unsupported {
            None => {
                self.slots.push(Some(Loaded { file, line, rule }));
                self.set.summary.loaded += 1;
            }
            Some(names) => {
                self.set.summary.unsupported += 1;
                let requires = rule.unsupported.iter().find(|own| own.keyword == "requires");
                let reason = match requires.and_then(|own| own.value.as_deref()) {
                    Some(value) => format!("what it requires is not there: {value}"),
                    None => format!("not supported: {names}"),
                };
                let problem = Problem { line, column: 1, keyword: None, reason, unknown: None };
                self.problem(file, problem, false);
            }
        }
        Ok(())
    }

    /// What was read so far.
    pub fn finish(mut self) -> RuleSet {
        self.set.rules = self.slots.into_iter().flatten().collect();
        self.set
    }
}

/// Do the lists of a header come to something?
fn check_header(rule: &Rule, variables: &Variables) -> Result<(), String> {
    let say = |what: &str, error: ResolveError| format!("{what}: {error}");
    let addresses = [("source address", &rule.source), ("destination address", &rule.destination)];
    for (what, list) in addresses {
        list.resolve(variables).map_err(|error| say(what, error))?;
    }
    let ports =
        [("source port", &rule.source_ports), ("destination port", &rule.destination_ports)];
    for (what, list) in ports {
        list.resolve(variables).map_err(|error| say(what, error))?;
    }
    Ok(())
}
