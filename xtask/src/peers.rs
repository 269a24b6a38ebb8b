//! Builds the rivals of `shadeline bench`: each `bench/peers/NAME.c` becomes `target/peers/NAME`.
//!
//! A peer names its libraries itself, in its first line: `// pkg-config: libdpdk`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::suites::Report;
use crate::tree;

const LIMIT: Duration = Duration::from_secs(300);

/// Builds all of them; a peer whose library is missing is skipped.
pub(crate) fn run(root: &Path) -> Report {
    let mut report = Report::begin(root, "peers");
    let sources = tree::walk(&root.join("bench/peers"));
    let out = tree::target_dir(root).join("peers");
    if let Err(error) = std::fs::create_dir_all(&out) {
        report.counts.fail(format!("{}: {error}", out.display()));
        return report.end();
    }
    for source in sources.iter().filter(|p| p.extension().is_some_and(|e| e == "c")) {
        build(&mut report, source, &out);
    }
    report.end()
}

fn build(report: &mut Report, source: &Path, out: &Path) {
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = match std::fs::read_to_string(source) {
        Ok(text) => text,
        Err(error) => return report.counts.fail(format!("{name}: {error}")),
    };
    let libraries = libraries(&text);
    let mut flags = Vec::new();
    if !libraries.is_empty() {
        match pkg_config(&libraries) {
            Some(found) => flags = found,
            None => {
                let reason = format!("pkg-config does not find {}", libraries.join(" "));
                return report.counts.skip(&name, &reason, report.in_ci);
            }
        }
    }
    let target = out.join(&name);
    let up_to_date = |built: &Path| {
        let built = built.metadata().and_then(|m| m.modified()).ok()?;
        Some(source.metadata().and_then(|m| m.modified()).ok()? < built)
    };
    if up_to_date(&target) == Some(true) {
        return report.counts.pass();
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O3", "-march=native", "-Wall", "-o"]).arg(&target).arg(source);
    gcc.args(flags).args(["-lm", "-lpthread"]);
    report.run_one(&name, &mut gcc, LIMIT);
}

/// The packages in the first line's `pkg-config:`.
fn libraries(text: &str) -> Vec<String> {
    let first = text.lines().next().unwrap_or_default();
    let Some((_, list)) = first.split_once("pkg-config:") else { return Vec::new() };
    list.trim_end_matches("*/").split_whitespace().map(str::to_string).collect()
}

fn pkg_config(libraries: &[String]) -> Option<Vec<String>> {
    let output =
        Command::new("pkg-config").args(["--cflags", "--libs"]).args(libraries).output().ok()?;
    let flags = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| flags.split_whitespace().map(str::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_stand_in_the_first_line() {
        assert_eq!(libraries("// pkg-config: libdpdk zlib\nint main;"), ["libdpdk", "zlib"]);
        assert_eq!(libraries("/* pkg-config: libdpdk */\n"), ["libdpdk"]);
        assert!(libraries("int main;\n// pkg-config: libdpdk").is_empty());
    }
}
