//! `shadeline run -r`, as a user calls it; what it writes is judged by tests/golden.

use std::process::{Command, Output};

use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::{Record, read, write_pcap};

const CONFIG: &str = "mode = \"router\"\n\
    [port.lan]\naddresses = [\"192.0.2.1/24\"]\n\
    [port.wan]\naddresses = [\"198.51.100.1/24\"]\n\
    [port.\"wan.7\"]\nparent = \"wan\"\nvlan = 7\n\
    [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n";

/// Runs over `read`, of which `{}` is the scratch folder; several inputs have spaces between them.
fn run(folder: &Scratch, config: &str, read: &str) -> Output {
    let config = folder.write("config.toml", config);
    let read = read.replace("{}", &folder.join("").display().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(config).arg("-w").arg(folder.join("out"));
    read.split(' ').for_each(|read| _ = command.arg("-r").arg(read));
    command.output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn data(name: &str) -> Vec<u8> {
    let path = testkit::repository().join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn captures_deep_in_a_folder_are_found() {
    let folder = Scratch::new();
    std::fs::create_dir_all(folder.join("in/deep/er")).expect("folders");
    std::fs::create_dir_all(folder.join("in/none")).expect("folders");
    std::fs::write(folder.join("in/deep/er/a.pcap"), data("tcp-urgent1.pcap")).expect("a file");
    std::fs::write(folder.join("in/none/readme.txt"), "no capture").expect("a file");
    let output = run(&folder, CONFIG, "{}in");
    assert!(output.status.success(), "{}", errors(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!said.contains("\n0 packets in"), "{said}");
}

#[test]
fn an_input_is_not_overwritten() {
    let folder = Scratch::new();
    std::fs::write(folder.join("in.pcap"), data("tcp-urgent1.pcap")).expect("a file");
    assert!(run(&folder, CONFIG, "{}in.pcap").status.success());
    let files = ["lan.pcapng", "wan.pcapng", "dropped.pcapng"];
    let read = |name: &str| std::fs::read(folder.join("out").join(name)).expect("a capture");
    let before = files.map(read);
    std::os::unix::fs::symlink(folder.join("out"), folder.join("link")).expect("a link");
    std::fs::hard_link(folder.join("out/wan.pcapng"), folder.join("own.pcapng")).expect("a link");
    for input in ["{}out/wan.pcapng", "{}out", "{}link/dropped.pcapng", "wan={}own.pcapng"] {
        let output = run(&folder, CONFIG, input);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{input}: {said}");
        assert!(said.contains("would be overwritten: write into another folder"), "{said}");
        assert_eq!(files.map(read), before, "{input}");
    }
    // Another folder is what helps.
    std::fs::rename(folder.join("out"), folder.join("first")).expect("renamed");
    assert!(run(&folder, CONFIG, "{}first/wan.pcapng").status.success());
}

#[test]
fn input_that_is_missing_is_named_and_nothing_is_made() {
    let folder = Scratch::new();
    std::fs::create_dir_all(folder.join("none")).expect("a folder");
    for (read, expected) in [
        ("{}none", "none: no capture in this folder"),
        ("{}absent.pcap", "absent.pcap: No such file"),
        ("wan.7={}x.pcap", "`wan.7` is a subinterface: its packets are received by `wan`"),
        ("wann={}x.pcap", "there is no port `wann`: expected one of lan, wan"),
    ] {
        let output = run(&folder, CONFIG, read);
        assert!(!output.status.success(), "{read}");
        assert!(errors(&output).contains(expected), "{read}: {}", errors(&output));
        assert!(!folder.join("out").exists(), "{read}");
    }
}

#[test]
fn faults_happen_over_captures_too() {
    let folder = Scratch::new();
    let capture = testkit::repository().join("tests/data/ssh-dups.pcap");
    std::fs::copy(&capture, folder.join("in.pcap")).expect("a capture");
    let plain = run(&folder, CONFIG, "lan={}in.pcap");
    assert!(plain.status.success(), "{}", errors(&plain));
    let stats = || {
        let text = std::fs::read_to_string(folder.join("out/stats.json")).expect("stats.json");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let received = stats()["rx_packets"].as_u64().expect("a number");

    let fault = "[port.lan]\nfault = { loss = 0.5, reorder = 0.2, seed = 3 }\n";
    let config = CONFIG.replace("[port.lan]\n", fault);
    let mut written = Vec::new();
    for _ in 0..2 {
        let output = run(&folder, &config, "lan={}in.pcap");
        assert!(output.status.success(), "{}", errors(&output));
        let stats = stats();
        let lost = stats["rx_lost_packets"].as_u64().expect("losses");
        assert_eq!(stats["rx_packets"].as_u64().expect("a number") + lost, received);
        let drops = stats["drops"].as_array().expect("drops");
        let row = drops.iter().find(|row| row["reason"] == "fault_injected").expect("a row");
        assert!(lost > received / 4 && row["packets"].as_u64() == Some(lost), "{stats}");
        written.push(std::fs::read(folder.join("out/wan.pcapng")).expect("a capture"));
    }
    assert!(written[0] == written[1], "the same seed gives the same bytes");
}

/// A router with limits that only the order of all packets can decide, and a link that fragments.
const LIMITED: &str = "mode = \"router\"\n\
    [system]\nworkers = 1\n\
    [router]\nicmp_rate = 50\nicmp_burst = 7\n\
    [port.lan]\nmac = \"02:00:00:00:01:01\"\naddresses = [\"192.0.2.1/24\"]\n\
    [port.wan]\naddresses = [\"198.51.100.1/24\"]\n\
    [port.thin]\naddresses = [\"203.0.113.1/24\"]\nmtu = 400\n\
    [port.\"wan.7\"]\nparent = \"wan\"\nvlan = 7\naddresses = [\"198.51.107.1/24\"]\n\
    [[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"198.51.100.2\"\n\
    [[route]]\nprefix = \"11.0.0.0/8\"\nvia = \"203.0.113.2\"\n\
    [[route]]\nprefix = \"12.0.0.0/8\"\nvia = \"198.51.107.2\"\n\
    [firewall]\ndefault = \"accept\"\n\
    [[rule]]\nname = \"telnet\"\nproto = \"tcp\"\ndport = 23\naction = \"reject\"\n\
    [[rule]]\nname = \"noise\"\nproto = \"udp\"\ndport = \"4000-4999\"\naction = \"drop\"\n\
    [[rule]]\nname = \"talk\"\nproto = \"udp\"\ndport = \"5000-5099\"\naction = \"reject\"\n";

/// So many packets of some thousand flows, of every kind that such a router treats apart.
fn many_packets(n: u32) -> Vec<testkit::pcap::Record> {
    use testkit::frames::Frame;
    let mut seed = 0x2545_f491u32;
    let mut next = |below: u32| {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed % below
    };
    let mut time_ns = 1_700_000_000_000_000_000;
    (0..n)
        .map(|i| {
            // Sometimes a clock runs back.
            time_ns += u64::from(next(20_000));
            let time_ns = time_ns - u64::from(next(200)) / 199 * 1_000_000;
            let source = format!("192.0.2.{}", 2 + next(200));
            let net = [10, 10, 10, 11, 12, 172][next(6) as usize];
            let destination = format!("{net}.{}.3.{}", next(40), 1 + next(200));
            let ttl = if next(20) == 0 { 1 } else { 64 };
            let frame = Frame::new().ipv4(&source, &destination).ttl(ttl);
            let frame = frame.identification(i as u16);
            let payload = vec![i as u8; if next(10) == 0 { 1000 } else { 20 }];
            let ports = (1024 + next(50) as u16, [53, 4500, 5050, 8080][next(4) as usize]);
            let frame = match next(12) {
                0 => frame.tcp(ports.0, 23, i, &payload),
                1 => frame.tcp(ports.0, 80, i, &payload),
                2 => frame.fragment(8 * next(50) as u16, next(2) == 0).raw(17, &payload),
                3 => frame.dont_fragment().udp(ports.0, ports.1, &payload),
                _ => frame.udp(ports.0, ports.1, &payload),
            };
            testkit::pcap::Record::new(time_ns, frame.bytes())
        })
        .collect()
}

/// Everything that a run wrote, and what it said.
type Written = (Option<i32>, Vec<(String, Vec<u8>)>, String);

fn written(folder: &Scratch, config: &str, read: &str, workers: usize) -> Written {
    let _ = std::fs::remove_dir_all(folder.join("out"));
    let config = config.replace("workers = 1", &format!("workers = {workers}"));
    let output = run(folder, &config, read);
    let mut files: Vec<_> = std::fs::read_dir(folder.join("out"))
        .expect("output")
        .flatten()
        .map(|entry| {
            let bytes = std::fs::read(entry.path()).expect("a file");
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    files.sort();
    (output.status.code(), files, errors(&output))
}

fn assert_same(one: &Written, several: &Written, workers: usize) {
    assert_eq!(one.0, several.0, "{workers} workers: {}", several.2);
    assert_eq!(one.1.len(), several.1.len());
    for ((name, bytes), (_, others)) in one.1.iter().zip(&several.1) {
        assert!(bytes == others, "{workers} workers wrote something else to {name}");
    }
}

#[test]
fn several_workers_write_what_one_writes() {
    let folder = Scratch::new();
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &many_packets(120_000));
    let one = written(&folder, LIMITED, "{}in.pcap", 1);
    assert_eq!(one.0, Some(0), "{}", one.2);
    let stats: serde_json::Value = {
        let (_, bytes) = one.1.iter().find(|(name, _)| name == "stats.json").expect("stats.json");
        serde_json::from_slice(bytes).expect("JSON")
    };
    assert_eq!(stats["rx_packets"], 120_000);
    let made = stats["made_packets"].as_u64().expect("a number");
    assert!(made > 5_000, "fragments, errors and resets: {made}");
    let tagged = stats["ports"].as_array().expect("ports").last().expect("a subinterface");
    assert!(tagged["tx_packets"].as_u64() > Some(1_000), "{tagged}");
    for workers in [2, 4, 7] {
        assert_same(&one, &written(&folder, LIMITED, "{}in.pcap", workers), workers);
    }
}

/// Each pipeline has a limit of its own, and a gate knows but one.
#[test]
fn routers_of_two_pipelines_keep_their_limits() {
    let folder = Scratch::new();
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &many_packets(20_000));
    let edge = "[pipeline.edge]\nstages = [\"decode\", \"route\", \"rewrite\"]\n[port.wan]\npipeline = \"edge\"\n";
    let config = LIMITED.replace("[port.wan]\n", edge);
    let read = "lan={}in.pcap wan={}in.pcap";
    let one = written(&folder, &config, read, 1);
    assert_eq!(one.0, Some(0), "{}", one.2);
    let several = written(&folder, &config, read, 4);
    assert!(
        several.2.contains("several pipelines or firewalls limit ICMP errors"),
        "{}",
        several.2
    );
    assert_same(&one, &several, 4);
}

/// A switch whose stations come, move and age, and whose firewall answers within a limit.
const SWITCH: &str = "mode = \"switch\"\n\
    [system]\nworkers = 1\n\
    [switch]\nstations = 200\nageing = \"10s\"\n\
    [port.a]\n[port.b]\n[port.c]\n\
    [firewall]\ndefault = \"accept\"\nicmp_rate = 20\nicmp_burst = 5\n\
    [[rule]]\nname = \"talk\"\nproto = \"udp\"\ndport = \"5000-5099\"\naction = \"reject\"\n\
    [[rule]]\nname = \"seen\"\nproto = \"udp\"\ndport = 53\naction = \"mirror c, accept\"\n";

/// Frames of a port whose stations have numbers from `first` on; now and then one of another port's.
fn station_frames(n: u32, first: u32, start_ns: u64) -> Vec<testkit::pcap::Record> {
    use testkit::frames::Frame;
    let mut seed = 77 + first;
    let mut next = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    let mut time_ns = start_ns;
    (0..n)
        .map(|i| {
            // Some stations are silent for long enough to be forgotten.
            time_ns += u64::from(next(2_000_000)) + u64::from(next(500) / 499) * 3_000_000_000;
            let wanders = next(400) == 0;
            let own = if wanders { next(200) } else { first + next(60 + i / 100) % 100 };
            let mac = |station: u32| [2, 0, 0, 0, 7, station as u8];
            let to = if next(30) == 0 { [0xff; 6] } else { mac(next(220)) };
            let port = [53, 5050, 8080][next(3) as usize];
            let frame = Frame::new().macs(mac(own), to).ipv4("10.0.0.1", "10.0.0.2");
            testkit::pcap::Record::new(time_ns, frame.udp(1000, port, &i.to_be_bytes()).bytes())
        })
        .collect()
}

#[test]
fn several_workers_switch_as_one_does() {
    let folder = Scratch::new();
    let start = 1_700_000_000_000_000_000;
    testkit::pcap::write_pcap(&folder.join("a.pcap"), &station_frames(15_000, 0, start));
    testkit::pcap::write_pcap(&folder.join("b.pcap"), &station_frames(15_000, 100, start + 7));
    let read = "a={}a.pcap b={}b.pcap";
    let one = written(&folder, SWITCH, read, 1);
    assert_eq!(one.0, Some(0), "{}", one.2);
    let (_, stats) = one.1.iter().find(|(name, _)| name == "stats.json").expect("stats.json");
    let stats: serde_json::Value = serde_json::from_slice(stats).expect("JSON");
    let of = |key: &str| stats["switch"][key].as_u64().expect("a number");
    assert!(of("learned") > 100 && of("moved") > 5 && of("aged") > 20, "{stats}");
    assert!(of("flooded_packets") > 100 && of("copies") > 100, "{stats}");
    for workers in [2, 4] {
        let several = written(&folder, SWITCH, read, workers);
        assert!(!several.2.contains("one worker"), "{}", several.2);
        assert_same(&one, &several, workers);
    }
}

#[test]
fn a_capture_that_ends_within_a_packet_is_named_and_the_rest_delivered() {
    let folder = Scratch::new();
    let path = folder.join("in.pcap");
    testkit::pcap::write_pcap(&path, &many_packets(5_000));
    let whole = std::fs::read(&path).expect("a capture");
    std::fs::write(&path, &whole[..whole.len() - 11]).expect("a capture");
    let one = written(&folder, LIMITED, "{}in.pcap", 1);
    let four = written(&folder, LIMITED, "{}in.pcap", 4);
    assert_same(&one, &four, 4);
    for (status, files, said) in [one, four] {
        assert_eq!(status, Some(1));
        assert!(said.contains("in.pcap: at byte "), "{said}");
        let (_, stats) = files.iter().find(|(name, _)| name == "stats.json").expect("stats.json");
        let stats: serde_json::Value = serde_json::from_slice(stats).expect("JSON");
        assert_eq!(stats["rx_packets"], 4_999);
    }
}

#[test]
fn a_stage_that_needs_one_worker_says_so() {
    let folder = Scratch::new();
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &many_packets(10));
    let config = "mode = \"ndn\"\n[system]\nworkers = 2\n[port.lan]\n[port.wan]\n";
    let output = run(&folder, config, "{}in.pcap");
    assert!(output.status.success(), "{}", errors(&output));
    let said = errors(&output);
    assert!(said.contains("captures are processed by one worker, not 2: stage"), "{said}");
}

/// Two devices, named by the configuration or by the command line, give the bytes of none.
#[test]
fn several_devices_change_nothing_but_who_shades() {
    let folder = Scratch::new();
    std::fs::write(folder.join("in.pcap"), data("ssh-dups.pcap")).expect("a capture");
    let files = || {
        let read = |name: &str| std::fs::read(folder.join("out").join(name)).expect("a file");
        ["lan.pcapng", "wan.pcapng", "dropped.pcapng", "stats.json"].map(read)
    };
    assert!(run(&folder, CONFIG, "lan={}in.pcap").status.success());
    let plain = files();
    let workers = "[system]\nworkers = 2\ncpus = []\n";
    let devices = format!("{CONFIG}{workers}[engine]\ndevices = [\"sim\", \"sim\"]\n");
    let output = run(&folder, &devices, "lan={}in.pcap");
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(plain, files());
    assert!(!folder.join("out/dumped.pcapng").exists());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for device in ["device simulated, 4 slots #0: ", "device simulated, 4 slots #1: "] {
        assert!(said.contains(device), "{said}");
    }
    let both = format!("{CONFIG}[engine]\nbackend = \"cpu\"\ndevices = [\"sim\"]\n");
    let output = run(&folder, &both, "lan={}in.pcap");
    let said = errors(&output);
    assert!(
        !output.status.success() && said.contains("`devices` together with `backend`"),
        "{said}"
    );
}

#[test]
fn a_ttl_that_ends_at_a_flow_is_named() {
    let folder = Scratch::new();
    let flows = folder.write("flows.txt", "ip,actions=mod_nw_ttl:1,dec_ttl,output:wan\n");
    std::fs::write(folder.join("in.pcap"), data("tcp-urgent1.pcap")).expect("a file");
    let config = format!(
        "mode = \"openflow\"\n[stage.openflow]\nflows = [{flows:?}]\n[port.lan]\n[port.wan]\n"
    );
    let output = run(&folder, &config, "lan={}in.pcap");
    assert!(output.status.success(), "{}", errors(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("\nflow_ttl ") && !said.contains("no_controller"), "{said}");
}

/// Each of several switches has its own ports, and those of pipelines without a switch: FLOOD and ALL go to no other ones, and
/// its flows cannot name them.
#[test]
fn switches_of_a_program_have_ports_of_their_own() {
    let folder = Scratch::new();
    std::fs::write(folder.join("in.pcap"), data("tcp-urgent1.pcap")).expect("a file");
    let config = |actions: &str| {
        let flows = folder.write("flows.txt", &format!("actions={actions}\n"));
        format!(
            "mode = \"of_a\"\n[pipeline.of_a]\nstages = [\"a\"]\n[pipeline.of_b]\nstages = [\"b\"]\n\
             [pipeline.plain]\nstages = [\"wire\"]\n\
             [stage.a]\nkind = \"openflow\"\nflows = [{flows:?}]\n[stage.b]\nkind = \"openflow\"\n\
             [port.p1]\n[port.p2]\n[port.p3]\npipeline = \"of_b\"\n[port.p4]\npipeline = \"of_b\"\n\
             [port.p5]\npipeline = \"plain\"\n[port.p6]\npipeline = \"plain\"\n"
        )
    };
    for actions in ["flood", "all", "output:2,output:3,output:4,output:5,output:6"] {
        let _ = std::fs::remove_dir_all(folder.join("out"));
        let output = run(&folder, &config(actions), "p1={}in.pcap");
        assert!(output.status.success(), "{}", errors(&output));
        let sent =
            |port: u32| testkit::pcap::read(&folder.join(&format!("out/p{port}.pcapng"))).len();
        let received = testkit::pcap::read(&folder.join("in.pcap")).len();
        let wanted = [0, received, 0, 0, received, received];
        assert_eq!([1, 2, 3, 4, 5, 6].map(sent), wanted, "{actions}");
    }
    let said = errors(&run(&folder, &config("output:p3"), "p1={}in.pcap"));
    assert!(said.contains("flows.txt:1: column ") && said.contains("`p3`"), "{said}");
}

/// A switch that has no cell for a copy says so.
#[test]
fn copies_of_a_switch_that_are_lost_are_counted() {
    let folder = Scratch::new();
    std::fs::write(folder.join("in.pcap"), data("tcp-urgent1.pcap")).expect("a file");
    let config = |copies: usize| {
        let buckets = |actions: &str, count: usize| format!(",bucket={actions}").repeat(count);
        let text = format!(
            "group_id=1,type=all{}\ngroup_id=2,type=all{}\nactions=group:2\n",
            buckets("output:wan", copies),
            buckets("group:1", 5)
        );
        let flows = folder.write("flows.txt", &text);
        format!(
            "mode = \"openflow\"\n[system]\ncells = 1024\n[stage.openflow]\nflows = [{flows:?}]\n\
             [port.lan]\n[port.wan]\n"
        )
    };
    for (copies, are_lost) in [(4, false), (250, true)] {
        let _ = std::fs::remove_dir_all(folder.join("out"));
        let output = run(&folder, &config(copies), "lan={}in.pcap");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(said.contains(" copies lost for lack of a cell"), are_lost, "{said}");
    }
}

/// `-` is standard input, as for captures; files of the configuration are regular ones, so that nobody waits for a writer.
#[test]
fn flows_come_by_standard_input() {
    use std::io::Write;
    let folder = Scratch::new();
    std::fs::write(folder.join("in.pcap"), data("tcp-urgent1.pcap")).expect("a file");
    let config =
        "mode = \"openflow\"\n[stage.openflow]\nflows = [\"/dev/zero\"]\n[port.lan]\n[port.wan]\n";
    let output = run(&folder, config, "lan={}in.pcap");
    let said = errors(&output);
    assert!(!output.status.success() && said.contains("/dev/zero: not a regular file"), "{said}");
    let config = folder.write("config.toml", &config.replace("\"/dev/zero\"", ""));
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(config).args(["--flows", "-"]);
    command.arg("-r").arg(format!("lan={}", folder.join("in.pcap").display()));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(b"actions=output:wan\n").expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("openflow: 1 flows"), "{said}");
}

/// Packets of a queue leave at its rate, in their order, at the times of the capture; each of them is sent or counted.
#[test]
fn queues_of_a_switch_keep_their_rate() {
    use testkit::frames::Frame;
    const START: u64 = 1_700_000_000_000_000_000;
    let folder = Scratch::new();
    let lines = "udp,tp_dst=53,actions=set_queue:1,output:wan\nudp,tp_dst=80,actions=output:wan\n";
    let flows = folder.write("flows.txt", lines);
    // 8.3 Mbit/s for the queue, for a second; beside them packets that do not wait.
    let record = |i: u32| {
        let (port, len) = if i.is_multiple_of(2) { (53, 1000) } else { (80, 50) };
        let mut payload = vec![0; len];
        payload[..4].copy_from_slice(&i.to_be_bytes());
        let frame = Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(1000, port, &payload);
        testkit::pcap::Record::new(START + u64::from(i) * 500_000, frame.bytes())
    };
    let records: Vec<_> = (0..2000).map(record).collect();
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &records);
    let config = format!(
        "mode = \"openflow\"\n[system]\nworkers = 1\n[stage.openflow]\nflows = [{flows:?}]\n\
         queues = [\"port=wan,queue=1,max_rate=2M,packets=100\"]\n[port.lan]\n[port.wan]\n"
    );
    let one = written(&folder, &config, "lan={}in.pcap", 1);
    assert_eq!(one.0, Some(0), "{}", one.2);
    let sent = testkit::pcap::read(&folder.join("out/wan.pcapng"));
    let number = |record: &testkit::pcap::Record| {
        u32::from_be_bytes(record.data[42..46].try_into().expect("four bytes"))
    };
    let is_queued = |record: &&testkit::pcap::Record| record.data.len() > 500;
    let (queued, others): (Vec<_>, Vec<_>) = sent.iter().partition(is_queued);
    assert_eq!(others.len(), 1000);
    assert!(others.iter().all(|own| own.time_ns == START + u64::from(number(own)) * 500_000));
    // 2 Mbit/s are 240 packets of 1,042 bytes in a second; what the bucket holds and one more come at once.
    assert!((238..=245).contains(&queued.len()), "{}", queued.len());
    assert!(queued.windows(2).all(|pair| number(pair[0]) < number(pair[1])));
    assert!(sent.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    for (at, record) in queued.iter().enumerate() {
        let passed = record.time_ns - START;
        let bits = (at as u64) * 1042 * 8;
        assert!(bits <= 2 * passed / 1000 + 20_000 + 1042 * 8, "{bits} bits after {passed} ns");
    }
    let dropped = testkit::pcap::read(&folder.join("out/dropped.pcapng"));
    let of = |reason: &str| {
        let has = |own: &&testkit::pcap::Record| {
            own.comment.as_ref().is_some_and(|comment| comment.contains(reason))
        };
        dropped.iter().filter(has).count()
    };
    assert_eq!((of("queue_end"), queued.len() + dropped.len()), (100, 1000));
    assert_eq!(of("queue_full") + 100, dropped.len());
    // One worker does it, also where several are wanted, and the same again.
    let several = written(&folder, &config, "lan={}in.pcap", 3);
    assert!(several.2.contains("captures are processed by one worker, not 3"), "{}", several.2);
    assert_same(&one, &several, 3);
}

/// A frame over several cells and the packets after it come out of a tunnel in their order, so the smallest window refuses none.
#[test]
fn long_packets_of_a_tunnel_are_opened_in_their_order() {
    use std::os::unix::fs::PermissionsExt;
    use testkit::frames::Frame;
    let folder = Scratch::new();
    let key = folder.write("key", &format!("{}\n{}\n", "5a".repeat(16), "a5".repeat(20)));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    // Both ends have the same association; one sends what the other receives.
    let end = |own: u8, direction: &str| {
        let other = 3 - own;
        format!(
            "mode = \"router\"\n[router]\nkernel = false\n\
             [port.lan]\nmtu = 9000\naddresses = [\"10.{own}.0.1/16\"]\n\
             [port.wan]\nmac = \"02:00:00:00:00:0{own}\"\nmtu = 9000\naddresses = [\"192.0.2.{own}/24\"]\n\
             [[neighbour]]\nport = \"wan\"\naddress = \"192.0.2.{other}\"\nmac = \"02:00:00:00:00:0{other}\"\n\
             [[neighbour]]\nport = \"lan\"\naddress = \"10.{own}.0.2\"\nmac = \"02:00:00:00:00:09\"\n\
             [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"192.0.2.{other}\"\n\
             [[policy]]\naction = \"protect\"\nreqid = 1\ndestination = \"10.{other}.0.0/16\"\n\
             [[sa]]\ndirection = \"{direction}\"\nspi = 256\nsource = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\n\
             reqid = 1\nwindow = 1\nencryption = \"aes-128-cbc\"\nauthentication = \"hmac-sha1-96\"\nkey_file = {key:?}\n"
        )
    };
    let record = |i: u64| {
        let len = if i.is_multiple_of(7) { 4000 } else { 40 };
        let frame =
            Frame::new().ipv4("10.1.0.2", "10.2.0.2").udp(1000, 2000 + i as u16, &vec![0; len]);
        testkit::pcap::Record::new(1_700_000_000_000_000_000 + i, frame.bytes())
    };
    let records: Vec<_> = (0..50).map(record).collect();
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &records);
    let sealed = run(&folder, &end(1, "out"), "lan={}in.pcap");
    assert!(sealed.status.success(), "{}", errors(&sealed));
    std::fs::rename(folder.join("out/wan.pcapng"), folder.join("esp.pcapng")).expect("a capture");
    let opened = run(&folder, &end(2, "in"), "wan={}esp.pcapng");
    assert!(opened.status.success(), "{}", errors(&opened));
    let sent = testkit::pcap::read(&folder.join("out/lan.pcapng"));
    let ports: Vec<u16> =
        sent.iter().map(|own| u16::from_be_bytes([own.data[36], own.data[37]])).collect();
    assert_eq!(ports, (2000..2050).collect::<Vec<u16>>());
}

/// Through a firewall that accepts everything, packets of NAT64 are those of a router without one: there they become IPv4 at once, and
/// behind a firewall as the last thing. Only numbers that count packets differ.
#[test]
fn a_firewall_changes_nothing_of_nat64() {
    let folder = Scratch::new();
    let case = testkit::repository().join("tests/golden/nat64");
    for name in ["lan.pcap", "wan.pcap"] {
        std::fs::copy(case.join(name), folder.join(name)).expect("a copy");
    }
    let config = std::fs::read_to_string(case.join("config.toml")).expect("a configuration");
    let frames = |more: &str| {
        let output = run(&folder, &format!("{config}\n{more}"), "lan={}lan.pcap wan={}wan.pcap");
        assert!(output.status.success(), "{}", errors(&output));
        ["lan", "wan", "dropped"].map(|name| {
            let path = folder.join("out").join(format!("{name}.pcapng"));
            let mut all: Vec<_> = testkit::pcap::read(&path).into_iter().collect();
            for frame in all.iter_mut().filter(|own| own.data[12..14] == [8, 0]) {
                // Identification and checksum of the header.
                frame.data[18..20].fill(0);
                frame.data[24..26].fill(0);
            }
            all.into_iter().map(|own| (own.time_ns, own.comment, own.data)).collect::<Vec<_>>()
        })
    };
    let expected = frames("");
    assert!(expected.iter().all(|all| all.len() > 5), "{expected:?}");
    assert_eq!(frames("[flow]\n[firewall]\ndefault = \"accept\"\n"), expected);
}

/// Copies captures and keys of a golden case, and runs over them with more arguments; what is written, by name.
fn of_case(
    folder: &Scratch,
    case: &str,
    config: &str,
    more: &[&str],
) -> std::collections::BTreeMap<String, Vec<u8>> {
    use std::os::unix::fs::PermissionsExt;
    for own in
        std::fs::read_dir(testkit::repository().join("tests/golden").join(case)).expect("a case")
    {
        let own = own.expect("a file");
        if own.path().is_file() {
            let path = folder.join(own.file_name().to_str().expect("a name"));
            std::fs::copy(own.path(), &path).expect("a copy");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
                .expect("a mode");
        }
    }
    let (config, out) = (folder.write("config.toml", config), folder.join("out"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(config).arg("-w").arg(&out);
    for port in ["lan", "wan"] {
        command.arg("-r").arg(format!("{port}={}", folder.join(&format!("{port}.pcap")).display()));
    }
    let output = command.args(more).output().expect("the program starts");
    assert!(output.status.success(), "{}", errors(&output));
    let files = std::fs::read_dir(&out).expect("a folder").map(|own| own.expect("a file"));
    let read = |own: std::fs::DirEntry| {
        let name = own.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(own.path()).expect("a file"))
    };
    files.map(read).collect()
}

fn config_of(case: &str) -> String {
    let path = testkit::repository().join("tests/golden").join(case).join("config.toml");
    std::fs::read_to_string(path).expect("a configuration")
}

#[test]
fn a_run_begins_when_it_is_said_to() {
    // The packets are of second 1,700,000,000 and after; five seconds of the association are over later.
    let config =
        config_of("ipsec_path").replacen("reqid = 1\n", "reqid = 1\nhard_seconds = 5\n", 1);
    let sealed = |more: &[&str]| {
        let files = of_case(&Scratch::new(), "ipsec_path", &config, more);
        let stats: serde_json::Value = serde_json::from_slice(&files["stats.json"]).expect("JSON");
        stats["ipsec"]["sealed"].as_u64()
    };
    // The last packet of the association is ten minutes late; the six before it are, too, if it began before.
    assert_eq!(sealed(&[]), Some(16));
    assert_eq!(sealed(&["--now", "1700000000"]), Some(16));
    assert_eq!(sealed(&["--now", "1699999990"]), Some(10));
}

#[test]
fn a_seed_makes_a_run_what_it_is() {
    let config = config_of("nat");
    let written = |more: &[&str]| of_case(&Scratch::new(), "nat", &config, more);
    let first = written(&["--seed", "1"]);
    assert!(first.len() > 2 && first == written(&["--seed", "1"]));
    assert!(first != written(&["--seed", "2"]), "ports are chosen by the seed");
    assert!(written(&[]) == written(&["--seed", "0"]));
}

/// A TCP segment between the ends of a connection, the second one at port 80; its checksum stays wrong.
fn segment(is_back: bool, port: u16, flags: u8, sequence: u32, acknowledges: u32) -> Vec<u8> {
    let (source, destination) = if is_back { (80, port) } else { (port, 80) };
    let frame = Frame::new().tcp(source, destination, sequence, b"");
    let (a, b) = ("10.0.1.2", "10.0.2.2");
    let frame = if is_back { frame.ipv4(b, a) } else { frame.ipv4(a, b) };
    let mut bytes = frame.bytes();
    bytes[42..46].copy_from_slice(&acknowledges.to_be_bytes());
    bytes[47] = flags;
    bytes
}

/// Connections whose first packets of both directions are in one chunk: a firewall on states decides as if they had come one by
/// one, in their order, whatever the chunk and the workers.
#[test]
fn both_directions_of_a_flow_begin_in_one_chunk() {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    const RST: u8 = 0x04;
    let (mut ins, mut outs, mut time_ns) = ([vec![], vec![]], [vec![], vec![]], 1_000_000_000_000);
    let mut put = |is_back: bool, frame: Vec<u8>, passes: bool| {
        time_ns += 1_000;
        ins[usize::from(is_back)].push(Record::new(time_ns, frame.clone()));
        if passes {
            outs[usize::from(!is_back)].push(frame);
        }
    };
    for n in 0..40 {
        // Opened by the side that may, and answered.
        let port = 20_000 + n;
        put(false, segment(false, port, SYN, 100, 0), true);
        put(true, segment(true, port, SYN | ACK, 500, 101), true);
        put(false, segment(false, port, ACK, 101, 501), true);
        let ask = Frame::new().udp(port, 53, b"a question");
        put(false, ask.bytes(), true);
        let answer = Frame::new().ipv4("10.0.2.2", "10.0.1.2").udp(53, port, b"an answer");
        put(true, answer.bytes(), true);
        // Opened by both at once.
        let port = 30_000 + n;
        put(false, segment(false, port, SYN, 100, 0), true);
        put(true, segment(true, port, SYN, 500, 0), true);
        put(false, segment(false, port, SYN | ACK, 100, 501), true);
        put(true, segment(true, port, SYN | ACK, 500, 101), true);
        // The other side opens first, which it may not; then the first one does; the refused SYN again is part of that.
        let port = 40_000 + n;
        put(true, segment(true, port, SYN, 500, 0), false);
        put(false, segment(false, port, RST | ACK, 0, 501), false);
        put(false, segment(false, port, SYN, 100, 0), true);
        put(true, segment(true, port, SYN, 500, 0), true);
    }
    for (workers, chunk) in [(1, 256), (1, 8), (2, 256), (4, 64)] {
        let folder = Scratch::new();
        write_pcap(&folder.join("a.pcap"), &ins[0]);
        write_pcap(&folder.join("b.pcap"), &ins[1]);
        let config = format!(
            "mode = \"wire\"\n[system]\nworkers = {workers}\n[engine]\nchunk = {chunk}\n\
             [port.a]\nchecksums = \"ignore\"\n[port.b]\nchecksums = \"ignore\"\n[flow]\n\
             [firewall]\ndefault = \"drop\"\n\
             [[rule]]\nstate = \"established,related\"\naction = \"accept\"\n\
             [[rule]]\nin = \"a\"\nstate = \"new\"\naction = \"accept\"\n"
        );
        let output = run(&folder, &config, "a={}a.pcap b={}b.pcap");
        assert!(output.status.success(), "{}", errors(&output));
        for (port, expected) in ["a", "b"].iter().zip(&outs) {
            let found = read(&folder.join(&format!("out/{port}.pcapng")));
            let found: Vec<&[u8]> = found.iter().map(|own| own.data.as_slice()).collect();
            assert!(found == *expected, "{port}, {workers} workers, chunks of {chunk}");
        }
    }
}
