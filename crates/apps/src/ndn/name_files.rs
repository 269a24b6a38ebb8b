//! The files of `[[names]]`: what they say, and what is wrong in them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use control::config::Config;
use packet::ndn::{Name, NameBuf};

use super::name_lines::{Problems, read_routes};

/// A file of `NAME FACE[,FACE]` lines, read.
pub struct FileRoutes {
    path: PathBuf,
    /// In the order of the file, each prefix once.
    pub routes: Vec<FileRoute>,
    /// Lines that were left out or that say something else than an earlier one.
    pub problems: Problems,
}

/// A line of it.
pub struct FileRoute {
    /// The prefix.
    pub prefix: NameBuf,
    /// Indices of the configuration's faces, best first.
    pub faces: Vec<usize>,
    line: u64,
}

impl FileRoutes {
    /// Reads a file; of two lines with one prefix the later applies.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(config: &Config, path: &Path) -> Result<Self, String> {
        let mut file = read_routes(path)?;
        let known: HashMap<&str, usize> =
            config.faces.iter().enumerate().map(|(at, face)| (face.name.as_str(), at)).collect();
        let ways: Vec<Result<Vec<usize>, String>> = file
            .tokens
            .texts
            .iter()
            .map(|token| {
                let index = |face| {
                    known.get(face).copied().ok_or_else(|| format!("there is no face `{face}`"))
                };
                token.split(',').map(index).collect()
            })
            .collect();
        let (mut routes, mut places) = (Vec::<FileRoute>::new(), HashMap::new());
        for (at, name) in file.names.iter().enumerate() {
            let line = file.lines[at];
            let faces = match &ways[file.next_hops[at] as usize - 1] {
                Ok(faces) => faces.clone(),
                Err(error) => {
                    file.problems.add(line, error);
                    continue;
                }
            };
            let Some(place) = places.get(name.bytes()) else {
                places.insert(name.bytes(), routes.len());
                routes.push(FileRoute { prefix: owned(name.bytes()), faces, line });
                continue;
            };
            let route: &mut FileRoute = &mut routes[*place];
            if route.faces == faces {
                file.problems.repeated += 1;
            } else {
                let what = format_args!(
                    "{} has other faces on line {}; this line is used",
                    route.prefix, route.line
                );
                file.problems.add(line, what);
                (route.faces, route.line) = (faces, line);
            }
        }
        file.problems.first.sort_by_key(|(line, _)| *line);
        Ok(Self { path: path.to_owned(), routes, problems: file.problems })
    }
}

fn owned(bytes: &[u8]) -> NameBuf {
    let mut prefix = NameBuf::new();
    for component in Name::new_checked(bytes).unwrap_or_default().components() {
        prefix.push(component.kind, component.value);
    }
    prefix
}

/// The first line that there is no room for.
#[derive(Debug)]
pub struct OverCapacity {
    /// The file,
    /// Its path.
    pub path: PathBuf,
    /// and the line in it.
    pub line: u64,
    /// Prefixes in all, and of those there is room for.
    count: usize,
    limit: usize,
}

impl fmt::Display for OverCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}: {}", self.path.display(), self.line, self.what())
    }
}

impl OverCapacity {
    /// The same without its place.
    pub fn what(&self) -> String {
        format!(
            "no room for this prefix: {} prefixes in all, `names` of [ndn] is {}",
            self.count, self.limit
        )
    }
}

/// Whether `[[name]]` and the files of `[[names]]` have more prefixes than `names` of `[ndn]` allows.
pub fn over_capacity(config: &Config, files: &[FileRoutes]) -> Option<OverCapacity> {
    let own = config.names.iter().map(|name| &name.prefix);
    let mut prefixes: HashSet<&NameBuf> = own.filter(|prefix| !prefix.name().is_empty()).collect();
    let (limit, mut first) = (config.ndn.names, None);
    for file in files {
        for route in &file.routes {
            // `/` is in the table's head and takes no room.
            let is_new = !route.prefix.name().is_empty() && prefixes.insert(&route.prefix);
            if is_new && prefixes.len() > limit {
                first.get_or_insert((file.path.clone(), route.line));
            }
        }
    }
    first.map(|(path, line)| OverCapacity { path, line, count: prefixes.len(), limit })
}
