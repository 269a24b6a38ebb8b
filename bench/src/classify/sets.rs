//! Which sets and traces are measured.

use std::path::Path;

use ::classify::RuleSet;
use ::classify::classbench::{parse_rules, parse_trace};
use ::classify::generate::parameters::Parameters;
use ::classify::generate::structured;
use ::classify::generate::trace::{Copies, Options, Point, trace};

use super::Size;

/// Headers to classify.
#[derive(Debug)]
pub(crate) struct Load {
    pub(super) name: &'static str,
    /// As the set's schema packs them.
    pub(crate) headers: Vec<u32>,
}

/// A set.
#[derive(Debug, Clone, Copy)]
pub(super) enum Set {
    /// A file of the sets' folder.
    File(&'static str),
    /// The same, with a trace of its own.
    Traced(&'static str),
    /// 100,000 rules, made from a parameter file.
    Made(&'static str),
}

/// The sets of a size.
pub(super) fn names(size: Size) -> Vec<Set> {
    let files = ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"];
    let made: &[&str] = if size == Size::Full { &["acl1", "fw1", "ipc1"] } else { &[] };
    let files = files.into_iter().map(Set::File);
    let made = made.iter().copied().map(Set::Made);
    files.chain(made).chain(["acl_1k", "ipc_1k"].map(Set::Traced)).collect()
}

impl Set {
    pub(super) fn name(self) -> String {
        match self {
            Self::File(name) => name.to_owned(),
            Self::Traced(name) => format!("{name} (CutSplit)"),
            Self::Made(name) => format!("{name}_100k"),
        }
    }

    /// Whether the set is one of those that the aim speaks of.
    pub(super) fn is_aimed_at(self) -> bool {
        !matches!(self, Self::Traced(_))
    }

    /// The rules and the traces.
    pub(super) fn read(
        self,
        sets: &Path,
        seeds: &Path,
        count: usize,
    ) -> Result<(RuleSet, Vec<Load>), String> {
        let (set, shipped) = match self {
            Self::File(name) => (rules(&sets.join("neurocuts"), name)?, None),
            Self::Made(name) => (made(&seeds.join(format!("{name}_seed")))?, None),
            Self::Traced(name) => {
                let folder = sets.join("cutsplit");
                let bytes = unpacked(&folder, &format!("{name}_trace"))?;
                let trace = parse_trace(&bytes).map_err(|e| e.to_string())?;
                (rules(&folder, name)?, Some(Load { name: "its trace", headers: trace.headers }))
            }
        };
        let pareto = Load {
            name: "pareto",
            headers: trace(&set, &options(count, Copies::Pareto { scale: 1.0 })).headers,
        };
        let loads = [pareto, uniform(&set, count)].into_iter().chain(shipped).collect();
        Ok((set, loads))
    }
}

/// Headers of rules that are uniform.
pub(crate) fn uniform(set: &RuleSet, headers: usize) -> Load {
    Load { name: "uniform", headers: trace(set, &options(headers, Copies::Uniform)).headers }
}

fn options(headers: usize, copies: Copies) -> Options {
    Options { headers, copies, point: Point::Corner, first: None, seed: 1 }
}

fn made(path: &Path) -> Result<RuleSet, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let parameters = Parameters::parse(&bytes).map_err(|e| failed(e.to_string()))?;
    let options = structured::Options {
        rules: 100_000,
        smoothing: 2,
        address_scope: 0.0,
        port_scope: 0.0,
        seed: 1,
    };
    structured::rules(&parameters, &options).map(|made| made.set).map_err(|e| failed(e.to_string()))
}

/// The rules of a file.
pub(crate) fn rules(folder: &Path, name: &str) -> Result<RuleSet, String> {
    let failed = |why: String| format!("{}: {why}", folder.join(name).display());
    let bytes = unpacked(folder, name)?;
    parse_rules(&bytes).map(|file| file.set).map_err(|e| failed(e.to_string()))
}

/// A file, or `FILE.xz` unpacked.
fn unpacked(folder: &Path, name: &str) -> Result<Vec<u8>, String> {
    let (plain, packed) = (folder.join(name), folder.join(format!("{name}.xz")));
    let path = if plain.exists() { plain } else { packed };
    let bytes = files::input::read(&path);
    bytes.map_err(|e| format!("{}: {e}; sets of another folder: --sets FOLDER", path.display()))
}
