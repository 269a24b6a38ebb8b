//! A router that follows the flows that it forwards, live.

mod common;

use std::time::Duration;

use common::{Live, SOON, config, ping};
use serde_json::Value;
use testkit::netns::Offloads;
use testkit::{Scratch, wait_until};

#[test]
fn a_router_shows_and_reports_the_flows_that_it_forwards() {
    if ["python3", "nfcapd"].iter().any(|tool| testkit::require_tool(tool).is_none()) {
        return;
    }
    let text = |scratch: &Scratch| {
        let events = scratch.join("eve.json").display().to_string();
        let more = format!(
            "[flow]\nevents = \"{events}\"\nicmp = \"1s\"\ntcp_time_wait = \"1s\"\ntcp_close = \"1s\"\n\
             active = \"1s\"\n\
             ipfix = \"udp:10.0.2.2:4739\"\n"
        );
        config(scratch, "af_packet", &more)
    };
    let Some(live) = Live::of("flows", text, (1500, 1500), Offloads::Off) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    let folder = live.scratch.join("nfcapd");
    std::fs::create_dir(&folder).unwrap();
    let collector = format!("nfcapd -4 -b 10.0.2.2 -p 4739 -t 3600 -w {}", folder.display());
    let mut collector = right.spawn(&collector);
    let server = live.scratch.write(
        "server.py",
        "import socket\n\
         s = socket.create_server(('10.0.2.2', 7007)); c, _ = s.accept()\n\
         while c.recv(65536): pass\n\
         c.sendall(b'done'); c.close()\n",
    );
    let client = live.scratch.write(
        "client.py",
        "import socket, sys, time\n\
         s = socket.create_connection(('10.0.2.2', 7007), 5); s.sendall(b'x' * 300000)\n\
         time.sleep(2); s.shutdown(socket.SHUT_WR); assert s.recv(9) == b'done'; s.close()\n",
    );
    let mut server = right.spawn(&format!("python3 {}", server.display()));
    std::thread::sleep(Duration::from_millis(500));
    let mut client = left.spawn(&format!("python3 {}", client.display()));
    // While it lasts.
    let shown = || live.ctl("show flows --port 7007 --state established");
    assert!(wait_until(SOON, || shown().contains("10.0.2.2:7007")), "{}", live.ctl("show flows"));
    let top =
        || -> Value { serde_json::from_str(&live.ctl("show flows --top 1 --json")).expect("JSON") };
    let is_all = || top()[0]["client_bytes"].as_u64().is_some_and(|bytes| bytes > 300_000);
    assert!(wait_until(SOON, is_all), "{}", top());
    let row = &top()[0];
    assert_eq!((&row["proto"], &row["server"]), (&"tcp".into(), &"10.0.2.2:7007".into()), "{row}");
    assert!(live.ctl("show flows --address 10.9.0.0/16").contains("no flows"));
    let summary = live.ctl("show flows --summary");
    assert!(
        summary.lines().any(|line| line.starts_with("tcp") && line.contains("established")),
        "{summary}"
    );
    let most = live.ctl("flows top --once --interval 0.2");
    assert!(most.contains("Flows (") && most.contains("10.0.2.2:7007"), "{most}");
    let none = live.ctl("show flows --within 1ns --json");
    assert_eq!(none.trim(), "[]");
    assert!(live.try_ctl("show flows --state odd").1.contains("established"));
    for proto in ["tcp", "TCP", "6"] {
        assert!(live.ctl(&format!("show flows --proto {proto}")).contains("10.0.2.2:7007"));
    }
    assert!(!live.ctl("show flows --proto udp").contains("10.0.2.2:7007"));
    assert!(live.try_ctl("show flows --proto tpc").1.contains("icmp, igmp, tcp, udp"));
    let (status, said) = client.wait(SOON);
    assert!(status.success(), "{said}");
    server.wait(SOON);

    // Events of flows that have ended, the file moved away in between.
    let file = live.scratch.join("eve.json");
    let events = |path: &std::path::Path| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let closed = || events(&file).into_iter().find(|event| event["dest_port"] == 7007);
    assert!(wait_until(Duration::from_secs(15), || closed().is_some()), "{:?}", events(&file));
    let event = closed().unwrap();
    assert_eq!(event["flow"]["state"], "closed", "{event}");
    assert!(event["flow"]["bytes_toserver"].as_u64().unwrap() > 300_000, "{event}");
    let old = live.scratch.join("eve.json.1");
    std::fs::rename(&file, &old).unwrap();
    live.ctl("reload");
    assert_eq!(ping(left, "10.0.2.2", 1), 1);
    let icmp = || events(&file).iter().any(|event| event["proto"] == "ICMP");
    assert!(wait_until(Duration::from_secs(15), icmp), "{:?}", events(&file));
    // What the engine follows goes on over a reload that changes ports.
    let flows = live.ctl("show runtime");
    assert!(flows.contains("flow memory") && flows.contains("udp:10.0.2.2:4739: "), "{flows}");
    // The collector has the connection from the client, in more than one record.
    let records = || -> Vec<Value> {
        let output =
            std::process::Command::new("nfdump").args(["-o", "json", "-R"]).arg(&folder).output();
        serde_json::from_slice(&output.unwrap().stdout).unwrap_or_default()
    };
    std::thread::sleep(Duration::from_secs(2));
    let (_, log) = collector.stop(testkit::process::Stop::Terminate, SOON);
    let records: Vec<Value> = records().into_iter().filter(|own| own["dst_port"] == 7007).collect();
    assert!(records.len() > 1, "{records:?} {log}");
    let packets: u64 = records.iter().map(|own| own["in_packets"].as_u64().unwrap()).sum();
    assert_eq!(Some(packets), event["flow"]["pkts_toserver"].as_u64(), "{records:?} {log}");
}
