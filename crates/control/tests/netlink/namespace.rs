//! A network namespace for one test.

use std::{
    fs::File,
    io::Write,
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
pub(crate) use testkit::skip;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Exists, and the calling thread is in it, until dropped. Programs and sockets that the thread
/// starts are in it too.
pub(crate) struct Namespace {
    pub(crate) name: String,
    outside: File,
}

impl Namespace {
    /// `None` (and a printed skip) without root or iproute2.
    pub(crate) fn enter() -> Option<Namespace> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sl-control-{}-{number}", std::process::id());
        let added = Command::new("ip").args(["netns", "add", &name]).stderr(Stdio::null()).status();
        if !added.is_ok_and(|status| status.success()) {
            skip("making a network namespace needs root and iproute2");
            return None;
        }
        let outside = File::open("/proc/thread-self/ns/net").unwrap();
        let inside = File::open(format!("/run/netns/{name}")).unwrap();
        let namespace = Namespace { name, outside };
        move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        run("ip link set lo up");
        Some(namespace)
    }
}

impl Namespace {
    /// A second namespace beside this one, entered by nobody.
    pub(crate) fn beside(&self) -> Beside {
        let name = format!("{}-b", self.name);
        run(&format!("ip netns add {name}"));
        run(&format!("ip -n {name} link set lo up"));
        Beside(name)
    }
}

/// The name of a second namespace; it goes when this does.
pub(crate) struct Beside(String);

impl std::fmt::Display for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let network = Some(LinkNameSpaceType::Network);
        let back = move_into_link_name_space(self.outside.as_fd(), network);
        let deleted = Command::new("ip").args(["netns", "del", &self.name]).status();
        if !std::thread::panicking() {
            back.unwrap();
            assert!(deleted.unwrap().success());
        }
    }
}

/// Runs a program with arguments that hold no spaces; it must succeed. Returns its output.
pub(crate) fn run(line: &str) -> String {
    let (ok, out, err) = attempt(line);
    assert!(ok, "`{line}` failed: {err}");
    out
}

/// As [`run`], but may fail: success, output, error output.
pub(crate) fn attempt(line: &str) -> (bool, String, String) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Feeds lines to `ip -batch -`; `force` goes on after refused ones.
pub(crate) fn ip_batch(lines: &str, force: bool) {
    let mut command = Command::new("ip");
    command.args(if force { &["-force", "-batch", "-"][..] } else { &["-batch", "-"] });
    let mut child =
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(force || output.status.success(), "ip -batch: {error}");
}
