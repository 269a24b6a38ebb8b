//! An OpenFlow switch between two hosts, for the tests among real programs.

#![allow(dead_code, reason = "each test program uses a part")]

use std::process::Command;
use std::time::Duration;

use testkit::netns::{Netns, veth};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

use crate::common::{SOON, ping};

/// The tool, with its version of the protocol.
pub(crate) const OFCTL: &str = "ovs-ofctl --timeout=10 -O OpenFlow13";
/// Where the switch listens.
pub(crate) const SWITCH: &str = "tcp:127.0.0.1:6653";

/// Two hosts, each with one link to the switch, and the program on the switch.
pub(crate) struct Live {
    pub(crate) hosts: [Netns; 2],
    pub(crate) switch: Netns,
    pub(crate) program: Process,
    pub(crate) scratch: Scratch,
    pub(crate) bin: std::path::PathBuf,
}

impl Live {
    /// `None`, and the test is skipped, where namespaces, the program or the tool are missing.
    pub(crate) fn start(purpose: &str, tool: &str, more: &str) -> Option<Live> {
        if !testkit::require_namespaces() {
            return None;
        }
        if Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: no {tool}");
            return None;
        }
        let bin = testkit::shadeline_bin()?;
        let switch = Netns::new(purpose);
        switch.ip("link set lo up");
        let hosts = [0, 1].map(|i| {
            let host = Netns::new(purpose);
            let own = format!("02:00:00:00:0b:{i:02x}");
            let mac = format!("02:00:00:00:0a:{i:02x}");
            veth((&host, "eth0", &mac), (&switch, ["p1", "p2"][i], &own), 1500);
            host.address("eth0", &format!("10.0.0.{}/24", i + 1));
            host
        });
        let scratch = Scratch::new();
        let socket = scratch.join("ctl.sock");
        let config = format!(
            "mode = \"openflow\"\n[system]\nsocket = {socket:?}\n\
             [port.p1]\nbackend = \"af_packet\"\n[port.p2]\nbackend = \"af_packet\"\n\
             [stage.openflow]\nlisten = [\"{SWITCH}\"]\n{more}"
        );
        let path = scratch.write("switch.toml", &config);
        let mut program = switch.spawn(&format!("{} run {}", bin.display(), path.display()));
        program.wait_for("running: ", SOON);
        Some(Live { hosts, switch, program, scratch, bin })
    }

    /// `ctl` with these words: what it prints.
    pub(crate) fn ctl(&self, words: &str) -> String {
        let socket = self.scratch.join("ctl.sock");
        self.switch.run(&format!(
            "{} ctl --socket {} {words}",
            self.bin.display(),
            socket.display()
        ))
    }

    /// Whether the hosts reach each other within a time.
    pub(crate) fn pings(&self, within: Duration) -> bool {
        wait_until(within, || ping(&self.hosts[0], "10.0.0.2", 1) == 1)
    }

    /// What ovs-ofctl prints for a command of the switch.
    pub(crate) fn ofctl(&self, command: &str, args: &str) -> String {
        self.switch.run(&format!("{OFCTL} {command} {SWITCH} {args}"))
    }

    /// Ends the switch, which must end well.
    pub(crate) fn stop(mut self) {
        let (status, output) = self.program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "the switch ended with {status}\n{output}");
    }
}
