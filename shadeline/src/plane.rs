//! From the configuration to the routing information base: the part of control that captures, the
//! demo and live operation share.

use std::path::Path;

use control::config::{Config, FileNextHops, NextHop, RouteFile};
use control::rib::{Leg, RibChange, RibManager, Target, spread};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::{Fib, FibPatch};
use lookup::routes::{RoutesFile, Token, read_file};
use lookup::versions::{Changes, Reader};
use lookup::{NextHopId, Prefix};

use crate::failure::Failure;
use crate::lpm;
use crate::wiring::{self, Interfaces, PortFacts};

/// Tables that nobody changes any more.
pub(crate) struct Tables {
    pub(crate) reader: Reader<Fib>,
    /// Their changes, for a device.
    pub(crate) changes: Option<Changes<FibPatch>>,
    /// The writer's side, kept alive with them.
    _rib: RibManager,
}

/// The tables of a run over captures: no kernel, no twins, neighbours made up from their addresses.
pub(crate) fn offline_tables(config: &Config, interfaces: &Interfaces) -> Result<Tables, Failure> {
    let mut rib = rib(config, interfaces, |_| PortFacts::default(), false)?;
    let reader = rib.start().map_err(Failure::other)?;
    Ok(Tables { reader, changes: rib.changes(), _rib: rib })
}

/// A RIB with all that the configuration says, not started yet.
pub(crate) fn rib(
    config: &Config,
    interfaces: &Interfaces,
    facts: impl Fn(u16) -> PortFacts,
    live: bool,
) -> Result<RibManager, Failure> {
    let options = wiring::options(config, !live);
    let mut rib = RibManager::new(options, lookup::dir24_8::Limits::default());
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
    let loaded = loaded.map_err(|error| Failure::file(name, error))?;
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
