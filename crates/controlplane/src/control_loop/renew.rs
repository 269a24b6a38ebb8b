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

/// An interface that appears is renamed, moved and switched on. So long must it have been quiet before its port is opened.
const QUIET: Duration = Duration::from_millis(100);

/// How long after a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A port that is to be opened anew.
pub(super) struct Replaced {
    port: usize,
    at: Instant,
    /// Its queues are closed, and opening it failed.
    is_closed: bool,
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
        let at = Instant::now() + QUIET;
        match self.replaced.iter_mut().find(|replaced| replaced.port == port) {
            Some(replaced) => replaced.at = at,
            None => self.replaced.push(Replaced { port, at, is_closed: false }),
        }
    }

    /// An interface of the system is no more.
    pub(super) fn link_removed(&mut self, ifindex: u32) {
        let Some(port) = self.port_on(ifindex) else { return };
        let name = self.links[port].clone().unwrap_or_default();
        tracing::warn!("port {}: {name} is gone", self.interfaces.name(port as u16));
        self.facts[port].index = None;
        self.statistics.set_gone(port as u16, true);
        self.set_link(port, false);
    }

    /// The port that was opened on this interface.
    fn port_on(&self, ifindex: u32) -> Option<usize> {
        self.facts.iter().position(|facts| facts.index == Some(ifindex))
    }

    /// How long the loop may wait for ports that are to be opened anew.
    pub(super) fn until_renewal(&self) -> Duration {
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
        let now = Instant::now();
        for mut replaced in std::mem::take(&mut self.replaced) {
            if replaced.at <= now && self.renew_port(&mut replaced) {
                continue;
            }
            if replaced.at <= now {
                replaced.at = now + AGAIN;
            }
            self.replaced.push(replaced);
        }
    }

    /// Whether nothing is left to do.
    fn renew_port(&mut self, replaced: &mut Replaced) -> bool {
        let port = replaced.port;
        // Something else may have come: a reload without this port, or one that has opened it; or the interface is gone again.
        let Some(name) = self.links.get(port).cloned().flatten() else { return true };
        let index = link::index_of(&name);
        if index.is_none() || !replaced.is_closed && index == self.facts[port].index {
            return true;
        }
        let is_over = |n: &u16| {
            let on = self.interfaces.tagged(*n).map_or(*n, |(port, _)| port);
            usize::from(on) == port
        };
        let numbers: Vec<u16> = self.interfaces.numbers().filter(is_over).collect();
        if !replaced.is_closed && self.close(&numbers).is_err() {
            return false;
        }
        numbers.iter().for_each(|number| self.twin_up[usize::from(*number)] = true);
        self.reopen(&numbers);
        // It is up if it is open.
        replaced.is_closed = !self.link_up[port];
        if replaced.is_closed {
            self.facts[port].index = None;
            return false;
        }
        self.refresh_links();
        let record = &self.records[port];
        tracing::info!(
            "port {}: opened on the new {name}, MAC {}, MTU {}",
            self.interfaces.name(port as u16),
            crate::interfaces::mac_text(record.mac),
            record.mtu
        );
        true
    }
}
