//! `shadeline classify`, `gen rules` and `gen trace`, as a user calls them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

fn shadeline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shadeline")).args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn ok(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&ok(output)).unwrap()
}

/// Standard error of a command that ends with a status.
fn fails(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(figures: &Value) -> Vec<&str> {
    let all = figures["algorithms"].as_array().unwrap();
    all.iter().map(|algorithm| algorithm["algorithm"].as_str().unwrap()).collect()
}

/// A file of the shared data, unpacked into a folder.
fn shared(folder: &Scratch, name: &str) -> Option<PathBuf> {
    let packed = testkit::shared_data(&format!("classbench/cutsplit/{name}.xz"))?;
    let xz = testkit::require_tool("xz")?;
    let output = Command::new(xz).arg("-dc").arg(packed).output().unwrap();
    assert!(output.status.success());
    std::fs::write(folder.join(name), output.stdout).unwrap();
    Some(folder.join(name))
}

#[test]
fn real_sets_give_the_expected_matches_by_every_structure() {
    for name in ["acl_1k", "ipc_1k"] {
        let folder = Scratch::new();
        let Some(rules) = testkit::shared_data(&format!("classbench/cutsplit/{name}")) else {
            return;
        };
        let Some(trace) = shared(&folder, &format!("{name}_trace")) else { return };
        let Some(expected) = shared(&folder, &format!("{name}_expected")) else { return };
        let matches = folder.join("matches");
        let output = shadeline(&[
            "classify",
            "--rules",
            text(&rules),
            "--trace",
            text(&trace),
            "--matches",
            text(&matches),
            "--algorithm",
            "all",
            "--json",
        ]);
        let figures = json(&output);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap().replace("\r\n", "\n");
        assert!(read(&matches).lines().eq(read(&expected).lines()), "{name}");
        assert!(names(&figures).starts_with(&["linear", "tuple", "bloom"]), "{figures}");
        assert_eq!(figures["headers"], figures["matched"]);
        for algorithm in figures["algorithms"].as_array().unwrap() {
            if algorithm.get("refused").is_some() {
                continue;
            }
            let parts = algorithm["memory_parts"].as_array().unwrap().iter();
            let sum: u64 = parts.map(|part| part["bytes"].as_u64().unwrap()).sum();
            assert_eq!(algorithm["memory_bytes"], sum);
            assert!(algorithm["rate_mpps"].as_f64().unwrap() > 0.0);
        }
        // Ranges became prefixes where masks are looked up, and nowhere else.
        let entries = |at: usize| figures["algorithms"][at]["entries"].as_u64().unwrap();
        assert_eq!(entries(0), figures["rules"].as_u64().unwrap());
        assert!(entries(1) >= entries(0) && entries(1) == entries(2));
    }
}

const RULES: &str = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\r\n\
    @10.1.0.0/16\t0.0.0.0/0 0 : 65535 80 : 90 0x06/0xFF\r\n\
    @10.1.2.0/24 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n@0.0.0.0/0 1.2.3.4/32 0:65535 0:65535 0x00/0x00\n";

#[test]
fn one_header_is_explained() {
    let folder = Scratch::new();
    let rules = folder.write("rules", RULES);
    let explain = |tuple: &str, options: &[&str]| {
        let mut arguments = vec!["classify", "--rules", text(&rules), "--explain", tuple];
        arguments.extend(options);
        shadeline(&arguments)
    };
    let told = json(&explain("10.1.2.9 1.2.3.4 5 80 tcp", &["--json"]));
    let indices = |told: &Value| -> Vec<u64> {
        let rules = told["rules"].as_array().unwrap();
        rules.iter().map(|rule| rule["index"].as_u64().unwrap()).collect()
    };
    assert_eq!(indices(&told), [0, 1, 2, 3]);
    assert_eq!(told["rules"][1]["rule"], "10.1.0.0/16 * * 80:90 6");
    for algorithm in told["algorithms"].as_array().unwrap() {
        assert_eq!(algorithm["found"], 0, "{algorithm}");
    }
    let tuple = json(&explain("10.1.2.9 1.1.1.1 5 85 6", &["--json", "--algorithm", "tuple"]));
    assert_eq!(indices(&tuple), [1]);
    let steps = tuple["algorithms"][0]["steps"].as_array().unwrap();
    let hit = steps.iter().find(|step| step["found"] == 1).unwrap();
    let place = hit["place"].as_str().unwrap();
    assert!(place.contains("src/16 dport/13 proto"), "{place}");
    let plain = ok(&explain("9.9.9.9 9.9.9.9 5 80 udp", &[]));
    assert!(plain.contains("no rule matches") && plain.contains("linear: none"), "{plain}");
    let short = fails(&explain("10.1.2.9 1.2.3.4 5", &[]), 2);
    assert!(
        short.contains("expected 5 columns") && short.contains("src dst sport dport proto"),
        "{short}"
    );
}

#[test]
fn rules_that_never_count_are_told() {
    let folder = Scratch::new();
    let rules = folder.write("rules", RULES);
    let output = shadeline(&["classify", "--rules", text(&rules), "--check", "--json"]);
    let figures = json(&output);
    assert_eq!(figures["check"]["shadowed"], 1);
    let warning = String::from_utf8_lossy(&output.stderr);
    assert!(warning.contains("rule 2 never counts: rule 0 is better"), "{warning}");
}

#[test]
fn bad_input_is_told_by_file_line_and_reason() {
    let folder = Scratch::new();
    let good = folder.write("good", RULES);
    let trace = folder.write("trace", "1 2 3 4 6\n1 2 3\n");
    for (line, wanted) in [
        (
            "@10.0.0.0/33 0.0.0.0/0 0 : 1 0 : 1 0x06/0xFF",
            "line 2: expected a prefix length of 0 to 32",
        ),
        (
            "@10.0.0.0/3 0.0.0.0/0 9 : 1 0 : 1 0x06/0xFF",
            "line 2: the range of the source port is reversed",
        ),
        ("@10.0.0.0/3 0.0.0.0/0 0 : 1 0 : 1 0x06/0x0F", "line 2: expected a protocol mask"),
        ("10.0.0.0/3 0.0.0.0/0 0 : 1 0 : 1 0x06/0xFF", "line 2: expected `@`"),
    ] {
        let bad = folder.write("bad", &format!("# a comment\n{line}\n"));
        let told =
            fails(&shadeline(&["classify", "--rules", text(&bad), "--trace", text(&trace)]), 1);
        assert!(told.contains(&format!("{}, {wanted}", bad.display())), "{told}");
    }
    let told = fails(&shadeline(&["classify", "--rules", text(&good), "--trace", text(&trace)]), 1);
    assert!(
        told.contains(&format!("{}, line 2: expected at least 5 columns", trace.display())),
        "{told}"
    );
    let typo =
        ["classify", "--rules", text(&good), "--trace", text(&trace), "--algorithm", "tupel"];
    let told = fails(&shadeline(&typo), 2);
    assert!(told.contains("invalid value 'tupel'") && told.contains("tuple"), "{told}");
    let told = fails(&shadeline(&["classify", "--rules", text(&good)]), 2);
    assert!(told.contains("--trace"), "{told}");
    let none = folder.join("none");
    let told = fails(&shadeline(&["classify", "--rules", text(&none), "--check"]), 1);
    assert!(told.contains(text(&none)), "{told}");
}

/// Makes rules and a trace twice; both files, after seeing that the bytes are the same.
fn made(folder: &Scratch, rules: &[&str], trace: &[&str]) -> (PathBuf, PathBuf) {
    let paths = ["a", "b"].map(|name| (folder.join(name), folder.join(&format!("{name}.trace"))));
    for (rules_path, trace_path) in &paths {
        let write = ["-w", text(rules_path)];
        ok(&shadeline(&[&["gen", "rules"], rules, &write].concat()));
        let write = ["--rules", text(rules_path), "-w", text(trace_path)];
        ok(&shadeline(&[&["gen", "trace"], trace, &write].concat()));
    }
    let [(rules, trace), (other_rules, other_trace)] = &paths;
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert!(read(rules) == read(other_rules) && read(trace) == read(other_trace));
    (rules.clone(), trace.clone())
}

#[test]
fn made_sets_are_classified_alike_by_all() {
    let folder = Scratch::new();
    for (fields, more) in [("5", ["--distribution", "zipf"]), ("12", ["--overlap", "8"])] {
        let rules = ["--rules", "900", "--fields", fields, "--classes", "32"];
        let trace = ["--count", "2000", "--distribution", "uniform", "--inside", "--first", "100"];
        let (rules, trace) = made(&folder, &[&rules[..], &more].concat(), &trace);
        let output =
            shadeline(&["classify", "--rules", text(&rules), "--trace", text(&trace), "--json"]);
        let figures = json(&output);
        assert_eq!(
            (&figures["rules"], &figures["matched"]),
            (&900.into(), &2000.into()),
            "{figures}"
        );
        assert_eq!(figures["algorithms"][1]["classes"], 32, "{figures}");
    }
    let Some(seed) = testkit::shared_data("restricted/classbench-seeds/fw1_seed") else { return };
    let rules = [
        "--rules",
        "500",
        "--parameters",
        text(&seed),
        "--smoothing",
        "2",
        "--address-scope",
        "-0.5",
    ];
    let (rules, trace) = made(&folder, &rules, &["--count", "3000"]);
    let lines = std::fs::read_to_string(&rules).unwrap();
    assert_eq!(lines.lines().filter(|line| line.starts_with('@')).count(), 500);
    let output =
        shadeline(&["classify", "--rules", text(&rules), "--trace", text(&trace), "--json"]);
    assert_eq!(json(&output)["matched"], 3000);
}

#[test]
fn what_cannot_be_made_is_told() {
    let folder = Scratch::new();
    let out = folder.join("out");
    let told =
        fails(&shadeline(&["gen", "rules", "--rules", "3", "--classes", "4", "-w", text(&out)]), 2);
    assert!(told.contains("at least one rule for each class"), "{told}");
    let seed = folder.write("seed", "-prots\n6 0.5 x\n");
    let bad = ["gen", "rules", "--rules", "3", "--parameters", text(&seed), "-w", text(&out)];
    let told = fails(&shadeline(&bad), 1);
    assert!(told.contains(&format!("{}, line 2: expected a part", seed.display())), "{told}");
    let empty = folder.write("empty", "");
    let bad = ["gen", "trace", "--rules", text(&empty), "--count", "5", "-w", text(&out)];
    assert!(fails(&shadeline(&bad), 1).contains("no rule to draw"));
    assert!(!out.exists());
}

/// Every structure gives the same lines on a device, for headers of four words and of nine.
#[test]
fn a_device_finds_the_same() {
    if !testkit::require_opencl() {
        return;
    }
    for fields in ["5", "12"] {
        let folder = Scratch::new();
        let [rules, trace] = ["rules", "trace"].map(|name| folder.join(name));
        let (rules, trace) = (text(&rules), text(&trace));
        let make = ["--rules", "3000", "--classes", "40", "--fields", fields, "-w", rules];
        ok(&shadeline(&[&["gen", "rules"], &make[..]].concat()));
        let draw = ["--rules", rules, "--count", "2500", "-w", trace];
        ok(&shadeline(&[&["gen", "trace"], &draw[..]].concat()));
        let matches = folder.join("matches");
        let on = |backend: &str, algorithm: &str| {
            let files = ["--rules", rules, "--trace", trace, "--matches", text(&matches)];
            let how = ["--backend", backend, "--algorithm", algorithm, "--json"];
            let figures = json(&shadeline(&[&["classify"], &files[..], &how].concat()));
            (figures, std::fs::read_to_string(&matches).unwrap())
        };
        let (figures, expected) = on("cpu", "linear");
        assert!(figures.get("device").is_none() && expected.lines().count() == 2500);
        let (figures, found) = on("opencl", "all");
        assert!(found == expected && figures["device"].is_string(), "{figures}");
        for algorithm in figures["algorithms"].as_array().unwrap() {
            if algorithm.get("refused").is_some() {
                continue;
            }
            let device = &algorithm["device"];
            if device.get("kernel").is_none() {
                continue;
            }
            for rate in ["rate_mpps", "ns_per_packet", "kernel_rate_mpps"] {
                assert!(device[rate].as_f64().is_some_and(|rate| rate > 0.0), "{algorithm}");
            }
        }
        let kernel = |at: usize| figures["algorithms"][at]["device"]["kernel"].clone();
        let wanted = if fields == "5" { ["linear4", "tuple4"] } else { ["linear12", "tuple9"] };
        assert_eq!([kernel(0), kernel(1)], wanted);
        assert_eq!(on("opencl", "bloom").1, expected);
    }
}

#[test]
fn a_device_that_is_not_there_is_told() {
    let folder = Scratch::new();
    let rules = folder.write("rules", RULES);
    let trace = folder.write("trace", "1 2 3 4 6\n");
    let on = |backend: &str| {
        let files = ["classify", "--rules", text(&rules), "--trace", text(&trace)];
        shadeline(&[&files[..], &["--backend", backend]].concat())
    };
    let simulated = fails(&on("sim"), 2);
    assert!(simulated.contains("classify has no --backend sim"), "{simulated}");
    let absent = fails(&on("opencl:99"), 1);
    assert!(absent.contains("--backend opencl:99"), "{absent}");
    ok(&on("auto"));
    ok(&shadeline(&["classify", "--rules", text(&rules), "--check"]));
    let without = ["classify", "--rules", text(&rules), "--check", "--backend", "opencl"];
    assert!(fails(&shadeline(&without), 2).contains("--trace"));
}
