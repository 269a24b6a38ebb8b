//! Routes of the configuration: static ones and those of files, as the RIB takes them.

use std::path::Path;

use control::api::table::thousands;
use control::config::{Config, FileNextHops, NextHop, RouteFile, TableV4, TableV6};
use control::rib::{Leg, Loaded, RibChange, RibManager, Target, spread};
use controlplane::{Interfaces, Setup};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::{Options, RouteTables, V4Table, V6Table};
use lookup::routes::{RoutesFile, Token};
use lookup::{NextHopId, Prefix};

use super::capacity;

/// What the data path knows of `[router]`; `offline`: over captures.
pub fn options(config: &Config, offline: bool) -> Options {
    let router = &config.router;
    Options {
        derive_neighbours: offline,
        ttl: router.ttl,
        fragment: router.fragment,
        icmp_rate: router.icmp_rate,
        icmp_burst: router.icmp_burst,
        neighbour_queue_packets: router.arp_queue_packets.min(u32::MAX as usize) as u32,
        neighbour_queue_total_packets: router.arp_queue_total_packets.min(u32::MAX as usize) as u32,
        neighbour_wait_ns: (router.neighbour_retry * router.neighbour_attempts).as_nanos() as u64,
    }
}

/// A RIB with all that the configuration says, not frozen yet.
///
/// # Errors
/// A file cannot be read, or its routes have no room.
pub fn rib(setup: &Setup<'_>) -> Result<RibManager, String> {
    let Setup { config, interfaces, is_live, .. } = *setup;
    let mut rib = RibManager::new(options(config, !is_live), tables(config));
    for number in interfaces.numbers() {
        let record = setup.record(number);
        let change = RibChange::Interface { index: number, interface: Some(record) };
        rib.apply(change).map_err(|error| error.to_string())?;
    }
    for neighbour in &config.neighbours {
        if let Some(interface) = interfaces.number(&neighbour.port) {
            rib.apply(RibChange::Neighbour {
                interface,
                address: neighbour.address,
                mac: Some(neighbour.mac.0),
            })
            .map_err(|error| error.to_string())?;
        }
    }
    rib.sync_static(static_routes(config, interfaces)).map_err(|error| error.to_string())?;
    for (number, file) in config.route_files.iter().enumerate() {
        let routes = read_file(&file.file)?;
        load_file(&mut rib, number as u16, file, routes, interfaces)?;
    }
    Ok(rib)
}

/// What holds the routes.
pub fn tables(config: &Config) -> RouteTables {
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
pub fn static_routes(config: &Config, interfaces: &Interfaces) -> Vec<(IpNet, u32, Target)> {
    let routes = config.routes.iter();
    routes.map(|r| (r.prefix, r.metric, target(&r.next_hop, interfaces))).collect()
}

/// A next hop of the configuration or the control socket. A port that does not exist leaves no
/// leg, so that the route does not resolve.
pub fn target(next_hop: &NextHop, interfaces: &Interfaces) -> Target {
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

/// Reads a routes file. Its problems are logged.
///
/// # Errors
/// It cannot be read.
pub fn read_file(path: &Path) -> Result<RoutesFile, String> {
    let routes = lookup::routes::read_file(path).map_err(|error| error.to_string())?;
    log_problems(path, &routes);
    Ok(routes)
}

/// Puts a routes file into the RIB, replacing what it said before.
///
/// # Errors
/// The tables have no room.
pub fn load_file(
    rib: &mut RibManager,
    number: u16,
    file: &RouteFile,
    routes: RoutesFile,
    interfaces: &Interfaces,
) -> Result<Loaded, String> {
    load_routes(rib, number, file.metric, &file.next_hops, routes, interfaces, &file.file)
}

/// Puts routes that were read into the RIB.
///
/// # Errors
/// As [`load_file`].
pub fn load_routes(
    rib: &mut RibManager,
    number: u16,
    metric: u32,
    next_hops: &FileNextHops,
    mut routes: RoutesFile,
    interfaces: &Interfaces,
    name: &Path,
) -> Result<Loaded, String> {
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
    let loaded =
        loaded.map_err(|error| format!("{}: {}", name.display(), capacity::refused(&error)))?;
    if loaded.skipped > 0 {
        let what = match loaded.skipped {
            1 => "1 prefix left out: it has no next hop of its family".to_owned(),
            n => format!("{n} prefixes left out: they have no next hop of their family"),
        };
        tracing::warn!("{}: {what}", name.display());
    }
    tracing::info!("{}: {} routes", name.display(), loaded.routes);
    Ok(loaded)
}

fn log_problems(path: &Path, routes: &RoutesFile) {
    const SHOWN: usize = 5;
    for problem in routes.problems.first.iter().take(SHOWN) {
        tracing::warn!("{}: {problem}", path.display());
    }
    let more = routes.problems.count.saturating_sub(SHOWN as u64);
    if more > 0 {
        let problems = if more == 1 { "problem" } else { "problems" };
        tracing::warn!("{}: and {more} more {problems}", path.display());
    }
    if let Some(text) = repeated(routes.problems.repeated) {
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

/// What to say of lines of a file that say what an earlier one says; nothing of none.
pub fn repeated(lines: u64) -> Option<String> {
    match lines {
        0 => None,
        1 => Some("1 line repeats an earlier one".into()),
        n => Some(format!("{} lines repeat earlier ones", thousands(n))),
    }
}
