//! `cargo xtask gpu`: one folder for a machine with a GPU and nothing else.
//!
//! The release program of [`crate::dist`], captures, the golden cases, a routing table, and `run.sh`, which runs
//! self-tests, the differential suite and the benches and writes one `result.json`; see `bench/results/README.md`
//! for where that goes. As a suite the same folder runs here on PoCL, with short measurements.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::json::Json;
use crate::libtest::TestProgram;
use crate::suites::{Report, cargo};
use crate::{dist, tree};

const RUNNER: &str = include_str!("gpu/run.sh");
const README: &str = include_str!("gpu/README.txt");
/// What may be carried to such a machine.
const KIT_BYTES_MAX: u64 = 63 << 20;
const FULL_TABLE: &str = "../shared/data/bgp/bart-prefixes-v4v6.txt.gz";
const RULES: &str = "../shared/data/ids/etopen-2017";
const NAMES: &str = "tests/data/ndn";
const RUN_LIMIT: Duration = Duration::from_secs(1800);
/// Test programs that go along: package, target, name in the kit. Kernels of the library and of the applications
/// against their forms on the CPU; payload, state and failures in the engine; jobs of the accelerator. They compile
/// by NVRTC.
const PROOFS: [(&str, &str, &str); 6] = [
    ("kernels", "pocl", "kernels"),
    ("apps", "kernels", "applications"),
    ("apps", "cipher", "ciphers"),
    ("apps", "openflow", "flows"),
    ("engine", "device", "stages"),
    ("device", "opencl", "jobs"),
];
/// Opens an entry of the cache of compiled kernels; three numbers follow, the first the length of the key.
const CACHE_MAGIC: &[u8] = b"shadeline kernel 1\n";

/// `cargo xtask gpu`.
pub(crate) fn kit(root: &Path) -> Report {
    let mut report = Report::begin(root, "gpu");
    if let Some(kit) = pack(root, &mut report) {
        report.say(&format!("{}: `sh run.sh` there writes out/result.json", kit.display()));
    }
    report.end()
}

/// The suite: packs, runs on PoCL, looks at the result.
pub(crate) fn run(root: &Path) -> Report {
    let mut report = Report::begin(root, "gpu");
    if let Some(kit) = pack(root, &mut report) {
        // Elsewhere, as it will be: nothing beside the kit may be needed.
        let out = tree::target_dir(root).join("gpu-run");
        let moved = out.join("kit");
        // Of an earlier run, if any.
        let _ = fs::remove_dir_all(&out);
        match copy_folder(&kit, &moved, &|_| true) {
            Ok(()) => try_on_pocl(root, &mut report, &moved, &out),
            Err(error) => report.counts.fail(format!("{}: {error}", moved.display())),
        }
    }
    report.end()
}

fn try_on_pocl(root: &Path, report: &mut Report, kit: &Path, out: &Path) {
    if !Path::new("/etc/OpenCL/vendors/pocl.icd").exists() {
        return report.counts.skip("run.sh", "no PoCL (`cargo xtask setup gpu`)", report.in_ci);
    }
    let mut runner = Command::new("sh");
    runner.arg(kit.join("run.sh")).current_dir("/");
    runner.env("BACKEND", "opencl").env("SHORT", "1").env("OUT", out);
    report.run_one("run.sh on PoCL", &mut runner, RUN_LIMIT);
    let cases = fs::read_to_string(kit.join("cases/list")).unwrap_or_default().lines().count();
    match fs::read_to_string(out.join("result.json")) {
        Ok(text) => {
            for problem in problems(&text, cases) {
                report.counts.fail(format!("result.json: {problem}"));
            }
        }
        Err(error) => report.counts.fail(format!("result.json: {error}")),
    }
    // What was compiled here from source must be there as PTX where nothing compiles.
    let compiled = tree::walk(&out.join("kernels"));
    let pack = fs::read(dist::ptx(root)).unwrap_or_default();
    match compiled.iter().map(|path| brought(path, &pack)).collect::<io::Result<Vec<_>>>() {
        Err(error) => report.counts.fail(format!("the cache of kernels: {error}")),
        Ok(all) if all.is_empty() => report.counts.fail("no kernel was compiled"),
        Ok(all) => match all.into_iter().flatten().collect::<Vec<_>>() {
            missing if missing.is_empty() => report.counts.pass(),
            missing => {
                for text in missing {
                    report.counts.fail(format!(
                        "`shadeline programs` does not list the program of {}",
                        kernels(&text)
                    ));
                }
            }
        },
    }
}

/// What is wrong with a result.
fn problems(text: &str, cases: usize) -> Vec<String> {
    let json = match Json::parse(text) {
        Ok(json) => json,
        Err(error) => return vec![error],
    };
    let mut problems = Vec::new();
    for name in ["device", "driver", "date", "commit", "backend"] {
        if json.get(name).and_then(Json::text).is_none_or(str::is_empty) {
            problems.push(format!("it has no {name}"));
        }
    }
    let parts = json.get("parts").map(Json::list).unwrap_or_default();
    let name = |part: &Json| part.get("name").and_then(Json::text).unwrap_or("?").to_string();
    for wanted in ["devices", "bench_device", "bench_update", "bench_shade"] {
        if !parts.iter().any(|p| name(p) == wanted && p.get("json").is_some()) {
            problems.push(format!("{wanted} gave no JSON"));
        }
    }
    let compared = parts.iter().filter(|p| name(p).starts_with("case ")).count();
    if compared != cases || cases == 0 {
        problems.push(format!("{compared} of {cases} cases were compared"));
    }
    for (_, _, proof) in PROOFS {
        if !parts.iter().any(|p| name(p) == format!("proof {proof}")) {
            problems.push(format!("proof {proof} did not run"));
        }
    }
    let failed = |part: &&Json| part.get("status").and_then(Json::number) != Some(0);
    for part in parts.iter().filter(failed) {
        let said = part.get("stderr").and_then(Json::text).unwrap_or_default();
        problems.push(format!("{} failed: {}", name(part), said.trim_end()));
    }
    problems
}

/// The source of a compiled kernel, if its PTX is not in the pack.
fn brought(entry: &Path, pack: &[u8]) -> io::Result<Option<String>> {
    let bytes = fs::read(entry)?;
    let numbers = bytes.strip_prefix(CACHE_MAGIC).and_then(|rest| rest.split_at_checked(24));
    let key = numbers.and_then(|(numbers, rest)| {
        let len = u64::from_le_bytes(*numbers.first_chunk()?);
        std::str::from_utf8(rest.get(..usize::try_from(len).ok()?)?).ok()
    });
    // An empty line parts what the code depends on from the text that was compiled.
    let Some((_, text)) = key.and_then(|key| key.split_once("\n\n")) else {
        return Err(io::Error::other(format!("{} is not an entry", entry.display())));
    };
    // In the pack the text's length is 16 bytes before it: see `crates/device/src/embedded.rs`.
    let length = (text.len() as u64).to_le_bytes();
    let mut places = pack.windows(text.len()).enumerate().skip(16);
    let is_there =
        places.any(|(at, window)| window == text.as_bytes() && pack[at - 16..at - 8] == length);
    Ok((!is_there).then(|| text.to_string()))
}

/// The kernels that a source defines.
fn kernels(source: &str) -> String {
    let names = source.lines().filter_map(|line| line.trim().strip_prefix("KERNEL("));
    names.filter_map(|rest| rest.split(')').next()).collect::<Vec<_>>().join(", ")
}

/// Makes the folder; its place, or the failure in the report.
fn pack(root: &Path, report: &mut Report) -> Option<PathBuf> {
    if !dist::placed_with_ptx(root, report) {
        return None;
    }
    let kit = tree::target_dir(root).join("gpu-kit");
    let proofs = proofs(root, report)?;
    let filled = fill(root, &kit).and_then(|()| fill_proofs(&proofs, &kit.join("proofs")));
    match filled.and_then(|()| folder_bytes(&kit)) {
        Ok(bytes) if bytes <= KIT_BYTES_MAX => {
            report.say(&format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)));
            report.counts.pass();
            Some(kit)
        }
        Ok(bytes) => {
            report.counts.fail(format!("the kit has {bytes} bytes; {KIT_BYTES_MAX} are allowed"));
            None
        }
        Err(error) => {
            report.counts.fail(format!("{}: {error}", kit.display()));
            None
        }
    }
}

/// The test programs of [`PROOFS`], built as the suites build them.
fn proofs(root: &Path, report: &mut Report) -> Option<Vec<(&'static str, PathBuf)>> {
    let mut build = cargo(root, &["test", "--workspace"]);
    for (_, target, _) in PROOFS {
        build.args(["--test", target]);
    }
    let built = report.test_programs(&mut build, |_| true);
    let mut found = Vec::new();
    for (package, target, name) in PROOFS {
        let of = |p: &&TestProgram| p.target == target && p.dir.rsplit('/').next() == Some(package);
        match built.iter().find(of) {
            Some(program) => found.push((name, PathBuf::from(&program.executable))),
            None => {
                report.counts.fail(format!("{package}/{target} was not built"));
                return None;
            }
        }
    }
    Some(found)
}

fn fill_proofs(proofs: &[(&str, PathBuf)], folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    proofs.iter().try_for_each(|(name, program)| fill_program(program, &folder.join(name)))
}

/// A program as `NAME.gz`: a third of the size, for what may be carried is little.
fn fill_program(program: &Path, to: &Path) -> io::Result<()> {
    dist::strip(program, to, dist::Strip::Names)?;
    let status = Command::new("gzip").arg("-f").arg(to).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("gzip {}: {status}", to.display()))),
    }
}

fn fill(root: &Path, kit: &Path) -> io::Result<()> {
    if kit.exists() {
        fs::remove_dir_all(kit)?;
    }
    fs::create_dir_all(kit)?;
    fill_program(&dist::program(root), &kit.join("shadeline"))?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(root.join(licence), kit.join(licence))?;
    }
    fs::write(kit.join("run.sh"), RUNNER)?;
    fs::write(kit.join("README.txt"), README)?;
    fs::write(kit.join("commit"), commit(root))?;
    // The captures alone: names come as plain text, and rules of classifiers are not asked for.
    copy_folder(&root.join("tests/data"), &kit.join("tests/data"), &|path| !path.is_dir())?;
    fill_cases(&root.join("tests/golden"), &kit.join("cases"))?;
    fill_routes(root, kit)?;
    fill_rules(root, &kit.join("rules"))?;
    fill_names(&root.join(NAMES), &kit.join("names"))
}

/// The cases that forward captures, and the list of them: name, exit status, arguments.
fn fill_cases(golden: &Path, cases: &Path) -> io::Result<()> {
    fs::create_dir_all(cases)?;
    let mut list = String::new();
    let mut folders: Vec<PathBuf> = fs::read_dir(golden)?.flatten().map(|e| e.path()).collect();
    folders.sort();
    for folder in folders.iter().filter(|folder| folder.join("case.toml").is_file()) {
        let text = fs::read_to_string(folder.join("case.toml"))?;
        // One without kernels says nothing of a device, and one that needs a device has nothing to be compared with.
        let has = |key: &str| text.lines().any(|line| line == key);
        let is_compared = !has("without_kernels = true") && !has("needs_device = true");
        // And one that writes no captures has none to compare.
        let is_compared = is_compared && text.contains("{out}");
        // Only the words of these become a line of the list: what other commands are given may have spaces.
        let is_run = text.lines().any(|line| line.starts_with("command = [\"run\""));
        if is_compared && is_run {
            let wrong = || io::Error::other(format!("{}: no list of words", folder.display()));
            let (status, arguments) = case(&text).ok_or_else(wrong)?;
            let name = folder.file_name().unwrap_or_default();
            copy_folder(folder, &cases.join(name), &|path| !path.ends_with("expected"))?;
            for file in neighbours(folder) {
                let to = cases.join(&file);
                fs::create_dir_all(to.parent().unwrap_or(cases))?;
                fs::copy(golden.join(file), to)?;
            }
            list += &format!("{} {status} {}\n", name.to_string_lossy(), arguments.join(" "));
        }
    }
    fs::write(cases.join("list"), list)
}

/// The files of other cases that the configuration of one reads: the folder and the file's name.
fn neighbours(folder: &Path) -> Vec<PathBuf> {
    let config = fs::read_to_string(folder.join("config.toml")).unwrap_or_default();
    let words = config.split('"').filter_map(|word| word.strip_prefix("../"));
    words.map(PathBuf::from).collect()
}

/// Exit status and arguments of a `case.toml`; none where they cannot be in a list of words.
fn case(text: &str) -> Option<(i32, Vec<String>)> {
    let value = |name: &str| {
        let pair = |line: &'_ str| {
            line.split_once('=').map(|(n, v)| (n.trim() == name, v.trim().to_string()))
        };
        text.lines().filter_map(pair).find(|(is_it, _)| *is_it).map(|(_, value)| value)
    };
    let command = value("command")?;
    let words = command.strip_prefix('[')?.strip_suffix(']')?.split(',').map(str::trim);
    let words = words.map(|word| word.strip_prefix('"')?.strip_suffix('"'));
    let words: Vec<String> = words.map(|word| word.map(str::to_string)).collect::<Option<_>>()?;
    let is_plain = |word: &String| {
        let known = |c: char| c.is_ascii_alphanumeric() || "-_./={}".contains(c);
        !word.is_empty() && word.chars().all(known)
    };
    let status = value("status").map_or(Some(0), |status| status.parse().ok())?;
    words.iter().all(is_plain).then_some((status, words))
}

/// The share of the table that the repository holds, where tests look for it, and the whole one where it is at hand.
fn fill_routes(root: &Path, kit: &Path) -> io::Result<()> {
    let share = "shadeline/data";
    fs::create_dir_all(kit.join(share))?;
    for file in ["routes.txt.gz", "LICENSE.bart"] {
        fs::copy(root.join(share).join(file), kit.join(share).join(file))?;
    }
    let full = root.join(FULL_TABLE);
    if full.is_file() {
        fs::copy(full, kit.join("full.txt.gz"))?;
    } else {
        println!("gpu        without the full table: {FULL_TABLE} is not there");
    }
    Ok(())
}

/// Rules of an IDS where they are at hand, with their licence, for the search for their regular expressions.
fn fill_rules(root: &Path, rules: &Path) -> io::Result<()> {
    let from = root.join(RULES);
    if !from.is_dir() {
        println!("gpu        without rules: {RULES} is not there");
        return Ok(());
    }
    copy_folder(&from, rules, &|path| !path.is_dir())
}

/// The lists of names where they are at hand, as plain text: the machine may have no `xz`.
fn fill_names(lists: &Path, names: &Path) -> io::Result<()> {
    if !lists.is_dir() {
        println!("gpu        without names: {} is not there", lists.display());
        return Ok(());
    }
    fs::create_dir_all(names)?;
    for entry in fs::read_dir(lists)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "xz") {
            fs::copy(&path, names.join(path.file_name().unwrap_or_default()))?;
            continue;
        }
        let output = Command::new("xz").arg("-dc").arg(&path).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        fs::write(names.join(path.file_stem().unwrap_or_default()), output.stdout)?;
    }
    Ok(())
}

/// The commit, marked where the work tree differs from it.
fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        output.status.success().then_some(text)
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or("unknown".into());
    let is_clean =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| s.is_empty());
    if is_clean { commit } else { commit + "-dirty" }
}

fn copy_folder(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if !wanted(&entry.path()) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &target, wanted)?,
            false => fs::copy(entry.path(), target).map(|_| ())?,
        }
    }
    Ok(())
}

fn folder_bytes(folder: &Path) -> io::Result<u64> {
    tree::walk(folder).iter().map(|file| Ok(file.metadata()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder that goes with its test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path =
                std::env::temp_dir().join(format!("xtask-gpu-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn cases_are_listed_with_status_and_arguments() {
        let text = "about = \"command = []\"\ncommand = [\"run\", \"-w\", \"{out}\"]\nstatus = 1\n";
        let words = ["run", "-w", "{out}"].map(str::to_string).to_vec();
        assert_eq!(case(text), Some((1, words.clone())));
        assert_eq!(case("command = [\"run\", \"-w\", \"{out}\"]"), Some((0, words)));
        for text in
            ["", "command = [\"a b\"]", "command = [\"$x\"]", "command = [1]", "command = ["]
        {
            assert_eq!(case(text), None, "{text}");
        }
    }

    #[test]
    fn the_cases_of_the_tree_can_be_packed() {
        let scratch = Scratch::new("cases");
        fill_cases(&tree::root().join("tests/golden"), &scratch.0).unwrap();
        let list = fs::read_to_string(scratch.0.join("list")).unwrap();
        assert!(list.lines().count() >= 30, "{list}");
        assert!(list.lines().all(|line| line.split(' ').nth(2) == Some("run")));
        assert!(list.lines().any(|line| line.starts_with("firewall_wire ")), "{list}");
        assert!(
            scratch.0.join("arp/in.pcap").is_file() && !scratch.0.join("arp/expected").exists()
        );
        let rules = neighbours(&scratch.0.join("firewall_classbench"));
        assert_eq!(rules, [Path::new("classify/rules.txt")]);
        assert!(scratch.0.join(&rules[0]).is_file(), "what a case reads of another comes along");
    }

    #[test]
    fn names_are_packed_as_plain_text() {
        let scratch = Scratch::new("names");
        let (lists, names) = (scratch.0.join("lists"), scratch.0.join("names"));
        fill_names(&lists, &names).unwrap();
        assert!(!names.exists(), "where there are none, none are packed");
        fs::create_dir_all(&lists).unwrap();
        fs::write(lists.join("LICENSE"), "free").unwrap();
        fs::write(lists.join("urls.txt"), "a.example/b\n").unwrap();
        match Command::new("xz").arg(lists.join("urls.txt")).status() {
            Ok(status) => assert!(status.success()),
            Err(error) => return println!("skipped: xz: {error}"),
        }
        fill_names(&lists, &names).unwrap();
        assert_eq!(fs::read_to_string(names.join("urls.txt")).unwrap(), "a.example/b\n");
        assert_eq!(fs::read_to_string(names.join("LICENSE")).unwrap(), "free");
        fs::write(lists.join("bad.txt.xz"), "no such thing").unwrap();
        assert!(fill_names(&lists, &names).is_err());
    }

    /// Stands in for the program: `run` writes what `FAKE_…` says, the rest prints JSON.
    const FAKE: &str = r#"#!/bin/sh
        [ "$1" = bench ] && [ "$2" = device ] && { printf 'no "such" device\there\n' >&2; exit 3; }
        [ "$1" = run ] || { echo '{"backends": [{'; echo '  "backend": "cuda:0",';
            echo '  "name": "Fake 1",'; echo '  "driver": "none"'; echo '}]}'; exit 0; }
        while [ "$1" != -w ]; do shift; done
        case $2 in */six/*) exit 0 ;; */seven/*) exit 1 ;; esac
        case $2 in
            */two/cuda) echo other >"$2/wan.pcapng" ;;
            */three/cuda) ;;
            *) echo same >"$2/wan.pcapng" ;;
        esac
        seen=7; case $2 in */eight/*) seen=0 ;; esac
        printf 'stage  calls  packets\ndecode  1  1,007\nroute  1  %s\n\n' "$seen"
        case $2 in
            */four/cuda) echo 'device x: 7 jobs, 7 packets, 3 jobs repeated on the CPU' ;;
            */eight/cuda|*/nine/cuda) echo 'device x: 0 jobs, 0 packets, 0 jobs repeated on the CPU' ;;
            *) echo 'device x: 7 jobs, 7 packets, 0 jobs repeated on the CPU' ;;
        esac
        case $2 in */five/cuda) exit 9 ;; esac
    "#;

    /// A kit for the program above, with these proofs and cases.
    fn fake_kit(kit: &Path, proofs: &[(&'static str, i32)], cases: &[&str]) {
        fs::write(kit.join("run.sh"), RUNNER).unwrap();
        fs::write(kit.join("commit"), "abc").unwrap();
        fs::write(kit.join("shadeline"), FAKE).unwrap();
        fs::set_permissions(kit.join("shadeline"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(kit.join("proofs")).unwrap();
        for (name, status) in proofs {
            let proof = kit.join(name);
            let text = format!("#!/bin/sh\necho \"on $SHADELINE_TEST_BACKEND\"; exit {status}\n");
            fs::write(&proof, text).unwrap();
            fill_proofs(&[(*name, proof)], &kit.join("proofs")).unwrap();
        }
        for name in cases {
            fs::create_dir_all(kit.join("cases").join(name)).unwrap();
        }
        let line = |name: &&str| {
            format!("{name} {} run config.toml -w {{out}}\n", i32::from(*name == "seven"))
        };
        fs::write(kit.join("cases/list"), cases.iter().map(line).collect::<String>()).unwrap();
    }

    /// Without time nothing is begun, and the result says so.
    #[test]
    fn the_runner_ends_in_time() {
        let scratch = Scratch::new("late");
        let kit = &scratch.0;
        fake_kit(kit, &[("kernels", 0)], &["one", "two"]);
        let mut runner = Command::new("sh");
        let output = runner.arg(kit.join("run.sh")).env("BUDGET", "0").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = fs::read_to_string(kit.join("out/result.json")).unwrap();
        let json = Json::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let parts = json.get("parts").unwrap().list();
        let late = parts.iter().filter(|p| p.get("status").and_then(Json::number) == Some(125));
        assert_eq!(late.count(), parts.len(), "{said}\n{text}");
        assert!(parts.len() > 10, "{text}");
    }

    /// The runner notices what it is there to notice, and its result is JSON whatever was printed.
    #[test]
    fn the_runner_compares_and_records() {
        let scratch = Scratch::new("runner");
        let kit = &scratch.0;
        let proofs =
            [("applications", 0), ("ciphers", 0), ("flows", 0), ("kernels", 0), ("stages", 101)];
        let names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
        fake_kit(kit, &proofs, &names);
        let output = Command::new("sh").arg(kit.join("run.sh")).env("SHORT", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("18 of 26 parts passed"), "{said}");
        assert!(said.contains("bench/results/Fake_1-20"), "{said}");

        let text = fs::read_to_string(kit.join("out/result.json")).unwrap();
        let json = Json::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let status = |name: &str| {
            let part = json.get("parts").unwrap().list().iter();
            let mut part = part.filter(|p| p.get("name").and_then(Json::text) == Some(name));
            part.next().and_then(|p| p.get("status")?.number())
        };
        for (name, expected) in [
            ("devices", 0),
            ("devices_without_nvrtc", 0),
            ("case one", 0),
            ("case two", 1),
            ("case three", 1),
            ("case four", 1),
            ("case five", 1),
            ("case six", 1),
            ("case seven", 0),
            ("case eight", 0),
            ("case nine", 1),
            ("proof applications", 0),
            ("proof ciphers", 0),
            ("proof flows", 0),
            ("proof kernels", 0),
            ("proof stages", 101),
            ("bench_device", 3),
            ("bench_ipsec", 0),
            ("bench_update", 0),
            ("bench_shade", 0),
            ("paper_gaspp_10b", 0),
        ] {
            assert_eq!(status(name), Some(expected), "{name}\n{text}");
        }
        for (name, expected) in [("device", "Fake 1"), ("driver", "none"), ("commit", "abc")] {
            assert_eq!(json.get(name).and_then(Json::text), Some(expected), "{name}");
        }
        let all = problems(&text, names.len());
        assert_eq!(all.len(), 10, "eight parts failed, one gave no JSON, one is missing: {all:#?}");
        assert!(text.contains("on cuda"), "{text}");
        assert!(all.iter().any(|p| p.contains("no \"such\" device\there")), "{all:#?}");
        assert_eq!(problems(&text, 10).len(), 11, "a case is missing");
    }

    #[test]
    fn a_kernel_that_is_not_packed_is_seen() {
        let scratch = Scratch::new("cache");
        let entry = scratch.0.join("a.kernel");
        let key = "device 0\noptions -x\n\n#line 1\nthe source\n\nof it";
        let mut bytes = CACHE_MAGIC.to_vec();
        for number in [key.len() as u64, 4, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(b"code");
        fs::write(&entry, &bytes).unwrap();
        let pack = |text: &str| {
            let mut pack = b"before".to_vec();
            for number in [text.len() as u64, 3] {
                pack.extend_from_slice(&number.to_le_bytes());
            }
            pack.extend_from_slice(text.as_bytes());
            pack.extend_from_slice(b"PTX");
            pack
        };
        assert_eq!(brought(&entry, &pack("#line 1\nthe source\n\nof it")).unwrap(), None);
        for other in ["#line 1\nthe source\n\nof its", "#line 1\nthe source", ""] {
            assert!(brought(&entry, &pack(other)).unwrap().is_some(), "{other}");
        }
        assert!(brought(&entry, b"").unwrap().is_some());
        assert_eq!(
            kernels("#define KERNEL(n)\nKERNEL(one)\n{}\n  KERNEL(two) // last\n"),
            "one, two"
        );
        fs::write(&entry, b"else").unwrap();
        assert!(brought(&entry, b"").is_err());
    }
}
