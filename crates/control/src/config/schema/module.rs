//! `[[module]]`.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Origin;
use crate::config::kinds::{
    Custom, Kind, context, custom, duration, integer, list, name_of, words,
};
use crate::config::stages::KnownStages;
use crate::config::values::{Value, Walk, string, wrong_kind};
use crate::module_patterns::ModulePattern;

/// The longest source of a module, in bytes.
const SOURCE_MAX: u64 = 1 << 20;

/// The longest file of patterns, in bytes.
const PATTERNS_MAX: u64 = 16 << 20;

/// A parameter is called so in a source: letters, digits and `_`.
fn is_identifier(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|byte| !byte.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

crate::section! {
    /// A module of one's own, which sees the packets of each layer ([modules.md](modules.md)). Modules run in the order of
    /// the file.
    #[derive(Eq)]
    pub struct ModuleEntry("[[module]]") {
        /// Name of the module; it must be unique.
        rebuild name: String = String::new(), module_name().needed("\"ttl_floor\"");
        /// Source in the kernel dialect, for a device. A relative path starts at the folder of the configuration. A reload
        /// reads the file again.
        rebuild source: Option<ModuleSource> = None, source().optional();
        /// Instead of `source`: a Rust module that the program has (`shadeline stages` lists them).
        rebuild kind: Option<String> = None, name_of("a Rust module").optional();
        /// Numbers of 32 bits that the module uses by their names: `{ FLOOR = 5 }`.
        rebuild parameters: Vec<(String, u32)> = Vec::new(), parameters().shown("none");
        /// A file with the literal patterns that the source looks for, one on each line ([modules.md](modules.md#patterns)). A
        /// reload reads the file again.
        rebuild patterns: Option<ModulePatterns> = None, patterns().optional();
        /// The module sees only packets of these ports.
        rebuild ports: Vec<String> = Vec::new(),
            list(name_of("a port"), "an array such as [\"lan\"]").shown("all ports");
        /// The module sees only packets in at least one of these contexts. Rules of a firewall or an earlier module set
        /// them.
        rebuild context: Vec<String> = Vec::new(),
            list(context(), "an array such as [\"web\"]").shown("all packets");
        /// Entries of the module's hash table, if its source uses one; rounded up to a power of two.
        rebuild table: u32 = 4096, integer(64..=1_048_576);
        /// Packets that the module cannot process, because its source does not compile, it was too slow, or the device
        /// failed: they pass, or are dropped under `module_failed`.
        rebuild on_failure: OnFailure = OnFailure::Pass, words();
        /// Longest time of a launch of a module with a `source`. If it is exceeded, this module is disabled, and the others
        /// continue.
        rebuild time_limit: Duration = Duration::from_millis(250),
            duration(Duration::from_millis(1)..=Duration::from_mins(1));
    }
}

crate::words! {
    /// `module.on_failure`.
    pub enum OnFailure {
        /// They go on.
        Pass = "pass",
        /// They are dropped.
        Drop = "drop",
    }
}

/// The source of a module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleSource {
    /// Its file, as the configuration names it.
    pub file: String,
    /// The path by which it was read.
    pub path: PathBuf,
    /// Its text; empty if the file was not read.
    pub text: Arc<str>,
}

/// The patterns of a module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModulePatterns {
    /// Their file, as the configuration names it.
    pub file: String,
    /// The path by which it was read.
    pub path: PathBuf,
    /// The patterns; none if the file was not read.
    pub all: Arc<[ModulePattern]>,
}

/// Groups of modules by their places in the file, each of which is a stage of its own: in a group, Rust modules come before
/// those with a `source`, for what the device processes comes behind what a worker does. Without modules there is one, which
/// is empty.
pub fn module_groups(modules: &[ModuleEntry]) -> Vec<Range<usize>> {
    let waits = |at: &usize| modules[*at].kind.is_some() && modules[*at - 1].kind.is_none();
    let begins: Vec<usize> = (1..modules.len()).filter(waits).collect();
    let ends = begins.iter().copied().chain([modules.len()]);
    [0].into_iter().chain(begins.iter().copied()).zip(ends).map(|(begin, end)| begin..end).collect()
}

/// Whether one of the modules uses flows; those of which that is not known do.
pub fn modules_use_flows(modules: &[ModuleEntry], known: &KnownStages) -> bool {
    modules.iter().any(|module| match (&module.source, module.kind.as_deref()) {
        (Some(source), None) => {
            crate::module_source::read(&source.text).map_or(true, |source| source.uses_flows)
        }
        (None, Some(kind)) => {
            known.modules.iter().find(|own| own.name == kind).is_none_or(|own| own.uses_flows)
        }
        _ => true,
    })
}

fn module_name() -> Custom<String> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let name = string(walk, value)?;
        if !is_identifier(name) || name.len() > 32 {
            walk.error(value.span(), format!("`{name}` cannot name a module"))
                .expected("1 to 32 letters, digits or `_`, the first of them no digit");
            return None;
        }
        Some(name.to_owned())
    };
    custom("name", "letters, digits and `_`", read, String::clone)
}

fn source() -> Custom<ModuleSource> {
    custom("path", "a path", read_source, |source| {
        // Two texts of one file must not look alike in the difference of a reload.
        let hash = fnv(source.text.bytes());
        format!("{} ({} bytes, {:08x})", source.file, source.text.len(), hash as u32)
    })
}

fn patterns() -> Custom<ModulePatterns> {
    custom("path", "a path", read_patterns, |patterns| {
        // As of sources.
        let bytes = patterns
            .all
            .iter()
            .flat_map(|own| own.bytes.iter().copied().chain([u8::from(own.is_nocase)]));
        let hash = fnv(bytes);
        format!("{} ({} patterns, {:08x})", patterns.file, patterns.all.len(), hash as u32)
    })
}

/// FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The file, read where there is a folder to look in.
fn read_patterns(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<ModulePatterns> {
    let file = string(walk, value)?;
    let Some(folder) = walk.folder() else {
        return Some(ModulePatterns { file: file.to_owned(), path: file.into(), ..<_>::default() });
    };
    let path = folder.join(file);
    let text = files::read_regular(&path, PATTERNS_MAX);
    let all = match text.map(|text| crate::module_patterns::read(&text)) {
        Ok(Ok(all)) => all,
        Ok(Err(problem)) => {
            walk.error(value.span(), format!("{}:{problem}", path.display()));
            return None;
        }
        Err(error) => {
            walk.error(value.span(), format!("cannot read {}: {error}", path.display()));
            return None;
        }
    };
    Some(ModulePatterns { file: file.to_owned(), path, all: all.into() })
}

/// The file, read where there is a folder to look in.
fn read_source(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<ModuleSource> {
    let file = string(walk, value)?;
    let Some(folder) = walk.folder() else {
        return Some(ModuleSource { file: file.to_owned(), path: file.into(), ..<_>::default() });
    };
    let path = folder.join(file);
    let text = files::read_regular(&path, SOURCE_MAX)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| std::io::Error::other("not UTF-8")));
    match text {
        Ok(text) => {
            // Editors put a mark of the byte order there, which no compiler wants.
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            match crate::module_source::read(text) {
                Ok(_) => Some(ModuleSource { file: file.to_owned(), path, text: text.into() }),
                Err(problem) => {
                    let file = path.display().to_string();
                    let diagnostic = walk.error(value.span(), format!("{file}:{problem}"));
                    let (line, column) = (problem.line, problem.column);
                    diagnostic.origin = Some(Origin { file, line, column });
                    None
                }
            }
        }
        Err(error) => {
            walk.error(value.span(), format!("cannot read {}: {error}", path.display()));
            None
        }
    }
}

fn parameters() -> Custom<Vec<(String, u32)>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let Some(table) = value.get_ref().as_table() else {
            return wrong_kind(walk, value, "a table such as { FLOOR = 5 }");
        };
        let mut all: Vec<(String, u32)> = Vec::new();
        for (name, value) in table {
            let text = name.get_ref();
            if !is_identifier(text) || !text.bytes().all(|byte| !byte.is_ascii_lowercase()) {
                walk.error(name.span(), format!("`{text}` cannot name a parameter"))
                    .expected("capital letters, digits and `_`, the first of them no digit");
                return None;
            }
            let number = integer::<u32>(0..=i128::from(u32::MAX)).read(walk, value)?;
            all.push((text.to_string(), number));
        }
        all.sort();
        Some(all)
    };
    let text = |all: &Vec<(String, u32)>| {
        let all: Vec<String> =
            all.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        format!("{{ {} }}", all.join(", "))
    };
    custom("table", "`{ NAME = NUMBER }`", read, text).bare()
}
