//! Hosts and routers in network namespaces, joined by veth pairs.
//!
//! ```text
//!   left ──────────────── router ──────────────── right
//!   eth0            left ┆        ┆ right          eth0
//!   10.0.1.2/24    10.0.1.1      10.0.2.1   10.0.2.2/24
//!   fd00:1::2/64   fd00:1::1     fd00:2::1  fd00:2::2/64
//! ```
//!
//! A namespace is called `sl-PURPOSE-PID-N`. It goes when its value is dropped; those of a run that crashed go
//! when the next run makes its first. Both ends of a pair are created inside namespaces: the machine's own
//! network is never touched. Offloads are off where a test does not ask for them ([`Offloads`]): then all that passes is
//! as on a wire, with real checksums and no frame larger than the MTU.

use std::fmt;
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::Process;

/// A network namespace of the test's own.
pub struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace with its loopback up. `purpose` is a short word for people who list namespaces.
    ///
    /// # Panics
    /// Where it cannot be made; ask [`crate::require_namespaces`] first.
    pub fn new(purpose: &str) -> Netns {
        static CLEANED: Once = Once::new();
        CLEANED.call_once(clean);
        let name = format!("sl-{purpose}-{}-{}", std::process::id(), next_number());
        ip(&["netns", "add", &name]);
        let netns = Netns { name };
        netns.ip("link set lo up");
        netns
    }

    /// Its name, for `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs a program in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a command line (split at spaces) to its end.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn try_run(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or("true");
        let output = self.command(program).args(words).output();
        output.unwrap_or_else(|error| panic!("{self}: {line}: {error}"))
    }

    /// Runs a command line that must succeed; its standard output.
    ///
    /// # Panics
    /// Where it fails, with all that it printed.
    pub fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            panic!("{self}: {line}: {}\n{text}{errors}", output.status);
        }
        text
    }

    /// `ip LINE` in it, which must succeed.
    pub fn ip(&self, line: &str) -> String {
        let mut args = vec!["-n", &self.name];
        args.extend(line.split_whitespace());
        ip(&args)
    }

    /// Starts a command line in the background.
    pub fn spawn(&self, line: &str) -> Process {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap_or("true"));
        command.args(words);
        Process::spawn(command)
    }

    /// Writes to a file below `/proc/sys`, as the namespace sees it.
    pub fn sysctl(&self, name: &str, value: &str) {
        self.shell(&format!("echo {value} > /proc/sys/{}", name.replace('.', "/")));
    }

    /// Runs a shell script in it that must succeed; its standard output.
    ///
    /// # Panics
    /// Where it fails.
    pub fn shell(&self, script: &str) -> String {
        let output = self.command("sh").args(["-ec", script]).output();
        let output = output.unwrap_or_else(|error| panic!("{self}: sh: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{self}: {script}: {}\n{text}{errors}", output.status);
        text
    }

    /// A UDP socket in it, which waits a fifth of a second for a datagram.
    ///
    /// # Panics
    /// The address is not there, or in use.
    pub fn udp(&self, at: &str) -> UdpSocket {
        let place = File::open(format!("/run/netns/{}", self.name)).expect("a namespace");
        let open = || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(place.as_fd(), network).expect("enter a namespace");
            UdpSocket::bind(at).unwrap_or_else(|error| panic!("{self}: {at}: {error}"))
        };
        // A thread is in a namespace.
        let socket = std::thread::scope(|scope| scope.spawn(open).join()).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time limit");
        socket
    }

    /// Gives an interface an address, usable at once, and brings it up.
    pub fn address(&self, interface: &str, address: &str) {
        // Duplicate detection would hold an IPv6 address back for a second.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        self.ip(&format!("addr add {address} dev {interface}{nodad}"));
        self.ip(&format!("link set {interface} up"));
    }

    /// Received packets and bytes of an interface, from the kernel's counters.
    pub fn received(&self, interface: &str) -> (u64, u64) {
        let number = |name: &str| {
            let text = self.shell(&format!("cat /sys/class/net/{interface}/statistics/{name}"));
            text.trim().parse().unwrap_or_else(|_| panic!("{interface} {name}: {text}"))
        };
        (number("rx_packets"), number("rx_bytes"))
    }
}

impl fmt::Display for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// What the ends of a veth pair leave to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// Nothing.
    Off,
    /// Checksums and segmentation, as on every veth pair that nobody has touched.
    Default,
}

/// Joins two namespaces by a veth pair: `(namespace, interface name, MAC)` twice. Offloads are off; the ends
/// are up.
pub fn veth(a: (&Netns, &str, &str), b: (&Netns, &str, &str), mtu: u32) {
    veth_with(a, b, mtu, Offloads::Off);
}

/// [`veth`] with or without offloads.
pub fn veth_with(a: (&Netns, &str, &str), b: (&Netns, &str, &str), mtu: u32, offloads: Offloads) {
    let mtu_text = mtu.to_string();
    let line = [
        "link",
        "add",
        "name",
        a.1,
        "mtu",
        &mtu_text,
        "address",
        a.2,
        "netns",
        a.0.name(),
        "type",
        "veth",
        "peer",
        "name",
        b.1,
        "mtu",
        &mtu_text,
        "address",
        b.2,
        "netns",
        b.0.name(),
    ];
    ip(&line);
    for (netns, interface, _) in [a, b] {
        if offloads == Offloads::Off {
            netns.run(&format!("ethtool -K {interface} tx off rx off tso off gso off gro off"));
        }
        netns.ip(&format!("link set {interface} up"));
    }
}

/// Host – router – host, as drawn above.
pub struct Topology {
    /// The host on the left, interface `eth0`.
    pub left: Netns,
    /// The router, interfaces `left` and `right`.
    pub router: Netns,
    /// The host on the right, interface `eth0`.
    pub right: Netns,
}

/// MACs of the topology's interfaces.
pub mod mac {
    /// The left host's.
    pub const LEFT: &str = "02:00:00:00:01:02";
    /// The router's, towards the left.
    pub const ROUTER_LEFT: &str = "02:00:00:00:01:01";
    /// The router's, towards the right.
    pub const ROUTER_RIGHT: &str = "02:00:00:00:02:01";
    /// The right host's.
    pub const RIGHT: &str = "02:00:00:00:02:02";
}

impl Topology {
    /// Hosts with addresses and default routes; the router's interfaces are up and bare, for the program to
    /// take over.
    pub fn new(purpose: &str) -> Topology {
        Topology::with_mtu(purpose, 1500, 1500)
    }

    /// The same with the MTU of each side.
    pub fn with_mtu(purpose: &str, left_mtu: u32, right_mtu: u32) -> Topology {
        Topology::with(purpose, left_mtu, right_mtu, Offloads::Off)
    }

    /// The same with or without offloads.
    pub fn with(purpose: &str, left_mtu: u32, right_mtu: u32, offloads: Offloads) -> Topology {
        let left = Netns::new(purpose);
        let router = Netns::new(purpose);
        let right = Netns::new(purpose);
        let ends = ((&left, "eth0", mac::LEFT), (&router, "left", mac::ROUTER_LEFT));
        veth_with(ends.0, ends.1, left_mtu, offloads);
        let ends = ((&right, "eth0", mac::RIGHT), (&router, "right", mac::ROUTER_RIGHT));
        veth_with(ends.0, ends.1, right_mtu, offloads);
        for (host, number) in [(&left, 1), (&right, 2)] {
            host.address("eth0", &format!("10.0.{number}.2/24"));
            host.address("eth0", &format!("fd00:{number}::2/64"));
            host.ip(&format!("route add default via 10.0.{number}.1"));
            host.ip(&format!("-6 route add default via fd00:{number}::1"));
        }
        Topology { left, router, right }
    }

    /// Lets the kernel route instead of the program: addresses and forwarding on. The reference for tests of
    /// the tests.
    pub fn kernel_routes(&self) {
        for (interface, number) in [("left", 1), ("right", 2)] {
            self.router.address(interface, &format!("10.0.{number}.1/24"));
            self.router.address(interface, &format!("fd00:{number}::1/64"));
        }
        self.router.sysctl("net.ipv4.ip_forward", "1");
        self.router.sysctl("net.ipv6.conf.all.forwarding", "1");
    }
}

pub(crate) fn next_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output();
    let output = output.unwrap_or_else(|error| panic!("ip: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {errors}", args.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Ends what runs in a namespace and removes it, and its interfaces with it.
fn remove(name: &str) {
    // Half-removed is as far as this can go; the next run tries again.
    if let Ok(output) = Command::new("ip").args(["netns", "pids", name]).output() {
        for pid in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
    let _ = Command::new("ip").args(["netns", "del", name]).output();
}

/// Removes namespaces whose process is gone.
fn clean() {
    let Ok(output) = Command::new("ip").args(["netns", "list"]).output() else { return };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if owner(name).is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            remove(name);
        }
    }
}

/// The process id in `sl-PURPOSE-PID-N`.
fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("sl-")?.rsplit('-');
    parts.next()?.parse::<u32>().ok()?;
    parts.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_process() {
        assert_eq!(owner("sl-net-123-4"), Some(123));
        assert_eq!(owner("sl-a-b-123-4"), Some(123));
        assert_eq!(owner("sl-mine"), None);
        assert_eq!(owner("other-123-4"), None);
    }

    #[test]
    fn what_a_crashed_run_left_behind_goes() {
        if !crate::require_namespaces() {
            return;
        }
        // Above the largest process id that Linux gives out.
        let stale = "sl-crash-4194305-1";
        ip(&["netns", "add", stale]);
        clean();
        assert!(!ip(&["netns", "list"]).contains(stale));
    }

    #[test]
    fn hosts_reach_each_other_over_a_kernel_router() {
        if !crate::require_namespaces() || crate::require_tool("ping").is_none() {
            return;
        }
        let topology = Topology::new("testkit");
        topology.kernel_routes();
        topology.left.run("ping -c 1 -W 5 10.0.2.2");
        topology.left.run("ping -c 1 -W 5 fd00:2::2");
        assert!(topology.right.received("eth0").0 >= 2);
        let name = topology.left.name().to_string();
        drop(topology);
        assert!(!ip(&["netns", "list"]).contains(&name));
    }
}
