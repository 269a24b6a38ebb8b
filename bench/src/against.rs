//! Two builds of the program, in turn.

use std::path::Path;
use std::process::Command;

use crate::{Args, Report, Row};

/// Runs the same benchmark of `old` and of this program, round by round, and reports both with the
/// ratio of each round.
pub(crate) fn run(old: &Path, args: &Args) -> Result<Report, String> {
    let new = std::env::current_exe().map_err(|e| e.to_string())?;
    // The arguments as they were given, less those that are decided here.
    let mut rest: Vec<String> = Vec::new();
    let mut skip = false;
    for arg in std::env::args().skip(1) {
        if std::mem::take(&mut skip) {
            continue;
        }
        match arg.as_str() {
            "--against" | "--rounds" | "--plot" => skip = true,
            "--json" => {}
            a if ["--against=", "--rounds=", "--plot="].iter().any(|o| a.starts_with(o)) => {}
            _ => rest.push(arg),
        }
    }
    let once = |binary: &Path| -> Result<Report, String> {
        let output = Command::new(binary)
            .args(&rest)
            .args(["--json", "--rounds", "1"])
            .output()
            .map_err(|e| format!("{}: {e}", binary.display()))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}", binary.display(), error.trim()));
        }
        report_of(binary, &output.stdout)
    };
    let mut pairs = Vec::new();
    for _ in 0..args.rounds.max(1) {
        pairs.push((once(old)?, once(&new)?));
    }
    let Some((first, _)) = pairs.first() else { return Err("no round".into()) };
    let mut report = Report::new(&first.bench, first.data.clone());
    for row in &first.rows {
        let of = |r: &Report| r.rows.iter().find(|x| x.name == row.name).map(|x| x.median);
        let figures: Vec<_> =
            pairs.iter().filter_map(|(old, new)| Some((of(old)?, of(new)?))).collect();
        let (olds, news): (Vec<_>, Vec<_>) = figures.iter().copied().unzip();
        let ratios = figures.iter().map(|(old, new)| new / old).collect();
        report.rows.push(Row::new(format!("{} (old)", row.name), &row.unit, olds));
        report.rows.push(Row::new(format!("{} (new)", row.name), &row.unit, news));
        report.rows.push(Row::new(format!("{} (new/old)", row.name), "ratio", ratios));
    }
    Ok(report)
}

/// What a build printed.
fn report_of(binary: &Path, printed: &[u8]) -> Result<Report, String> {
    serde_json::from_slice(printed).map_err(|error| {
        format!(
            "{}: expected the report of a build of this program, as JSON, and it printed {} bytes of something else \
             ({error})",
            binary.display(),
            printed.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_an_error_in_words() {
        let said = report_of(Path::new("/bin/true"), b"").unwrap_err();
        assert!(said.starts_with("/bin/true: expected the report of a build"), "{said}");
        let report = Report::new("toy", "data".to_owned());
        let printed = serde_json::to_vec(&report).unwrap();
        assert_eq!(report_of(Path::new("old"), &printed).unwrap().bench, "toy");
    }
}
