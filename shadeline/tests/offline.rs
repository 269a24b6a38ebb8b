//! `shadeline run -r`, as a user calls it; what it writes is judged by tests/golden.

use std::process::{Command, Output};

use testkit::Scratch;

const CONFIG: &str = "mode = \"router\"\n\
    [port.lan]\naddresses = [\"192.0.2.1/24\"]\n\
    [port.wan]\naddresses = [\"198.51.100.1/24\"]\n\
    [port.\"wan.7\"]\nparent = \"wan\"\nvlan = 7\n\
    [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n";

/// Runs over `read`, of which `{}` is the scratch folder.
fn run(folder: &Scratch, config: &str, read: &str) -> Output {
    let config = folder.write("config.toml", config);
    let read = read.replace("{}", &folder.join("").display().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(config).arg("-r").arg(read).arg("-w").arg(folder.join("out"));
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
fn input_that_is_missing_is_named_and_nothing_is_made() {
    let folder = Scratch::new();
    std::fs::create_dir_all(folder.join("none")).expect("a folder");
    for (read, expected) in [
        ("{}none", "none: no capture in this folder"),
        ("{}absent.pcap", "absent.pcap: No such file"),
        ("wan.7={}x.pcap", "`wan.7` is a subinterface: its packets come in by `wan`"),
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
