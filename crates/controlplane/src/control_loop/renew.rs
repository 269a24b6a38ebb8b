//! Ports whose network interface was replaced by another one of the same name, as when a container is started again.
//!
//! ```text
//!  interface removed ─▶ port is gone ─▶ another one has its name ─▶ quiet for a moment ─▶ port closes and opens
//! ```
//!
//! Sockets and programs belong to an interface, not to its name, so the port is opened anew, with its twin and those of its
//! subinterfaces. Packets of all other ports flow on, as in a reload.

use std::time::{Duration, Instant};

use control::kernel::Link;
use io::link;

use super::ControlLoop;
use super::builds::Target;
use super::reload::NotApplied;

/// An interface that appears is renamed, moved and switched on. So long must it have been quiet before its port is opened.
const QUIET: Duration = Duration::from_millis(100);

/// How long after a failure it is tried again: twice as long each time, up to the second value.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A port that is to be opened anew.
pub(super) struct Replaced {
    port: usize,
    at: Instant,
    /// How long after the next failure it is tried again.
    pause: Duration,
    /// The interface on which it failed.
    tried: Option<u32>,
    /// Why it failed, as was logged.
    logged: String,
}

impl Replaced {
    fn new(port: usize, at: Instant) -> Self {
        Self { port, at, pause: AGAIN, tried: None, logged: String::new() }
    }
}

impl ControlLoop {
    /// An interface of the system, which is no twin, appeared or changed.
    pub(super) fn link_changed(&mut self, link: &Link) {
        if let Some(port) = self.port_on(link.ifindex) {
            self.follow_mtu(port, link.mtu_bytes);
            // A cable that is pulled is as good as an interface that is switched off.
            self.set_link(port, link.up && link.carrier);
        }
        let Some(port) = self.port_named(&link.name) else { return };
        if self.facts[port].index == Some(link.ifindex) {
            return;
        }
        let (at, index) = (Instant::now() + QUIET, Some(link.ifindex));
        match self.replaced.iter_mut().find(|replaced| replaced.port == port) {
            // A try itself changes the interface: that is no reason for the next.
            Some(replaced) if replaced.tried == index => {}
            Some(replaced) => *replaced = Replaced::new(port, at),
            None => self.replaced.push(Replaced::new(port, at)),
        }
    }

    /// What becomes of a port that is closed.
    pub(super) fn stays_closed(&self, port: usize) -> &'static str {
        match self.links[port].is_some() && self.closed[port] {
            true => "it is tried again",
            false => "it stays closed until a reload opens it",
        }
    }

    /// Opening a port failed: it is tried again, if it has a network interface.
    pub(super) fn try_again(&mut self, port: usize, error: String) {
        let Some(name) = self.links[port].as_ref().filter(|_| self.closed[port]) else { return };
        if self.replaced.iter().any(|replaced| replaced.port == port) {
            return;
        }
        let (at, tried) = (Instant::now() + AGAIN, link::index_of(name));
        self.replaced.push(Replaced { port, at, pause: AGAIN * 2, tried, logged: error });
    }

    /// An interface of the system is no more.
    pub(super) fn link_removed(&mut self, ifindex: u32) {
        let Some(port) = self.port_on(ifindex) else { return };
        self.facts[port].index = None;
        let Some(name) = &self.links[port] else {
            // A TAP that went to another namespace works on, and its state cannot be seen from here. Of one that was removed its
            // queues say so.
            self.set_link(port, true);
            return;
        };
        tracing::warn!("port {}: {name} is gone", self.interfaces.name(port as u16));
        self.statistics.set_gone(port as u16, true);
        self.set_link(port, false);
    }

    /// The port that was opened on this interface.
    fn port_on(&self, ifindex: u32) -> Option<usize> {
        self.facts.iter().position(|facts| facts.index == Some(ifindex))
    }

    /// How long the loop may wait for ports that are to be opened anew.
    pub(super) fn until_renewal(&self) -> Duration {
        // The end of a build is an event.
        if self.replaced.is_empty() || self.builds.holds(Target::All) {
            return Duration::MAX;
        }
        let now = Instant::now();
        let waits = self.replaced.iter().map(|replaced| replaced.at.saturating_duration_since(now));
        waits.min().unwrap_or(Duration::MAX)
    }

    /// Opens the ports anew whose interfaces have been replaced.
    pub(super) fn renew(&mut self) {
        // What is being built belongs to the ports as they are; without ports to renew this costs nothing.
        if self.replaced.is_empty() || self.builds.holds(Target::All) {
            return;
        }
        for mut replaced in std::mem::take(&mut self.replaced) {
            if replaced.at > Instant::now() {
                self.replaced.push(replaced);
                continue;
            }
            let Err(why) = self.renew_port(replaced.port) else { continue };
            if let NotApplied::Refused(error) = why
                && error != replaced.logged
            {
                tracing::error!("{error}; {}", self.stays_closed(replaced.port));
                replaced.logged = error;
            }
            let name = self.links[replaced.port].as_deref();
            replaced.tried = name.and_then(link::index_of);
            replaced.at = Instant::now() + replaced.pause;
            replaced.pause = (replaced.pause * 2).min(AGAIN_MAX);
            self.replaced.push(replaced);
        }
    }

    /// An error: it is to be tried again.
    fn renew_port(&mut self, port: usize) -> Result<(), NotApplied> {
        // Something else may have come: a reload without this port, or one that has opened it; or the interface is gone again.
        let Some(name) = self.links.get(port).cloned().flatten() else { return Ok(()) };
        let index = link::index_of(&name);
        if index.is_none() || index == self.facts[port].index {
            return Ok(());
        }
        let is_over = |n: &u16| self.port_under(*n) == port;
        let numbers: Vec<u16> = self.interfaces.numbers().filter(is_over).collect();
        let is_open = |n: &u16| !self.closed[usize::from(*n)];
        let open: Vec<u16> = numbers.iter().copied().filter(is_open).collect();
        if !open.is_empty() {
            self.close(&open)?;
        }
        // Queues of ours that are busy are those of another interface.
        if let Some((_, error)) = self.reopen(&numbers, false).pop() {
            return Err(error.into());
        }
        self.refresh_links();
        let record = &self.records[port];
        tracing::info!(
            "port {}: opened on the new {name}, MAC {}, MTU {}",
            self.interfaces.name(port as u16),
            crate::interfaces::mac_text(record.mac),
            record.mtu
        );
        Ok(())
    }
}
