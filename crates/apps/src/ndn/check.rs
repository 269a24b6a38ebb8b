//! `check`: the files of `[[names]]`.

use control::config::Config;
use controlplane::{Findings, Interfaces};

use super::name_files::{FileRoutes, over_capacity};
use crate::router::routes::repeated;

/// Adds what is wrong in the files of names of a configuration.
pub(super) fn check(config: &Config, _interfaces: &Interfaces, findings: &mut Findings) {
    let mut files = Vec::new();
    for path in &config.name_files {
        let file = match FileRoutes::read(config, path) {
            Ok(file) => file,
            Err(message) => {
                findings.failed(path, &message);
                continue;
            }
        };
        for (line, problem) in &file.problems.first {
            findings.warn(path, Some(*line), problem);
        }
        findings.more(path, file.problems.count - file.problems.first.len() as u64);
        if let Some(text) = repeated(file.problems.repeated) {
            findings.warn(path, None, text);
        }
        files.push(file);
    }
    if let Some(place) = over_capacity(config, &files) {
        findings.error(&place.path, Some(place.line), place.what());
    }
}
