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

/// A rule set or a trace, unpacked into a folder.
fn shared(folder: &Scratch, name: &str) -> Option<PathBuf> {
    let bytes = testkit::data::bytes(&format!("classbench/cutsplit/{name}"))?;
    std::fs::write(folder.join(name), bytes).unwrap();
    Some(folder.join(name))
}

#[test]
fn real_sets_give_the_expected_matches_by_every_structure() {
    for name in ["acl_1k", "ipc_1k"] {
        let folder = Scratch::new();
        let Some(rules) = shared(&folder, name) else { return };
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
            if algorithm.get("error").is_some() {
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
    let printed = json(&explain("10.1.2.9 1.2.3.4 5 80 tcp", &["--json"]));
    let indices = |printed: &Value| -> Vec<u64> {
        let rules = printed["rules"].as_array().unwrap();
        rules.iter().map(|rule| rule["index"].as_u64().unwrap()).collect()
    };
    assert_eq!(indices(&printed), [0, 1, 2, 3]);
    assert_eq!(printed["rules"][1]["rule"], "10.1.0.0/16 * * 80:90 6");
    for algorithm in printed["algorithms"].as_array().unwrap() {
        assert_eq!(algorithm["found"], 0, "{algorithm}");
    }
    let tuple = json(&explain("10.1.2.9 1.1.1.1 5 85 6", &["--json", "--algorithm", "tuple"]));
    assert_eq!(indices(&tuple), [1]);
    let steps = tuple["algorithms"][0]["steps"].as_array().unwrap();
    let hit = steps.iter().find(|step| step["found"] == 1).unwrap();
    let place = hit["place"].as_str().unwrap();
    assert!(place.contains("src/16 dport/13 proto"), "{place}");
    for name in ["rfc", "tic", "cuts", "auto"] {
        let printed = json(&explain("10.1.2.9 1.1.1.1 5 85 6", &["--json", "--algorithm", name]));
        let way = &printed["algorithms"][0];
        let steps = way["steps"].as_array().unwrap();
        assert!(way["found"] == 1 && steps.iter().any(|step| step["found"] == 1), "{way}");
        assert_eq!(way.get("chosen").is_some(), name == "auto", "{way}");
        let last = steps.last().unwrap();
        match name {
            // Phase 0 has seven tables, then three, two and one; and the rule.
            "rfc" => {
                assert_eq!((steps.len(), &way["accesses"]), (14, &14.into()), "{way}");
                assert_eq!(steps[0]["place"], "phase 0, source, high half, entry 0xa01");
                assert!(
                    steps[0]["leads_to"].as_str().is_some_and(|next| next.starts_with("class"))
                );
                assert_eq!(last["place"], "rules, entry 1");
            }
            // Seven tables, strips of three of them, one block with two instructions that matter here, the rule.
            "tic" => {
                assert_eq!((steps.len(), &way["accesses"]), (13, &12.into()), "{way}");
                let place = |at: usize| steps[at]["place"].as_str().unwrap().to_owned();
                assert!(place(8).starts_with("phase 2, addresses, row"), "{way}");
                assert!(place(10).ends_with(": EM-WC-EM proto 6 dport 80"), "{way}");
                assert!(place(11).ends_with(": EM-WC-AR proto 6 dport 80:90"), "{way}");
                assert_eq!(
                    (&steps[10]["nothing"], &last["place"]),
                    (&"not true".into(), &"rules, entry 1".into())
                );
            }
            _ => {}
        }
    }
    let plain = ok(&explain("9.9.9.9 9.9.9.9 5 80 udp", &[]));
    assert!(plain.contains("no rule matches") && plain.contains("linear: none"), "{plain}");
    let short = fails(&explain("10.1.2.9 1.2.3.4 5", &[]), 2);
    assert!(
        short.contains("expected 5 columns") && short.contains("src dst sport dport proto"),
        "{short}"
    );
}

/// Of many classes text names those that matter, and counts the others.
#[test]
fn an_explanation_of_many_classes_is_short() {
    let folder = Scratch::new();
    let lines =
        (1..=32).rev().map(|len| format!("@0.0.0.0/{len} 0.0.0.0/0 0 : 65535 1 : 1 0x06/0xFF\n"));
    let rules = folder.write("rules", &lines.collect::<String>());
    let explain = ["classify", "--rules", text(&rules), "--explain", "64.0.0.0 1.1.1.1 5 1 tcp"];
    for (name, why) in [("tuple", "no entry"), ("bloom", "not in its filter")] {
        let printed = ok(&shadeline(&[&explain[..], &["--algorithm", name]].concat()));
        let classes = printed.lines().filter(|line| line.contains(" of 32 (")).count();
        assert!(classes < 12, "the one that matches, and few that a filter lets pass: {printed}");
        assert!(printed.contains(&format!("more places: {why}, ")), "{printed}");
        let all = json(&shadeline(&[&explain[..], &["--algorithm", name, "--json"]].concat()));
        let steps = all["algorithms"][0]["steps"].as_array().unwrap();
        assert_eq!((steps.len(), printed.contains(": rule 31, ")), (32, true), "{printed}");
    }
}

#[test]
fn rules_that_never_apply_are_reported() {
    let folder = Scratch::new();
    let rules = folder.write("rules", RULES);
    let output = shadeline(&["classify", "--rules", text(&rules), "--check", "--json"]);
    let figures = json(&output);
    assert_eq!(figures["check"]["shadowed"], 1);
    let warning = String::from_utf8_lossy(&output.stderr);
    assert!(warning.contains("rule 2 never applies: the better rule 0 covers it"), "{warning}");
}

#[test]
fn bad_input_is_reported_by_file_line_and_reason() {
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
        let printed =
            fails(&shadeline(&["classify", "--rules", text(&bad), "--trace", text(&trace)]), 1);
        assert!(printed.contains(&format!("{}, {wanted}", bad.display())), "{printed}");
    }
    let printed =
        fails(&shadeline(&["classify", "--rules", text(&good), "--trace", text(&trace)]), 1);
    assert!(
        printed.contains(&format!("{}, line 2: expected at least 5 columns", trace.display())),
        "{printed}"
    );
    let capture = folder.join("capture");
    std::fs::write(&capture, b"\xd4\xc3\xb2\xa1\x02\0\x04\0\x1b[31m").unwrap();
    for option in ["--rules", "--trace"] {
        let rules = if option == "--rules" { text(&capture) } else { text(&good) };
        let all = ["classify", "--rules", rules, "--trace", text(&capture)];
        let printed = fails(&shadeline(&all), 1);
        let wanted = format!("{}, expected text, found a capture (pcap)", capture.display());
        assert!(printed.contains(&wanted) && !printed.contains('\x1b'), "{printed}");
    }
    let typo =
        ["classify", "--rules", text(&good), "--trace", text(&trace), "--algorithm", "tupel"];
    let printed = fails(&shadeline(&typo), 2);
    assert!(printed.contains("invalid value 'tupel'") && printed.contains("tuple"), "{printed}");
    let printed = fails(&shadeline(&["classify", "--rules", text(&good)]), 2);
    assert!(printed.contains("--trace"), "{printed}");
    let none = folder.join("none");
    let printed = fails(&shadeline(&["classify", "--rules", text(&none), "--check"]), 1);
    assert!(printed.contains(text(&none)), "{printed}");
}

/// Files that are packed, by what they begin with and not by what they are called.
#[test]
fn packed_files_are_read() {
    let folder = Scratch::new();
    let rules = folder.write("rules", RULES);
    let trace = folder.write("trace", "167838209 16909060 5 80 6\n1 2 3 4 6\n");
    for program in ["gzip", "xz"] {
        let Some(program) = testkit::require_tool(program) else { continue };
        let pack = |path: &Path| {
            let packed = Command::new(&program).arg("-c").arg(path).output().unwrap().stdout;
            let name = format!("{}.packed", path.file_name().unwrap().to_str().unwrap());
            std::fs::write(folder.join(&name), packed).unwrap();
            folder.join(&name)
        };
        let files = (pack(&rules), pack(&trace));
        let matches = folder.join("matches");
        let all = ["classify", "--rules", text(&files.0), "--trace", text(&files.1)];
        ok(&shadeline(&[&all[..], &["--matches", text(&matches)]].concat()));
        assert_eq!(std::fs::read_to_string(&matches).unwrap(), "0\n-1\n");
        let whole = std::fs::read(&files.0).unwrap();
        std::fs::write(&files.0, &whole[..whole.len() - 9]).unwrap();
        assert!(fails(&shadeline(&all), 1).contains(text(&files.0)));
    }
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
    let Some(seed) = testkit::data::path("restricted/classbench-seeds/fw1_seed") else { return };
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

/// The figures of the papers' tables: of the structure, and of the headers of a trace.
#[test]
fn structures_tell_what_they_look_like_inside() {
    let folder = Scratch::new();
    let any = "0.0.0.0/0 0 : 65535";
    // 80-81 and 82 are the prefixes of 80-82; two rules are equal; one protocol of two.
    let rules = folder.write(
        "rules",
        &format!(
            "@10.0.0.0/8 {any} 80 : 80 0x06/0xFF\n@10.0.0.0/8 {any} 80 : 82 0x06/0xFF\n\
             @10.0.0.0/8 {any} 82 : 82 0x06/0xFF\n@10.0.0.0/8 {any} 0 : 65535 0x00/0x00\n"
        ),
    );
    let trace = folder.write("trace", "167772161 1 5 82 6\n167772161 1 5 9 17\n1 1 1 1 6\n");
    let files = ["classify", "--rules", text(&rules), "--trace", text(&trace)];
    let printed = |options: &[&str]| json(&shadeline(&[&files[..], &["--json"], options].concat()));
    let tuple = &printed(&["--algorithm", "tuple"])["algorithms"][0];
    let inside = &tuple["tuple"];
    let figure = |name: &str| inside[name].as_u64().unwrap();
    assert_eq!((figure("entries"), figure("entries_per_rule_max")), (1 + 2 + 1 + 1, 2), "{tuple}");
    // 80 and 82 under one mask, 80-81 under another; 82 is of two rules.
    assert_eq!((figure("classes"), figure("class_max"), figure("chain_max")), (3, 2, 2));
    let search = &inside["search"];
    assert_eq!((&search["headers"], &search["classes_max"]), (&3.into(), &3.into()), "{tuple}");
    let bloom = &printed(&["--algorithm", "bloom", "--hash", "murmur3"])["algorithms"][0];
    let filters = &bloom["filters"];
    assert_eq!((&filters["functions"], &filters["bits_min"]), (&2.into(), &512.into()), "{bloom}");
    // Of nine pairs three are hits: 82 in its class, both headers of 10.0.0.0/8 in that of any port.
    assert_eq!(filters["measured"]["lookups"], 6, "{bloom}");
    for formula in ["false_positives_formula", "false_positives_paper"] {
        assert!(filters[formula].as_f64().is_some_and(|rate| rate > 0.0), "{bloom}");
    }
    for block in [32, 64] {
        let printed = printed(&["--algorithm", "tic", "--tic-block", &block.to_string()]);
        let code = &printed["algorithms"][0]["code"];
        // A list of three rules, for the second covers the third (one port, a range, any), and the empty one.
        assert_eq!(code["instructions"], serde_json::json!([1, 2, 0]), "{code}");
        assert_eq!((&code["block_bytes"], &code["lists"]), (&block.into(), &2.into()), "{code}");
        assert_eq!(code["rules_per_list_max"], 3);
        assert_eq!(
            (&code["base_instructions"], &code["guard_instructions"]),
            (&0.into(), &0.into())
        );
        // 82 is of the second rule, 9 of the last, and the third header has no range.
        let evaluation = &code["evaluation"];
        assert_eq!(evaluation["ranges_per_header"].as_f64(), Some(5.0 / 3.0));
        assert_eq!((&evaluation["ranges_max"], &evaluation["blocks_max"]), (&3.into(), &1.into()));
    }
    let printed = ok(&shadeline(&files));
    for part in [
        "3 classes, the largest of 2 entries; 5 entries, of one rule up to 2",
        "filters: k = 2 functions, m = 512 bits each",
        "false positives:",
        "instructions of 4 bytes 33.3 %, of 8 66.7 %, of 12 0 %; 1.67 words on average (Table 4)",
        "a header: 1.67 ranges (at most 3), 1.00 blocks (at most 1) (Table 9)",
        "beyond the paper: 0 BASE",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let odd = [&files[..], &["--tic-block", "48"]].concat();
    assert!(fails(&shadeline(&odd), 2).contains("32 or 64"), "another size");
}

/// A structure that does not take the set has a reason and no figures.
#[test]
fn a_refused_structure_has_no_figures() {
    let folder = Scratch::new();
    let rules = folder.write("rules", "fields a:8:mask\n7\n*\n");
    let trace = folder.write("trace", "7\n8\n");
    let files = ["classify", "--rules", text(&rules), "--trace", text(&trace)];
    let figures = json(&shadeline(&[&files[..], &["--json"]].concat()));
    let all = figures["algorithms"].as_array().unwrap();
    let tic = all.iter().find(|figures| figures["algorithm"] == "tic").unwrap();
    assert!(tic["error"].as_str().is_some_and(|why| why.contains("TIC")), "{tic}");
    for name in ["build_s", "memory_bytes", "memory_parts", "entries", "classes", "class_max"] {
        assert!(tic.get(name).is_some_and(Value::is_null), "{name}: {tic}");
    }
    assert!(tic.get("rate_mpps").is_none() && all[0].get("error").is_none());
    assert!(ok(&shadeline(&files)).contains("tic        refused: "));
    let printed = fails(&shadeline(&[&files[..], &["--algorithm", "tic"]].concat()), 1);
    assert!(printed.contains(&format!("{}: tic: ", rules.display())), "{printed}");
}

#[test]
fn what_cannot_be_made_is_reported() {
    let folder = Scratch::new();
    let out = folder.join("out");
    let rules = folder.write("rules", RULES);
    let of_rules = |options: &str| {
        let all = format!("gen rules {options} -w {}", out.display());
        fails(&shadeline(&all.split_whitespace().collect::<Vec<_>>()), 2)
    };
    let of_trace = |options: &str| {
        let all = format!("gen trace --rules {} {options} -w {}", rules.display(), out.display());
        fails(&shadeline(&all.split_whitespace().collect::<Vec<_>>()), 2)
    };
    // Which option, what was given, what may be.
    for (printed, wanted) in [
        (of_rules("--rules 0"), ["'0' for '--rules <N>'", "1 to 4294967294"]),
        (of_rules("--rules 3 --classes 4"), ["--classes 4: expected 1 to 3", "rules"]),
        (
            of_rules("--rules 9 --classes 4 --overlap 5"),
            ["--overlap 5: expected 1 to 4", "classes"],
        ),
        (
            of_rules("--rules 9 --full-classes 10"),
            ["--full-classes 10: expected 1 to 9", "classes"],
        ),
        (
            of_rules("--rules 9 --full-classes 2 --distribution zipf"),
            ["--full-classes", "not zipf"],
        ),
        (
            of_rules("--rules 9 --parameters x --smoothing 33"),
            ["'33' for '--smoothing <BITS>'", "0..=32"],
        ),
        (
            of_rules("--rules 9 --parameters x --port-scope 1.5"),
            ["'1.5' for '--port-scope <S>'", "-1 to 1"],
        ),
        (of_trace("--count 5 --first 0"), ["'0' for '--first <N>'", "1 to 4294967294"]),
        (of_trace("--count 5 --first 5"), ["--first 5: expected 1 to 4", "number of rules"]),
        (of_trace("--count 5 --locality -1"), ["'-1' for '--locality <B>'", "0 to 1000000"]),
        (
            of_trace("--count 5 --distribution uniform --locality 1"),
            ["--locality 1", "not uniform"],
        ),
        (of_trace("--count x"), ["'x' for '--count <N>'", "1 to 4294967294"]),
    ] {
        assert!(wanted.iter().all(|wanted| printed.contains(wanted)), "{wanted:?}: {printed}");
    }
    let seed = folder.write("seed", "-prots\n6 0.5 x\n");
    let bad = ["gen", "rules", "--rules", "3", "--parameters", text(&seed), "-w", text(&out)];
    let printed = fails(&shadeline(&bad), 1);
    assert!(
        printed.contains(&format!("{}, line 2: expected a share", seed.display())),
        "{printed}"
    );
    let empty = folder.write("empty", "");
    let bad = ["gen", "trace", "--rules", text(&empty), "--count", "5", "-w", text(&out)];
    assert!(fails(&shadeline(&bad), 1).contains("the file has no rules"));
    assert!(!out.exists());
}

/// Standard output has what a file would have, and nothing else.
#[test]
fn what_is_made_goes_to_standard_output_too() {
    let folder = Scratch::new();
    let (rules, trace) = made(&folder, &["--rules", "3"], &["--count", "40", "--locality", "0"]);
    let out = shadeline(&["gen", "rules", "--rules", "3", "-w", "-"]);
    assert_eq!(ok(&out).as_bytes(), std::fs::read(&rules).unwrap());
    assert_eq!(String::from_utf8_lossy(&out.stderr), "3 rules\n");
    let draw = ["gen", "trace", "--rules", text(&rules), "--count", "40", "--locality", "0"];
    let out = shadeline(&[&draw[..], &["-w", "-", "--json"]].concat());
    assert_eq!(ok(&out).as_bytes(), std::fs::read(&trace).unwrap());
    let figures: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(figures["headers"], 40);
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
            if algorithm.get("error").is_some() {
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
fn a_device_that_is_not_there_is_reported() {
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
