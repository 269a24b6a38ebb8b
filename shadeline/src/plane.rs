//! From the configuration to the tables: the part of control that captures, the demo and live operation
//! share.
//!
//! ```text
//!  RibManager ┬─▶ Plane::publish ─one version─▶ Reader<Tables> of each worker
//!  Bridge ────┤                  └─patches────▶ Changes, for a device
//!  Named ─────┤
//!  Firewall ──┘
//! ```

use std::path::Path;

use apps::firewall::FirewallPart;
use apps::ndn::NdnPart;
use apps::router::RouterPart;
use apps::switch::SwitchPart;
use control::config::{Config, FileNextHops, NextHop, RouteFile, TableV4, TableV6};
use control::rib::{Leg, RibChange, RibManager, Target, spread};
use controlplane::{PartId, PatchOf, TablePart, Tables, TablesImages, TablesPatch};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::{RouteTables, V4Table, V6Table};
use lookup::routes::{RoutesFile, Token, read_file};
use lookup::versions::{Reader, Writer, versions};
use lookup::{NextHopId, Prefix};

use crate::bridge::Bridge;
use crate::failure::Failure;
use crate::firewall::Firewall;
use crate::named::Named;
use crate::wiring::{self, Interfaces, PortFacts};
use crate::{lpm, room};

/// Where the tables of each application are in those of the program. A part that no stage reads is empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) router: PartId<RouterPart>,
    pub(crate) switch: PartId<SwitchPart>,
    pub(crate) ndn: PartId<NdnPart>,
    pub(crate) firewall: PartId<FirewallPart>,
}

/// What makes the tables, and the one place from which they are published.
pub(crate) struct Plane {
    pub(crate) rib: RibManager,
    /// Of a switch.
    pub(crate) bridge: Option<Bridge>,
    /// Of a named-data forwarder.
    pub(crate) named: Option<Named>,
    /// Of a pipeline with a firewall.
    pub(crate) firewall: Option<Firewall>,
    pub(crate) writer: Writer<Tables>,
    pub(crate) parts: Parts,
    /// Taken, and not published yet.
    pending: Vec<TablesPatch>,
    /// The rules are more than a device is sent, and it was told.
    has_too_many_rules: bool,
}

impl Plane {
    /// The first version: of what the RIB holds for a router, of the configuration for a switch and for a
    /// named-data forwarder. `live`: workers have a part in it, for they note when stations were seen, and so has
    /// Linux, which knows neighbours.
    ///
    /// # Errors
    /// The system gives no memory.
    pub(crate) fn start(
        config: &Config,
        interfaces: &Interfaces,
        mut rib: RibManager,
        live: bool,
    ) -> Result<(Self, Reader<Tables>), Failure> {
        let (mut fib, mut switch, mut ndn, mut rules) = Default::default();
        let (mut bridge, mut named) = (None, None);
        if config.pipeline.uses("router") {
            fib = rib.freeze().map_err(|error| room::failure(config, &error))?;
        }
        if config.pipeline.uses("switch") {
            let (part, first) = Bridge::new(config, interfaces, live)?;
            (switch, bridge) = (first, Some(part));
        }
        if config.pipeline.uses("ndn") {
            let interface = |number| rib.fib().interface(number);
            let (part, first) = Named::new(config, interfaces, interface, live)?;
            (ndn, named) = (first, Some(part));
        }
        let firewall = Firewall::new(config, interfaces)?.map(|(part, first)| {
            rules = first;
            part
        });
        // Who opens a device tells of these.
        let has_too_many_rules = !apps::firewall::FirewallTables::is_for_device(&rules);
        let mut tables = Tables::default();
        let parts = Parts {
            router: tables.add::<RouterPart>(fib),
            switch: tables.add::<SwitchPart>(switch),
            ndn: tables.add::<NdnPart>(ndn),
            firewall: tables.add::<FirewallPart>(rules),
        };
        let (writer, reader) = versions(tables);
        let pending = Vec::new();
        let mut plane =
            Self { rib, bridge, named, firewall, writer, parts, pending, has_too_many_rules };
        plane.publish();
        Ok((plane, reader))
    }

    /// The tables of a run over captures: no kernel, no twins, neighbours made up from their addresses.
    pub(crate) fn offline(
        config: &Config,
        interfaces: &Interfaces,
    ) -> Result<(Self, Reader<Tables>), Failure> {
        let rib = rib(config, interfaces, |_| PortFacts::default(), false)?;
        Self::start(config, interfaces, rib, false)
    }

    /// The tables from now on, for a device.
    pub(crate) fn images(&self) -> TablesImages {
        TablesImages(self.writer.changes())
    }

    /// Makes everything visible that changed, as one version; its number. Waits, sleeping, until nobody reads
    /// the version before the current one.
    pub(crate) fn publish(&mut self) -> u64 {
        self.take_patches();
        let patches = std::mem::take(&mut self.pending);
        if patches.is_empty() {
            return self.writer.version();
        }
        let version = self.writer.publish(patches);
        if !self.has_too_many_rules
            && !self.writer.current().part(self.parts.firewall).is_for_device()
        {
            self.has_too_many_rules = true;
            tracing::warn!(
                "firewall: rule set exceeds the device limit; the CPU processes its segment, lookups included"
            );
        }
        version
    }

    /// The same without waiting; `false` where somebody still reads, and nothing is lost.
    pub(crate) fn try_publish(&mut self) -> bool {
        self.take_patches();
        if self.pending.is_empty() {
            return true;
        }
        match self.writer.try_publish(std::mem::take(&mut self.pending)) {
            Ok(_) => true,
            Err(patches) => {
                self.pending = patches;
                false
            }
        }
    }

    fn take_patches(&mut self) {
        let parts = self.parts;
        take(&mut self.pending, parts.router, self.rib.take_patches());
        if let Some(bridge) = &mut self.bridge {
            take(&mut self.pending, parts.switch, bridge.take_patches());
        }
        if let Some(named) = &mut self.named {
            take(&mut self.pending, parts.ndn, named.take_patches());
        }
        if let Some(firewall) = &mut self.firewall {
            take(&mut self.pending, parts.firewall, firewall.take_patches());
        }
    }

    /// Brings the idle copy of the tables up to date if nobody holds it, so that the next version is there
    /// sooner. For idle moments.
    pub(crate) fn tick(&mut self) {
        self.writer.try_settle();
    }
}

/// Puts the patches of a part to those that wait.
fn take<P: TablePart>(
    pending: &mut Vec<TablesPatch>,
    part: PartId<P>,
    patches: impl Into<Vec<PatchOf<P>>>,
) {
    let patches = patches.into();
    if !patches.is_empty() {
        pending.push(part.patch(patches));
    }
}

/// A RIB with all that the configuration says, not frozen yet.
pub(crate) fn rib(
    config: &Config,
    interfaces: &Interfaces,
    facts: impl Fn(u16) -> PortFacts,
    live: bool,
) -> Result<RibManager, Failure> {
    let options = wiring::options(config, !live);
    let mut rib = RibManager::new(options, tables(config));
    for number in 0..interfaces.names().len() as u16 {
        let mut record = wiring::interface(config, interfaces, number, &facts, live);
        record.any_mac |= !live;
        let change = RibChange::Interface { index: number, interface: Some(record) };
        rib.apply(change).map_err(Failure::other)?;
    }
    for neighbour in &config.neighbours {
        if let Some(interface) = interfaces.number(&neighbour.port) {
            rib.apply(RibChange::Neighbour {
                interface,
                address: neighbour.address,
                mac: Some(neighbour.mac.0),
            })
            .map_err(Failure::other)?;
        }
    }
    rib.sync_static(static_routes(config, interfaces)).map_err(Failure::other)?;
    for (number, file) in config.route_files.iter().enumerate() {
        load_file(&mut rib, number as u16, file, interfaces)?;
    }
    Ok(rib)
}

/// What holds the routes.
pub(crate) fn tables(config: &Config) -> RouteTables {
    RouteTables {
        v4: match config.router.table_v4 {
            TableV4::Auto => V4Table::default(),
            TableV4::Dir24_8 => V4Table::Dir24_8(lookup::dir24_8::Limits::default()),
            TableV4::Poptrie => V4Table::Poptrie(lookup::poptrie::Limits::default()),
        },
        v6: match config.router.table_v6 {
            TableV6::Auto => V6Table::default(),
            TableV6::Bspl => V6Table::Bspl,
            TableV6::Mtrie6 => V6Table::Mtrie6(lookup::mtrie6::Limits::default()),
        },
    }
}

/// `[[route]]` as the RIB takes it.
pub(crate) fn static_routes(config: &Config, interfaces: &Interfaces) -> Vec<(IpNet, u32, Target)> {
    let routes = config.routes.iter();
    routes.map(|r| (r.prefix, r.metric, target(&r.next_hop, interfaces))).collect()
}

/// A next hop of the configuration or the control socket. A port that does not exist leaves no
/// leg, so that the route does not resolve.
pub(crate) fn target(next_hop: &NextHop, interfaces: &Interfaces) -> Target {
    match next_hop {
        NextHop::Blackhole => return Target::Blackhole,
        NextHop::Unreachable => return Target::Unreachable,
        _ => {}
    }
    let legs = next_hop.members().into_iter().filter_map(|(member, weight)| {
        let (gateway, port) = match member {
            NextHop::Address { address, port } => (Some(*address), port.as_deref()),
            NextHop::Port(name) => (None, Some(name.as_str())),
            _ => return None,
        };
        let interface = match port {
            None => None,
            Some(name) => Some(interfaces.number(name)?),
        };
        Some(Leg { gateway, interface, weight: weight.into() })
    });
    Target::Legs(legs.collect())
}

/// Reads a routes file into the RIB, replacing what it said before. Its problems are logged.
pub(crate) fn load_file(
    rib: &mut RibManager,
    number: u16,
    file: &RouteFile,
    interfaces: &Interfaces,
) -> Result<(), Failure> {
    let routes = read_file(&file.file).map_err(Failure::other)?;
    tell_problems(&file.file, &routes);
    load_routes(rib, number, file.metric, &file.next_hops, routes, interfaces, &file.file)
}

/// Puts routes that were read into the RIB.
pub(crate) fn load_routes(
    rib: &mut RibManager,
    number: u16,
    metric: u32,
    next_hops: &FileNextHops,
    mut routes: RoutesFile,
    interfaces: &Interfaces,
    name: &Path,
) -> Result<(), Failure> {
    let v4 = std::mem::take(&mut routes.v4);
    let v6 = std::mem::take(&mut routes.v6);
    let loaded = match next_hops {
        FileNextHops::Spread { v4: hops4, v6: hops6 } => {
            let v4 = v4.into_iter().map(|(p, _)| (p, share(net4(p), hops4.len()))).collect();
            let v6 = v6.into_iter().map(|(p, _)| (p, share(net6(p), hops6.len()))).collect();
            rib.sync_file(number, metric, v4, v6, |is_v4, token| {
                let hops = if is_v4 { hops4 } else { hops6 };
                hops.get(token as usize).map(|hop| target(hop, interfaces))
            })
        }
        FileNextHops::Tokens => rib.sync_file(number, metric, v4, v6, |_, token| {
            let Token::Text(text) = routes.token(token) else { return None };
            text.parse().ok().map(|hop: NextHop| target(&hop, interfaces))
        }),
    };
    let loaded = loaded.map_err(|error| Failure::file(name, room::refused(&error)))?;
    if loaded.skipped > 0 {
        let what = match loaded.skipped {
            1 => "1 prefix left out: it has no next hop of its family".to_owned(),
            n => format!("{n} prefixes left out: they have no next hop of their family"),
        };
        tracing::warn!("{}: {what}", name.display());
    }
    tracing::info!("{}: {} routes", name.display(), loaded.routes);
    Ok(())
}

fn tell_problems(path: &Path, routes: &RoutesFile) {
    const SHOWN: usize = 5;
    for problem in routes.problems.first.iter().take(SHOWN) {
        tracing::warn!("{}: {problem}", path.display());
    }
    let more = routes.problems.count.saturating_sub(SHOWN as u64);
    if more > 0 {
        let problems = if more == 1 { "problem" } else { "problems" };
        tracing::warn!("{}: and {more} more {problems}", path.display());
    }
    if let Some(text) = lpm::repeated(routes) {
        tracing::warn!("{}: {text}", path.display());
    }
}

/// Which of `n` next hops a prefix has; a number that stands for none where there are none.
fn share(prefix: IpNet, n: usize) -> NextHopId {
    if n == 0 { 0 } else { spread(prefix, n) as NextHopId }
}

fn net4(prefix: Prefix<u32>) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(prefix.addr().into(), prefix.len()))
}

fn net6(prefix: Prefix<u128>) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(prefix.addr().into(), prefix.len()))
}
