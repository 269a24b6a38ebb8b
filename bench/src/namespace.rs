//! Three hosts in namespaces, joined by veth pairs: sender, router, receiver. Root only.

use std::ffi::OsStr;
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
        let hosts = Self::with_offloads()?;
        for (host, link) in [
            (Host::Sender, "eth"),
            (Host::Receiver, "eth"),
            (Host::Router, "in"),
            (Host::Router, "out"),
        ] {
            hosts.shell(host, &format!("ethtool -K {link} tx off tso off gso off gro off"))?;
        }
        Ok(hosts)
    }

    /// The same with the offloads that veth pairs have by default.
    ///
    /// # Errors
    /// As for [`Hosts::new`].
    pub(crate) fn with_offloads() -> Result<Self, String> {
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
        let mut command = self.command(host, program);
        command.args(args);
        Ok(command)
    }

    /// A command there.
    pub(crate) fn command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(host)]).arg(program);
        command
    }

    /// Runs a script there to its end.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub(crate) fn shell(&self, host: Host, script: &str) -> Result<(), String> {
        ip(&["netns", "exec", &self.name(host), "sh", "-ec", script])
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
