//! What the steward does when the configuration is to be read again: all of it comes into force, or nothing.
//!
//! ```text
//!  read, compare ─▶ keep what there is ─▶ routes ─▶ names ─▶ addresses ─▶ rules ─▶ what cannot fail ─▶ one version
//!                          ▲                 └─────────┴──────────┴─────────┘ error
//!                          └──────────────────────── go back ────────────┘
//! ```
//!
//! Nothing is published in between, so workers and devices see either the version before or the one after. Addresses of
//! twins are the kernel's; on the way back they are set as they were.

use std::net::IpAddr;

use control::config::{Config, NOTHING};
use control::kernel;
use control::neighbour::Settings;
use control::netlink::Client;
use control::rib::{RibChange, RibManager};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::{Interface, Options};

use super::{Steward, rules, settings};
use crate::firewall::Gone;
use crate::named::Before as NamedBefore;
use crate::wiring::{self, Interfaces};
use crate::{log, pipelines, plane, room};

/// What there was before a reload.
struct Before {
    config: Config,
    rib: RibManager,
    named: Option<NamedBefore>,
    records: Vec<Interface>,
}

impl Steward {
    /// Reads the configuration again and applies what can change while packets flow, as one
    /// version. The message is for whoever asked; the log has it in one line.
    pub(super) fn reload(&mut self) -> Result<String, String> {
        let result = self.apply_file();
        match &result {
            Ok(message) => tracing::info!("reloaded: {}", one_line(message)),
            Err(message) => tracing::error!("not reloaded: {}", one_line(message)),
        }
        result
    }

    fn apply_file(&mut self) -> Result<String, String> {
        let (new, odd) = match control::config::load(&self.path, &pipelines::known()) {
            Ok((config, report)) => (config, rules::odd(&report)),
            Err(error) => return Err(error.to_string()),
        };
        let mut diff = Config::diff(&self.config, &new);
        // What waits for a restart is told until the restart, or until the file is as it was.
        diff.restart = Config::diff(&self.started, &new).restart;
        self.same_ports(&new)?;
        let before = Before {
            rib: self.plane.rib.clone(),
            named: self.plane.named.as_mut().map(|named| named.begin()),
            records: self.records.clone(),
            config: std::mem::replace(&mut self.config, new),
        };
        match self.apply(&before.config) {
            Ok(rules_gone) => {
                if let Some(named) = &mut self.plane.named {
                    named.keep();
                }
                self.apply_rest(&before.config);
                let diff = match diff.to_string() {
                    // Of the file; what is gone was no part of it.
                    text if rules_gone.rules > 0 && text == NOTHING => {
                        "nothing else changed".into()
                    }
                    text => text,
                };
                Ok(rules::told(&odd, rules_gone) + &diff)
            }
            Err(error) => {
                self.go_back(before);
                Err(error)
            }
        }
    }

    /// Ports are opened once.
    fn same_ports(&self, new: &Config) -> Result<(), String> {
        let interfaces = Interfaces::of(new);
        let (names, before) = (interfaces.names(), self.interfaces.names());
        if names == before {
            return Ok(());
        }
        let new = names.iter().filter(|n| !before.contains(n)).map(|n| format!("`{n}` is new"));
        let gone = before.iter().filter(|n| !names.contains(n));
        let gone = gone.map(|n| format!("`{n}` is gone"));
        let mut list: Vec<_> = new.chain(gone).collect();
        if list.is_empty() {
            list.push("their order differs".into());
        }
        Err(format!(
            "ports cannot come or go while the router runs: {}; restart it",
            list.join(", ")
        ))
    }

    /// Whatever may fail. Returns which rules that the file does not have are gone.
    fn apply(&mut self, old: &Config) -> Result<Gone, String> {
        let routes = plane::static_routes(&self.config, &self.interfaces);
        let rib = &mut self.plane.rib;
        rib.sync_static(routes).map_err(|error| room::refused(&error))?;
        for (number, file) in self.config.route_files.iter().enumerate() {
            plane::load_file(rib, number as u16, file, &self.interfaces)
                .map_err(|failure| failure.message())?;
        }
        for number in self.config.route_files.len()..old.route_files.len() {
            let gone = rib.sync_file(number as u16, 0, Vec::new(), Vec::new(), |_, _| None);
            gone.map_err(|error| room::refused(&error))?;
        }
        if let Some(named) = &mut self.plane.named {
            named.apply(&self.config, &self.interfaces)?;
        }
        self.apply_addresses(old)?;
        // Takes its rules as a whole or not at all, so it is the last.
        match &mut self.plane.firewall {
            Some(firewall) => firewall.apply(&self.config),
            None => Ok(Gone::default()),
        }
    }

    /// What cannot fail; then all of it is seen.
    fn apply_rest(&mut self, old: &Config) {
        if let Some(bridge) = &mut self.plane.bridge {
            bridge.apply(&self.config, &self.interfaces);
        }
        self.set_neighbours(&old.neighbours);
        let entries_max = self.started.router.neighbours_max;
        self.resolver.set_settings(Settings { entries_max, ..settings(&self.config) });
        let before = wiring::options(&self.started, false);
        self.change(RibChange::Options(Options {
            neighbour_queue_packets: before.neighbour_queue_packets,
            neighbour_queue_total_packets: before.neighbour_queue_total_packets,
            ..wiring::options(&self.config, false)
        }));
        log::set_level(self.config.system.log);
        self.dirty = true;
        self.settle();
    }

    /// Addresses, MTU and checks of the interfaces after a reload. Addresses of a twin go by way of
    /// the kernel, which may have some of its own.
    fn apply_addresses(&mut self, old: &Config) -> Result<(), String> {
        for i in 0..self.records.len() {
            let name = self.interfaces.name(i as u16).to_owned();
            let fresh = self.fresh_record(i);
            let list = |config: &Config| {
                config.port(&name).map(|port| port.addresses.clone()).unwrap_or_default()
            };
            let (before, after) = (list(old), list(&self.config));
            if let Some(twin) = self.twins[i].clone() {
                let mut client = Client::route().map_err(|error| error.to_string())?;
                for address in before.iter().filter(|a| !after.contains(a)) {
                    kernel::links::remove_address(&mut client, twin.ifindex, *address)
                        .map_err(|error| error.to_string())?;
                    self.address(twin.ifindex, *address, false);
                }
                for address in after.iter().filter(|a| !before.contains(a)) {
                    kernel::links::add_address(&mut client, twin.ifindex, *address, false)
                        .map_err(|error| error.to_string())?;
                    self.address(twin.ifindex, *address, true);
                }
                self.set_mtu(i, fresh.mtu)?;
                self.records[i].reverse_path = fresh.reverse_path;
            } else {
                // The rest of it is for a restart.
                let record = &mut self.records[i];
                record.mtu = fresh.mtu;
                record.addresses4 = fresh.addresses4;
                record.addresses6 = fresh.addresses6;
                record.reverse_path = fresh.reverse_path;
            }
            self.publish_interface(i);
        }
        Ok(())
    }

    /// Makes everything as it was before a reload that failed.
    fn go_back(&mut self, before: Before) {
        self.config = before.config;
        for (i, was) in before.records.iter().enumerate() {
            if let Err(error) = self.addresses_back(i, was) {
                let name = self.interfaces.name(i as u16);
                tracing::error!("port {name}: failed to restore the previous addresses: {error}");
            }
        }
        self.records = before.records;
        for (i, record) in self.records.iter().enumerate() {
            self.resolver.set_interface(i as u16, Some(record), &mut self.output);
        }
        // After the interfaces: the routes that they told are in it.
        self.plane.rib = before.rib;
        if let (Some(named), Some(was)) = (&mut self.plane.named, before.named) {
            named.go_back(was);
        }
        self.dirty = true;
        self.settle();
    }

    /// Gives a twin the addresses and the MTU that it had.
    fn addresses_back(&mut self, i: usize, was: &Interface) -> Result<(), String> {
        let Some(twin) = self.twins[i].clone() else { return Ok(()) };
        let (now, then) = (addresses(&self.records[i]), addresses(was));
        if now != then {
            let mut client = Client::route().map_err(|error| error.to_string())?;
            for address in now.iter().filter(|a| !then.contains(a)) {
                kernel::links::remove_address(&mut client, twin.ifindex, *address)
                    .map_err(|error| error.to_string())?;
            }
            for address in then.iter().filter(|a| !now.contains(a)) {
                kernel::links::add_address(&mut client, twin.ifindex, *address, false)
                    .map_err(|error| error.to_string())?;
            }
        }
        self.set_mtu(i, was.mtu)
    }
}

/// The addresses of an interface.
fn addresses(record: &Interface) -> Vec<IpNet> {
    let v4 = record.addresses4.iter().map(|(bits, len)| (IpAddr::V4((*bits).into()), *len));
    let v6 = record.addresses6.iter().map(|([high, low], len)| {
        (IpAddr::V6((u128::from(*high) << 64 | u128::from(*low)).into()), *len)
    });
    let net = |(address, len)| match address {
        IpAddr::V4(v4) => IpNet::V4(Ipv4Net::new_assert(v4, len)),
        IpAddr::V6(v6) => IpNet::V6(Ipv6Net::new_assert(v6, len)),
    };
    v4.chain(v6).map(net).collect()
}

/// A message of several lines as an entry of the log.
fn one_line(message: &str) -> String {
    message.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}
