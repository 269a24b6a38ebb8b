//! Three hosts in namespaces, joined by veth pairs: sender, router, receiver. Root only.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A row of three namespaces; gone when dropped.
pub(crate) struct Hosts {
    tag: String,
}

/// Where commands run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Host {
    Sender,
    Router,
    Receiver,
}

impl Hosts {
    /// Makes them: `in` and `out` are the router's interfaces, `eth` those of the others.
    ///
    /// # Errors
    /// The command that failed, with what it said; or that this needs root.
    pub(crate) fn new() -> Result<Self, String> {
        let hosts = Self { tag: format!("sl-bench-{}", std::process::id()) };
        for host in [Host::Sender, Host::Router, Host::Receiver] {
            ip(&["netns", "add", &hosts.name(host)])?;
            ip(&["-n", &hosts.name(host), "link", "set", "lo", "up"])?;
        }
        let pairs = [(Host::Sender, "in"), (Host::Receiver, "out")];
        for (far, near) in pairs {
            let (far, router) = (hosts.name(far), hosts.name(Host::Router));
            ip(&[
                "link", "add", "eth", "netns", &far, "type", "veth", "peer", "name", near, "netns",
                &router,
            ])?;
            for (namespace, link) in [(&far, "eth"), (&router, near)] {
                let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
                let mut ethtool = vec!["netns", "exec", namespace, "ethtool", "-K", link];
                ethtool.extend(off);
                ip(&ethtool)?;
                ip(&["-n", namespace, "link", "set", link, "up"])?;
            }
        }
        Ok(hosts)
    }

    fn name(&self, host: Host) -> String {
        let host = match host {
            Host::Sender => "a",
            Host::Router => "r",
            Host::Receiver => "b",
        };
        format!("{}-{host}", self.tag)
    }

    /// A command there, with this very program.
    pub(crate) fn own(&self, host: Host, args: &[String]) -> Result<Command, String> {
        let program: PathBuf = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(host)]).arg(program).args(args);
        Ok(command)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [Host::Sender, Host::Router, Host::Receiver] {
            let _ = ip(&["netns", "del", &self.name(host)]);
        }
    }
}

/// A process that is killed when dropped.
pub(crate) struct Background(pub(crate) Child);

impl Background {
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Background).map_err(|e| e.to_string())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {} (this needs root)", args.join(" "), said.trim()))
}
