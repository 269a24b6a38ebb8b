//! Builds the rivals of `shadeline bench`: each `bench/peers/NAME.c` becomes `target/peers/NAME`.
//!
//! A peer names its libraries itself, in its opening comment: `pkg-config: libdpdk`, or `link: -lnids` for those without
//! a file of pkg-config; where it does not, its includes tell.

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
    let linked = linked(&text);
    if let Some(missing) = linked.iter().find(|flag| !links(flag, out)) {
        let reason = format!("gcc does not find {missing}");
        return report.counts.skip(&name, &reason, report.in_ci);
    }
    flags.extend(linked);
    let target = out.join(&name);
    let up_to_date = |built: &Path| {
        let built = built.metadata().and_then(|m| m.modified()).ok()?;
        Some(source.metadata().and_then(|m| m.modified()).ok()? < built)
    };
    if up_to_date(&target) == Some(true) {
        return report.counts.pass();
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O3", "-Wall", "-o"]).arg(&target).arg(source);
    // Last, since a library may ask for a lesser machine.
    gcc.args(flags).args(["-lm", "-lpthread", "-march=native"]);
    report.run_one(&name, &mut gcc, LIMIT);
}

/// All libraries of a peer, as packages of `pkg-config` or flags of the linker.
#[cfg(test)]
pub(crate) fn needs(text: &str) -> Vec<String> {
    [libraries(text), linked(text)].concat()
}

/// The packages after `pkg-config:` in the opening lines, or those whose headers are included.
fn libraries(text: &str) -> Vec<String> {
    let opening = text.lines().take(40);
    if let Some((_, list)) = opening.filter_map(|line| line.split_once("pkg-config:")).next() {
        return list.trim_end_matches("*/").split_whitespace().map(str::to_string).collect();
    }
    let known = [("#include <rte_", "libdpdk")];
    let used = known.iter().filter(|(include, _)| text.contains(include));
    used.map(|(_, library)| library.to_string()).collect()
}

/// The flags after `link:` in the opening lines.
fn linked(text: &str) -> Vec<String> {
    let opening = text.lines().take(40);
    let list = opening.filter_map(|line| line.split_once("link:")).next();
    let words = list.map_or("", |(_, list)| list).trim_end_matches("*/").split_whitespace();
    words.filter(|word| word.starts_with("-l")).map(str::to_string).collect()
}

/// Whether a program links with a library; its headers come in the same package.
fn links(flag: &str, out: &Path) -> bool {
    let probe = out.join("probe");
    let source = probe.with_extension("c");
    if std::fs::write(&source, "int main(void) { return 0; }\n").is_err() {
        return false;
    }
    let gcc = Command::new("gcc").arg(&source).arg(flag).arg("-o").arg(&probe).output();
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&probe));
    gcc.is_ok_and(|output| output.status.success())
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
    fn libraries_are_named_or_seen() {
        assert_eq!(libraries("// pkg-config: libdpdk zlib\nint main;"), ["libdpdk", "zlib"]);
        assert_eq!(libraries("/*\n * pkg-config: libdpdk */\n"), ["libdpdk"]);
        assert_eq!(libraries("#include <rte_fib.h>\n"), ["libdpdk"]);
        assert!(libraries("#include <stdio.h>\n").is_empty());
        assert_eq!(linked("/* a peer. link: -lnids -lpcap */\nint x;"), ["-lnids", "-lpcap"]);
        assert!(linked("int main;").is_empty());
    }
}
