//! The patterns of modules with a source: an automaton for each, and their tables as a part of the version.
//!
//! ```text
//!  region of a device's image:   automaton of module 0 │ automaton of module 3 │ …      each from a multiple of 16 bytes on
//! ```
//!
//! Kernels know where in the region the automaton of their module is: tables and kernels are made of one configuration, and
//! a change of either makes the engine anew. All workers read one copy.

use std::borrow::Cow;
use std::sync::Arc;

use automata::{Automaton, Pattern, Patterns};
use control::config::{Config, ModuleEntry};
use controlplane::TablePart;
use device::tables::Change;
use lookup::versions::Patchable;

/// Where the automaton of a module is in the region: words from its start, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// A multiple of four.
    pub at: u32,
    /// 0: the module has no patterns.
    pub len: u32,
}

/// The automata of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Automata {
    /// The region's words.
    pub words: Vec<u32>,
    /// By module.
    pub places: Vec<Place>,
}

impl Automata {
    /// Builds those of all modules.
    ///
    /// # Errors
    /// A pattern that is refused, with its file and line; tables that are too large.
    pub fn of(config: &Config) -> Result<Self, String> {
        let mut made = Self::default();
        for module in &config.modules {
            made.add(module)?;
        }
        Ok(made)
    }

    fn add(&mut self, module: &ModuleEntry) -> Result<(), String> {
        let Some(own) = module.patterns.as_ref().filter(|own| !own.all.is_empty()) else {
            self.places.push(Place::default());
            return Ok(());
        };
        let at_file = |error: &dyn std::fmt::Display| {
            format!("module {}: {}: {error}", module.name, own.path.display())
        };
        let mut patterns = Patterns::default();
        for (number, pattern) in own.all.iter().enumerate() {
            let line = |error: &dyn std::fmt::Display| {
                let path = own.path.display();
                format!("module {}: {path}:{}: {error}", module.name, pattern.line)
            };
            let mut made = Pattern::new(&pattern.bytes);
            if pattern.is_nocase {
                made = made.nocase();
            }
            let known = patterns.insert(made).map_err(|error| line(&error))?;
            // A pattern has the number of its place in the file.
            if known as usize != number {
                let first = own.all[known as usize].line;
                return Err(line(&format!("the pattern of line {first} again")));
            }
        }
        let automaton = Automaton::new(&patterns).map_err(|error| at_file(&error))?;
        let at = self.words.len().next_multiple_of(4);
        self.words.resize(at, 0);
        self.words.extend_from_slice(automaton.words());
        let [at, len] = [at, automaton.words().len()].map(u32::try_from);
        let (Ok(at), Ok(len)) = (at, len) else {
            return Err(at_file(&"the patterns of all modules need more than 16 GiB"));
        };
        self.places.push(Place { at, len });
        Ok(())
    }
}

/// The tables of modules.
#[derive(Clone, Debug, Default)]
pub struct PatternTables(pub Arc<[u32]>);

impl Patchable for PatternTables {
    type Patch = Arc<[u32]>;

    fn apply(&mut self, words: &Arc<[u32]>) {
        self.0 = words.clone();
    }
}

/// The part of modules, with one region.
#[derive(Debug)]
pub struct PatternPart;

impl TablePart for PatternPart {
    type Tables = PatternTables;

    const REGIONS: usize = 1;

    fn len_bytes(tables: &PatternTables) -> usize {
        size_of_val(&*tables.0)
    }

    fn regions(tables: &PatternTables) -> Vec<Cow<'_, [u32]>> {
        vec![Cow::Borrowed(&*tables.0)]
    }

    fn changes(words: &Arc<[u32]>, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        change(0, Change::Replace(words));
        true
    }
}
