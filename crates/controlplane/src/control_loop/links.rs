//! Interfaces as they come and go: links, twins, addresses, MTU.

use std::time::{Duration, Instant};

use control::kernel::{self, Event as KernelEvent};
use io::link::Link;
use ipnet::IpNet;
use lookup::fib::Interface;

use super::{ControlLoop, TURN, now_ns};
use crate::application::Environment;
use crate::interfaces;

/// How long after a failure of a port its link is looked at again; then twice as long each time.
const LOOK: Duration = Duration::from_millis(5);

impl ControlLoop {
    pub(super) fn kernel(&mut self, event: KernelEvent) {
        match event {
            KernelEvent::LinkChanged(link) => {
                if let Some(i) = self.twin_of(link.ifindex) {
                    if self.twin_up[i] != link.up {
                        self.twin_up[i] = link.up;
                        self.publish_interface(i);
                    }
                } else {
                    self.link_changed(&link);
                }
            }
            KernelEvent::LinkRemoved { ifindex, .. } => self.link_removed(ifindex),
            KernelEvent::AddressAdded { ifindex, address } => self.address(ifindex, address, true),
            KernelEvent::AddressRemoved { ifindex, address } => {
                self.address(ifindex, address, false);
            }
            KernelEvent::Synced => tracing::info!(
                "the links, addresses, neighbours and routes of the kernel are known"
            ),
            event => {
                let mut env = super::environment!(self);
                let parts = self.publisher.parts.iter_mut();
                parts.for_each(|own| own.part.kernel(&event, &mut env));
            }
        }
    }

    pub(super) fn port_error(&mut self, port: u16, error: String) {
        // Both halves of a queue, and every queue of a port, say the same.
        let name = self.interfaces.name(port);
        if self.logged.as_ref() == Some(&(port, error.clone())) {
            tracing::debug!("port {name}: {error}");
        } else {
            tracing::warn!("port {name}: {error}");
            self.logged = Some((port, error));
        }
        self.refresh_links();
        self.look = Some((Instant::now() + LOOK, LOOK));
    }

    /// Looks at the links again some time after a queue said that something is wrong. The mirror of the kernel reports
    /// nothing of a link that was down and is up again before it has looked itself, and this loop may have seen it down.
    pub(super) fn look_again(&mut self) {
        let now = Instant::now();
        let Some((_, step)) = self.look.filter(|(at, _)| *at <= now) else { return };
        self.refresh_links();
        let step = (2 * step).min(TURN);
        let is_down =
            |port: usize| self.links[port].is_some() && !self.closed[port] && !self.link_up[port];
        let again = step < TURN || (0..self.links.len()).any(is_down);
        self.look = again.then(|| (now + step, step));
    }

    /// How long until then.
    pub(super) fn until_look(&self) -> Duration {
        self.look.map_or(TURN, |(at, _)| at.saturating_duration_since(Instant::now()))
    }

    fn twin_of(&self, ifindex: u32) -> Option<usize> {
        self.twins.iter().position(|t| t.as_ref().is_some_and(|t| t.ifindex == ifindex))
    }

    pub(super) fn port_named(&self, link: &str) -> Option<usize> {
        self.links.iter().position(|name| name.as_deref() == Some(link))
    }

    pub(super) fn address(&mut self, ifindex: u32, address: IpNet, added: bool) {
        let Some(i) = self.twin_of(ifindex) else { return };
        let record = &mut self.records[i];
        match address {
            IpNet::V4(net) => {
                let entry = (net.addr().to_bits(), net.prefix_len());
                set(&mut record.addresses4, entry, added);
            }
            IpNet::V6(net) => {
                let bits = net.addr().to_bits();
                let entry = ([(bits >> 64) as u64, bits as u64], net.prefix_len());
                set(&mut record.addresses6, entry, added);
                // Global addresses first: they are what ICMP errors come from.
                record.addresses6.sort_by_key(|([high, _], _)| high >> 54 == 0xfe80 >> 6);
            }
        }
        self.publish_interface(i);
    }

    /// Looks again which ports are up: a queue said that something is wrong.
    pub(super) fn refresh_links(&mut self) {
        for port in 0..self.links.len() {
            let index = self.facts[port].index;
            let is_gone = self.links[port].is_some() && index.is_none();
            self.statistics.set_gone(port as u16, is_gone);
            let Some(name) = &self.links[port] else { continue };
            // Another interface may have the name by now, which the port was not opened on.
            let is_up = |link: Link| Ok(Some(link.index()?) == index && link.is_running()?);
            let up = Link::open(name).and_then(is_up).unwrap_or(false);
            self.set_link(port, up);
        }
    }

    /// A port's link is there or not, with all interfaces over it.
    pub(super) fn set_link(&mut self, port: usize, up: bool) {
        // Without queues it carries nothing, whatever its interface says.
        let up = up && !self.closed[port];
        if std::mem::replace(&mut self.link_up[port], up) == up {
            return;
        }
        let state = if up { "up" } else { "down" };
        tracing::info!("port {}: {state}", self.interfaces.name(port as u16));
        self.logged = None;
        self.publisher.parts.iter_mut().for_each(|own| own.part.link(port as u16, up));
        for i in 0..self.records.len() {
            if usize::from(self.records[i].port) == port {
                self.publish_interface(i);
            }
        }
    }

    /// The MTU of a port's network interface changed; interfaces whose MTU the configuration leaves
    /// open have it now.
    pub(super) fn follow_mtu(&mut self, port: usize, mtu: u32) {
        match self.facts.get_mut(port) {
            Some(facts) if facts.mtu.is_some_and(|before| before != mtu) => facts.mtu = Some(mtu),
            _ => return,
        }
        for i in 0..self.records.len() {
            if usize::from(self.records[i].port) != port {
                continue;
            }
            self.warn_of_mtu(i);
            let fresh = self.fresh_record(i).mtu;
            if self.records[i].mtu != fresh {
                let name = self.interfaces.name(i as u16);
                tracing::info!("port {name}: MTU {fresh}");
                if let Err(error) = self.set_mtu(i, fresh) {
                    tracing::warn!("port {}: {error}", self.interfaces.name(i as u16));
                }
                self.publish_interface(i);
            }
        }
    }

    /// Sets the MTU of an interface and of its twin, whose kernel sends packets of that length.
    pub(super) fn set_mtu(&mut self, i: usize, mtu: u16) -> Result<(), String> {
        if self.records[i].mtu == mtu {
            return Ok(());
        }
        self.records[i].mtu = mtu;
        let Some(twin) = &self.twins[i] else { return Ok(()) };
        let set = || {
            let mut client = control::netlink::Client::route()?;
            kernel::links::set_mtu(&mut client, twin.ifindex, mtu.into())?;
            // With less than 1280 bytes the kernel forgets all settings of IPv6.
            kernel::twin::behave_as_router(&twin.name, twin.advertisements)
        };
        set().map_err(|error| format!("the twin {}: {error}", twin.name))
    }

    /// Logs that packets of the MTU in the configuration do not fit the interface.
    pub(super) fn warn_of_mtu(&self, i: usize) {
        let fact = |port: u16| self.facts.get(usize::from(port)).copied().unwrap_or_default();
        let warning = interfaces::mtu_warning(&self.config, &self.interfaces, i as u16, fact);
        warning.iter().for_each(|text| tracing::warn!("{text}"));
    }

    /// Interface `i` as configuration and system say, without what the kernel added to its twin.
    pub(super) fn fresh_record(&self, i: usize) -> Interface {
        let fact = |port: u16| self.facts.get(usize::from(port)).copied().unwrap_or_default();
        interfaces::record(&self.config, &self.interfaces, i as u16, fact, true)
    }

    pub(super) fn publish_interface(&mut self, i: usize) {
        let port = usize::from(self.records[i].port);
        self.records[i].up = self.twin_up[i] && self.link_up.get(port).copied().unwrap_or(true);
        self.tell_interface(i);
    }

    /// Lets the parts see the record of an interface.
    pub(super) fn tell_interface(&mut self, i: usize) {
        let mut env = super::environment!(self);
        let parts = self.publisher.parts.iter_mut();
        parts.for_each(|own| own.part.interface(i as u16, &mut env));
    }
}

fn set<T: PartialEq>(list: &mut Vec<T>, entry: T, present: bool) {
    if !present {
        list.retain(|e| *e != entry);
    } else if !list.contains(&entry) {
        list.push(entry);
    }
}
