//! Every pipeline that the requirements of stages allow: it starts, and writes the same bytes whichever side shades.
//! They are generated, not listed: a new stage of these applications is in here without a line.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::{Scratch, repository, require_opencl};

/// Stages that change nothing here, with the sections of these configurations: `flow` only looks at packets, the others have
/// nothing to do. `nat_source` comes with `nat`, `esp_out` with `esp_in`.
const IDLE: [&str; 8] = ["flow", "l7", "ids", "modules", "nat", "esp_in", "nat_source", "esp_out"];

/// Stages with a device form.
const KERNELS: [&str; 5] = ["firewall", "rpf", "route", "bridge", "name_lookup"];

/// The golden case whose configuration and captures a pipeline of this application gets.
fn case_of(application: &str) -> &'static str {
    match application {
        "router" => "firewall",
        "switch" => "firewall_switch",
        "ndn" => "ndn_udp",
        "wire" | "monitor" | "openflow" => "firewall_wire",
        other => panic!("a pipeline of {other}: which captures does it get?"),
    }
}

/// The case's configuration with these stages instead of its mode, and without what none of them reads.
fn config(case: &Path, stages: &[&str]) -> String {
    let text = std::fs::read_to_string(case.join("config.toml")).expect("a configuration");
    let text = text.lines().filter(|line| !line.starts_with("mode = "));
    let mut text = text.collect::<Vec<_>>().join("\n");
    if !stages.contains(&"firewall")
        && let Some(at) = text.find("[firewall]")
    {
        text.truncate(at); // the rules come last
    }
    if stages.contains(&"rpf") {
        text = text.replace("[port.lan]", "[port.lan]\nrpf = \"strict\"");
    }
    if stages.contains(&"openflow") && stages.contains(&"bridge") {
        text += "\n[stage.openflow]\nflows = [\"flows.txt\"]\n";
    }
    let stages = stages.iter().map(|stage| format!("\"{stage}\"")).collect::<Vec<_>>().join(", ");
    format!("mode = \"generated\"\n[pipeline.generated]\nstages = [{stages}]\n{text}\n")
}

fn captures(case: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(case).expect("a case").flatten().map(|entry| entry.path());
    let mut all: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "pcap")).collect();
    all.sort();
    all
}

fn run(config: &Path, captures: &[PathBuf], out: &Path, backend: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(config).arg("-w").arg(out).args(["--backend", backend]);
    for capture in captures {
        let port = capture.file_stem().unwrap_or_default().to_string_lossy();
        command.arg("-r").arg(format!("{port}={}", capture.display()));
    }
    testkit::set_caches(&mut command, Path::new(env!("CARGO_TARGET_TMPDIR")));
    command.output().expect("the program starts")
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// What a run wrote, but for the statistics, which hold times.
fn written(out: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(out).expect("captures").flatten().map(|entry| entry.path());
    let captures = files.filter(|path| path.extension().is_some_and(|e| e == "pcapng"));
    let mut all: Vec<_> = captures
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read(&path).expect("a capture"))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn every_pipeline_writes_the_same_bytes_on_every_backend() {
    let known = apps::known_stages();
    let has_opencl = require_opencl();
    let rank = |stage: &str| known.kinds.iter().position(|kind| kind.name == stage);
    let has = |stages: &[&str], wanted: &[&str]| stages.iter().any(|stage| wanted.contains(stage));
    // What has nothing to do is tried in its usual place: one of them at a time, and all of them.
    let is_tried = |stages: &Vec<&'static str>| {
        let idle = IDLE[1..6].iter().filter(|stage| stages.contains(stage)).count();
        let has_all = ["l7", "ids", "modules"].iter().all(|stage| stages.contains(stage));
        idle == 0 || (idle == 1 || has_all) && stages.is_sorted_by_key(|stage| rank(stage))
    };
    for stages in known.pipelines().into_iter().filter(is_tried) {
        let application = known.arrange(&stages).expect("a pipeline")[0].name;
        let case = repository().join("tests/golden").join(case_of(application));
        let folder = Scratch::new();
        let path = folder.write("config.toml", &config(&case, &stages));
        folder.write("flows.txt", "actions=NORMAL\n");
        if case.join("names.txt").is_file() {
            std::fs::copy(case.join("names.txt"), folder.join("names.txt")).expect("names");
        }
        let captures = captures(&case);
        let cpu = run(&path, &captures, &folder.join("cpu"), "cpu");
        assert!(cpu.status.success(), "{stages:?}: {}", said(&cpu));
        let expected = written(&folder.join("cpu"));
        let bytes: usize = expected.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes > 5000, "{stages:?} wrote {bytes} bytes: {}", said(&cpu));
        // PoCL takes a second for the kernels of each.
        let has_opencl = has_opencl && !has(&stages, &IDLE);
        let backends = ["sim", "opencl"];
        for backend in backends.into_iter().filter(|b| *b != "opencl" || has_opencl) {
            let out = folder.join(backend);
            let output = run(&path, &captures, &out, backend);
            assert!(output.status.success(), "{stages:?} on {backend}: {}", said(&output));
            let text = said(&output);
            assert!(text.contains(", 0 jobs repeated on the CPU"), "{stages:?}: {text}");
            // The captures have packets for each stage that a device can take.
            let has_kernels = stages.iter().any(|stage| KERNELS.contains(stage));
            assert_eq!(!text.contains(": 0 jobs, "), has_kernels, "{stages:?}: {text}");
            assert!(written(&out) == expected, "{stages:?}: {backend} wrote something else");
        }
    }
}

/// Lists of stages that are not a pipeline are refused, and the reason names a stage of the list and what is wrong
/// with it.
#[test]
fn every_other_list_of_stages_is_refused_with_a_reason() {
    let known = apps::known_stages();
    let allowed: HashSet<Vec<&str>> = known.pipelines().into_iter().collect();
    // A list of names does not have the keys that some need.
    let kinds = known.kinds.iter().filter(|kind| !kind.settings.is_needed());
    let names: Vec<_> = kinds.map(|kind| kind.name).collect();
    let n = names.len();
    for len in 1..=4 {
        for number in 0..n.pow(len) {
            let list: Vec<_> = (0..len).map(|digit| names[number / n.pow(digit) % n]).collect();
            match known.arrange(&list) {
                Ok(_) => assert!(allowed.contains(&list), "{list:?}"),
                Err(reason) => {
                    assert!(!allowed.contains(&list), "{list:?}: {reason}");
                    let is_named = list.iter().any(|stage| reason.contains(&format!("`{stage}`")));
                    assert!(is_named, "{list:?}: {reason}");
                    // What it proposes works.
                    if let Some((_, order)) = reason.split_once("an order that works: ") {
                        let order: Vec<_> = order.split(", ").collect();
                        assert!(allowed.contains(&order), "{list:?}: {reason}");
                        assert!(list.iter().all(|stage| order.contains(stage)), "{reason}");
                    }
                }
            }
        }
    }
    // As a user meets it.
    let folder = Scratch::new();
    let text =
        "mode = \"x\"\n[pipeline.x]\nstages = [\"decode\", \"rewrite\", \"rpf\"]\n[port.a]\n";
    let path = folder.write("config.toml", text);
    let output = Command::new(env!("CARGO_BIN_EXE_shadeline")).arg("check").arg(path).output();
    let output = output.expect("the program starts");
    assert!(!output.status.success());
    let text = said(&output);
    for expected in [
        "config.toml:3:10",
        "`rewrite` needs next_hop, which no earlier stage provides: `route` is missing",
        "an order that works: decode, rpf, route, rewrite",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

/// The backends that give the same bytes.
fn backends() -> Vec<&'static str> {
    let mut all = vec!["cpu", "sim"];
    all.extend(require_opencl().then_some("opencl"));
    all
}

/// What the router of the golden case "firewall" writes with other rules and stages, on each backend the same.
fn routed(stages: &str, rules: &str) -> Vec<(String, Vec<u8>)> {
    let case = repository().join("tests/golden/firewall");
    let text = std::fs::read_to_string(case.join("config.toml")).expect("a configuration");
    let ports = &text[..text.find("[firewall]").expect("a firewall")];
    let head = format!("mode = \"two\"\n[pipeline.two]\nstages = [{stages}]\n");
    let folder = Scratch::new();
    let path = folder.write("config.toml", &(head + ports + rules));
    let mut all = backends().into_iter().map(|backend| {
        let output = run(&path, &captures(&case), &folder.join(backend), backend);
        assert!(output.status.success(), "{stages} on {backend}: {}", said(&output));
        (backend, written(&folder.join(backend)))
    });
    let (_, expected) = all.next().expect("the CPU");
    all.for_each(|(backend, found)| assert!(found == expected, "{stages} on {backend}"));
    expected
}

/// Packets that `edge` puts into a context are judged by `inner`, and no others: together they do what one list of
/// rules says.
#[test]
fn two_firewalls_and_a_context_do_what_one_list_of_rules_says() {
    let alone = "[firewall]\n[[rule]]\nproto = \"udp\"\nsrc = \"10.0.1.0/24\"\naction = \"mark 9, accept\"\n\
                 [[rule]]\nproto = \"udp\"\naction = \"drop\"\n[[rule]]\nproto = \"icmp\"\naction = \"drop\"\n";
    let one = routed("\"decode\", \"firewall\", \"rpf\", \"route\", \"rewrite\"", alone);
    let two = "[stage.edge]\nkind = \"firewall\"\n[[stage.edge.rule]]\nproto = \"icmp\"\naction = \"drop\"\n\
               [[stage.edge.rule]]\nproto = \"udp\"\naction = \"context datagrams, accept\"\n\
               [stage.inner]\nkind = \"firewall\"\ncontext = [\"datagrams\"]\ndefault = \"drop\"\n\
               [[stage.inner.rule]]\nsrc = \"10.0.1.0/24\"\naction = \"mark 9, accept\"\n";
    for stages in [
        "\"decode\", \"edge\", \"inner\", \"rpf\", \"route\", \"rewrite\"",
        "\"decode\", \"edge\", \"rpf\", \"inner\", \"route\", \"rewrite\"",
    ] {
        let found = routed(stages, two);
        for ((name, found), (_, expected)) in found.iter().zip(&one) {
            assert!(found == expected, "{stages}: {name} differs");
        }
    }
    // The other way round `inner` sees nothing: its default drops no datagram.
    let late = routed("\"decode\", \"inner\", \"edge\", \"route\", \"rewrite\"", two);
    assert!(late != one);
    let dropped = |all: &[(String, Vec<u8>)]| {
        all.iter().find(|(name, _)| name.starts_with("dropped")).map_or(0, |(_, bytes)| bytes.len())
    };
    assert!(dropped(&late) < dropped(&one));
}

/// A router and a wire in one program do what each does by itself, with one worker and with two.
#[test]
fn pipelines_of_ports_do_what_each_does_by_itself() {
    let [router, wire] =
        ["firewall", "firewall_wire"].map(|name| repository().join("tests/golden").join(name));
    let read =
        |case: &Path| std::fs::read_to_string(case.join("config.toml")).expect("a configuration");
    let (of_router, of_wire) = (read(&router), read(&wire));
    let ports = &of_router[of_router.find("[router]").expect("a router")..];
    let (ports, rules) = ports.split_at(ports.find("[firewall]").expect("a firewall"));
    let own = "[port.a]\npipeline = \"plain\"\n[port.b]\npipeline = \"plain\"\n";
    let plain = "[pipeline.plain]\nstages = [\"wire\"]\n";
    // `mon` is one of three ports of the router: a fourth one keeps the wire's in pairs.
    let joined = format!("[port.other]\n{own}{plain}{rules}");
    let text = |workers: usize| format!("[system]\nworkers = {workers}\n{ports}{joined}");
    let folder = Scratch::new();
    let alone =
        folder.write("wire.toml", &format!("mode = \"plain\"\n{plain}[port.a]\n[port.b]\n"));
    assert!(of_wire.contains("mode = \"wire\""));
    let out = folder.join("wire");
    assert!(run(&alone, &captures(&wire), &out, "cpu").status.success());
    let mut expected = written(&out);
    let out = folder.join("router");
    let alone = folder.write("router.toml", &format!("{ports}[port.other]\n{rules}"));
    assert!(run(&alone, &captures(&router), &out, "cpu").status.success());
    expected.extend(written(&out));
    for (workers, backend) in
        [1, 2].iter().flat_map(|n| backends().into_iter().map(move |b| (*n, b)))
    {
        let path = folder.write("both.toml", &text(workers));
        let out = folder.join("both");
        let all = [captures(&router), captures(&wire)].concat();
        let output = run(&path, &all, &out, backend);
        assert!(output.status.success(), "{workers} {backend}: {}", said(&output));
        for (name, found) in written(&out).iter().filter(|(name, _)| !name.starts_with("dropped")) {
            let own = expected.iter().find(|(own, _)| own == name);
            assert!(own.is_some_and(|(_, own)| own == found), "{workers} {backend}: {name}");
        }
        assert!(said(&output).contains("plain.wire") && said(&output).contains("router.decode"));
    }
}

/// A rule's `dump` ends in the capture of dumps, live in that of `[dump.NAME]`.
#[test]
fn dumped_packets_are_in_their_captures() {
    let rules = "[firewall]\n[[rule]]\nproto = \"udp\"\naction = \"dump\"\n";
    let all = routed("\"decode\", \"firewall\", \"route\", \"rewrite\"", rules);
    let dumped = all.iter().find(|(name, _)| name == "dumped.pcapng").expect("a capture of dumps");
    assert!(dumped.1.len() > 1000, "{}", dumped.1.len());

    let folder = Scratch::new();
    let [socket, dump] = ["s.sock", "odd.pcapng"].map(|name| folder.join(name));
    let input = repository().join("tests/golden/firewall/lan.pcap");
    let text = format!(
        "[system]\nsocket = {socket:?}\n[router]\nkernel = false\n[port.lan]\nbackend = \"pcap\"\n\
         read = {input:?}\naddresses = [\"10.0.1.1/24\"]\n[port.wan]\nbackend = \"memory\"\n\
         [dump.odd]\nfile = {dump:?}\n{rules}"
    );
    let path = folder.write("live.toml", &text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    let output = command.arg("run").arg(&path).args(["--duration", "1s"]).output().expect("a run");
    assert!(output.status.success(), "{}", said(&output));
    let bytes = std::fs::read(&dump).expect("the dump");
    let names = [b"lan".as_slice(), b"wan"].map(|name| bytes.windows(3).any(|own| own == name));
    assert_eq!(names, [true, true], "{} bytes", bytes.len());
    // From the first packet on: as many as over captures, of what came in by `lan` itself.
    let over_captures = folder.join("dumped.pcapng");
    std::fs::write(&over_captures, &dumped.1).expect("a file");
    let by_lan = |path: &Path| {
        let all = testkit::pcap::read(path);
        all.iter().filter(|own| own.interface == 0 && own.data[12..14] != [0x81, 0]).count()
    };
    assert_eq!(by_lan(&dump), by_lan(&over_captures));
}
