//! What is wrong in the files of routes that a configuration names: `[[routes]]` of a router, `[[names]]` of a
//! named-data forwarder. A run skips what is a warning here, and fails at what is an error.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use apps::ndn::name_files::{FileRoutes, without_room};
use apps::ndn::name_lines::each_line;
use apps::router::room::{Demand, without_room as without_room_for_routes};
use apps::router::routes::repeated;
use control::config::{Config, FileNextHops, NextHop, RouteFile, Severity};
use lookup::routes::{ProblemKind, RoutesFile, read_file};

/// Next hops of one file that are reported.
const SHOWN: usize = 100;

/// Something that is wrong in a file.
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) file: PathBuf,
    /// From 1; `None`: of the whole file.
    pub(super) line: Option<u64>,
    pub(super) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", super::word(self.severity), self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Whatever is wrong in the files that the configuration's application reads, in order.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    if config.uses("router") {
        let mut demand = Demand::default();
        for file in &config.route_files {
            findings.of_routes(config, file, &mut demand);
        }
        if let Some((path, what)) = without_room_for_routes(config, demand) {
            findings.error(&path, None, what);
        }
    }
    if config.uses("ndn") {
        findings.of_names(config);
    }
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn warn(&mut self, file: &Path, line: Option<u64>, message: impl fmt::Display) {
        self.push(Severity::Warning, file, line, &message);
    }

    fn error(&mut self, file: &Path, line: Option<u64>, message: impl fmt::Display) {
        self.push(Severity::Error, file, line, &message);
    }

    fn push(
        &mut self,
        severity: Severity,
        file: &Path,
        line: Option<u64>,
        message: &dyn fmt::Display,
    ) {
        let (file, message) = (file.to_owned(), message.to_string());
        self.0.push(Finding { severity, file, line, message });
    }

    /// Those that were counted and not kept.
    fn more(&mut self, file: &Path, count: u64) {
        if count > 0 {
            self.warn(file, None, format_args!("and {count} more"));
        }
    }

    fn of_names(&mut self, config: &Config) {
        let mut files = Vec::new();
        for path in &config.name_files {
            let file = match FileRoutes::read(config, path) {
                Ok(file) => file,
                Err(message) => {
                    self.failed(path, &message);
                    continue;
                }
            };
            for (line, problem) in &file.problems.first {
                self.warn(path, Some(*line), problem);
            }
            self.more(path, file.problems.count - file.problems.first.len() as u64);
            if let Some(text) = repeated(file.problems.repeated) {
                self.warn(path, None, text);
            }
            files.push(file);
        }
        if let Some(place) = without_room(config, &files) {
            self.error(&place.path, Some(place.line), place.what());
        }
    }

    /// A file that cannot be read; the message may begin with its path.
    fn failed(&mut self, path: &Path, message: &str) {
        let shown = path.display().to_string();
        let rest = message.strip_prefix(&shown).and_then(|rest| rest.strip_prefix(": "));
        self.error(path, None, rest.unwrap_or(message));
    }

    fn of_routes(&mut self, config: &Config, file: &RouteFile, demand: &mut Demand) {
        let path = &file.file;
        let routes = match read_file(path) {
            Ok(routes) => routes,
            Err(error) => {
                let line = (error.line > 0).then_some(error.line);
                return self.error(path, line, error.source);
            }
        };
        demand.add(&routes);
        for problem in &routes.problems.first {
            self.warn(path, Some(problem.line), &problem.kind);
        }
        self.more(path, routes.problems.count - routes.problems.first.len() as u64);
        if let Some(text) = repeated(routes.problems.repeated) {
            self.warn(path, None, text);
        }
        match &file.next_hops {
            FileNextHops::Spread { v4, v6 } => {
                for (family, count, hops) in
                    [("IPv4", routes.v4.len(), v4), ("IPv6", routes.v6.len(), v6)]
                {
                    if count > 0 && hops.is_empty() {
                        let what = format_args!(
                            "{count} prefixes left out: no {family} next hop in `next_hops`"
                        );
                        self.warn(path, None, what);
                    }
                }
            }
            FileNextHops::Tokens => self.of_tokens(config, path, &routes),
        }
    }

    /// The next hops in the file itself, line by line.
    fn of_tokens(&mut self, config: &Config, path: &Path, routes: &RoutesFile) {
        let hops: HashMap<&str, Result<NextHop, String>> =
            routes.tokens().map(|(_, token)| (token, next_hop(config, token))).collect();
        let is_left_out = |kind: &ProblemKind| !matches!(kind, ProblemKind::HostBits { .. });
        let reported: Vec<u64> =
            routes.problems.first.iter().filter(|p| is_left_out(&p.kind)).map(|p| p.line).collect();
        let mut count = 0;
        let read = each_line(path, |line, words| {
            let Some(words) = words.filter(|_| reported.binary_search(&line).is_err()) else {
                return;
            };
            let prefix = words.next().unwrap_or_default();
            let prefix = String::from_utf8_lossy(prefix);
            let is_v4 = !prefix.contains(':');
            let token = words.next().and_then(|word| std::str::from_utf8(word).ok());
            let what = match token.and_then(|token| hops.get(token)) {
                None => format!("expected PREFIX NEXTHOP, found no next hop after `{prefix}`"),
                Some(Err(what)) => what.clone(),
                Some(Ok(hop)) if !hop.carries(is_v4) => format!("`{hop}` for the prefix {prefix}"),
                Some(Ok(_)) => return,
            };
            count += 1;
            if count <= SHOWN {
                self.warn(path, Some(line), what);
            }
        });
        self.more(path, count.saturating_sub(SHOWN) as u64);
        if let Err(message) = read {
            self.failed(path, &message);
        }
    }
}

/// A next hop as a routes file has it.
///
/// # Errors
/// It is none, or by a port that there is not.
fn next_hop(config: &Config, token: &str) -> Result<NextHop, String> {
    let hop: NextHop = token.parse().map_err(|error| format!("{error}"))?;
    for (member, _) in hop.members() {
        if let NextHop::Address { port: Some(port), .. } | NextHop::Port(port) = member
            && config.port(port).is_none()
        {
            return Err(format!("there is no port `{port}`"));
        }
    }
    Ok(hop)
}
