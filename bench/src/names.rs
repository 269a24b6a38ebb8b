//! Names of the benchmarks: real URLs and domains as hierarchical names, extended to as many prefixes as are wanted.
//!
//! A host's labels go from the last to the first, then come the segments of the path:
//! `https://www.example.org/a/b` is `/org/example/www/a/b`. What is missing up to a number of prefixes is made of
//! the real names: one cut at random, and one or two real segments behind it.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use lookup::NextHopId;
use lookup::names::NameList;
use packet::ndn::NameBuf;

use crate::tables::Random;

/// The folder of names that the project measures with.
pub(crate) const DEFAULT_NAMES: &str = "../shared/data/ndn";

const FILES: [&str; 2] = ["urls-kasztp.txt.xz", "opendns-top-domains.txt.xz"];

/// Next hops of the benchmark's routes.
pub(crate) const NEXT_HOPS: u32 = 64;

/// Prefixes, each once, and their next hops.
pub(crate) struct Prefixes {
    pub(crate) names: NameList,
    pub(crate) next_hops: Vec<NextHopId>,
    /// Prefixes that stood in the files as they are.
    pub(crate) real: usize,
    segments: Vec<Vec<u8>>, // encoded
}

/// The lines of the files, uncompressed; a file without its suffix is read as it is.
fn lines(folder: &Path) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for file in FILES {
        let path = folder.join(file);
        if let Ok(text) = std::fs::read(path.with_extension("")) {
            all.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
            continue;
        }
        let failed = |why: String| {
            format!("{}: {why}; names of another folder: --names FOLDER", path.display())
        };
        let text = files::input::read(&path).map_err(|e| failed(e.to_string()))?;
        all.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    }
    Ok(all)
}

/// A URL's or a domain's components, and how many of them are the host's.
fn components(line: &str) -> (Vec<Vec<u8>>, usize) {
    let line = line.trim().trim_start_matches('\u{feff}');
    let line = line.split_once("://").map_or(line, |(_, rest)| rest);
    let (host, path) = line.split_once('/').unwrap_or((line, ""));
    let host = host.split('.').rev().filter(|label| !label.is_empty());
    let path = path.split('/').filter(|segment| !segment.is_empty());
    let encode = |text: &str| {
        let mut name = NameBuf::new();
        name.push_generic(text.as_bytes());
        name.name().value().to_vec()
    };
    let mut all: Vec<Vec<u8>> = host.map(encode).collect();
    let labels = all.len();
    all.extend(path.map(encode));
    (all, labels)
}

/// `count` prefixes, the same for a seed.
pub(crate) fn prefixes(folder: &Path, count: usize, seed: u64) -> Result<Prefixes, String> {
    let all: Vec<_> = lines(folder)?.iter().map(|line| components(line)).collect();
    let mut segments: Vec<Vec<u8>> =
        all.iter().flat_map(|(name, labels)| name[*labels..].iter().cloned()).collect();
    segments.sort_unstable();
    segments.dedup();
    if segments.is_empty() {
        return Err(format!("{}: no paths in the URLs", folder.display()));
    }
    let mut random = Random(seed);
    let (mut names, mut next_hops) = (NameList::new(), Vec::with_capacity(count));
    let (mut seen, hasher) = (HashSet::with_capacity(count), std::hash::RandomState::new());
    let mut add = |parts: &[&[u8]], random: &mut Random| {
        let mut hash = hasher.build_hasher();
        parts.iter().for_each(|part| hash.write(part));
        if seen.insert(hash.finish()) {
            names.push(parts.iter().copied());
            next_hops.push(1 + random.below(NEXT_HOPS as usize) as NextHopId);
        }
        seen.len()
    };
    let (mut real, mut parts) = (0, Vec::new());
    for (name, _) in all.iter().take(count) {
        parts.clear();
        parts.extend(name.iter().map(Vec::as_slice));
        real = add(&parts, &mut random);
    }
    let mut there = real;
    while there < count {
        let (name, _) = &all[random.below(all.len())];
        parts.clear();
        parts.extend(
            name[..(2 + random.below(name.len())).min(name.len())].iter().map(Vec::as_slice),
        );
        for _ in 0..1 + random.below(2) {
            parts.push(&segments[random.below(segments.len())]);
        }
        there = add(&parts, &mut random);
    }
    Ok(Prefixes { names, next_hops, real, segments })
}

impl Prefixes {
    /// Names to look up: a random prefix and up to three segments behind it; `misses` of a hundred have a first
    /// component that no prefix has.
    pub(crate) fn keys(&self, count: usize, misses: usize, seed: u64) -> NameList {
        let (mut random, mut keys) = (Random(seed), NameList::new());
        let mut parts: Vec<&[u8]> = Vec::new();
        for _ in 0..count {
            parts.clear();
            parts.extend(self.names.get(random.below(self.names.len())).components());
            for _ in 0..random.below(4) {
                parts.push(&self.segments[random.below(self.segments.len())]);
            }
            if random.below(100) < misses && !parts.is_empty() {
                parts[0] = &[8, 7, b'n', b'o', b'w', b'h', b'e', b'r', b'e'];
            }
            keys.push(parts.iter().copied());
        }
        keys
    }
}
