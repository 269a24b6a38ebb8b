//! `check`: the files of `[[routes]]`.

use std::collections::HashMap;
use std::path::Path;

use control::config::{Config, FileNextHops, NextHop, RouteFile};
use controlplane::{Findings, Interfaces};
use lookup::routes::{ProblemKind, RoutesFile, read_file};

use super::capacity::{Demand, over_capacity};
use super::routes::repeated;
use crate::ndn::name_lines::each_line;

/// Next hops of one file that are reported.
const SHOWN: usize = 100;

/// Adds what is wrong in the files of routes of a configuration.
pub(super) fn check(config: &Config, _interfaces: &Interfaces, findings: &mut Findings) {
    let mut demand = Demand::default();
    for file in &config.route_files {
        of_file(findings, config, file, &mut demand);
    }
    if let Some((path, what)) = over_capacity(config, demand) {
        findings.error(&path, None, what);
    }
}

fn of_file(findings: &mut Findings, config: &Config, file: &RouteFile, demand: &mut Demand) {
    let path = &file.file;
    let routes = match read_file(path) {
        Ok(routes) => routes,
        Err(error) => {
            let line = (error.line > 0).then_some(error.line);
            return findings.error(path, line, error.source);
        }
    };
    demand.add(&routes);
    for problem in &routes.problems.first {
        findings.warn(path, Some(problem.line), &problem.kind);
    }
    findings.more(path, routes.problems.count - routes.problems.first.len() as u64);
    if let Some(text) = repeated(routes.problems.repeated) {
        findings.warn(path, None, text);
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
                    findings.warn(path, None, what);
                }
            }
        }
        FileNextHops::Tokens => of_tokens(findings, config, path, &routes),
    }
}

/// The next hops in the file itself, line by line.
fn of_tokens(findings: &mut Findings, config: &Config, path: &Path, routes: &RoutesFile) {
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
            findings.warn(path, Some(line), what);
        }
    });
    findings.more(path, count.saturating_sub(SHOWN) as u64);
    if let Err(message) = read {
        findings.failed(path, &message);
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
