//! Routing tables and addresses of the benchmarks.

use std::net::IpAddr;
use std::path::Path;

use lookup::dir24_8::Limits;
use lookup::fib::{Fib, FibBuilder, Interface, Options, Path as Way, RouteTables, RouteTarget};
use lookup::routes::{RoutesFile, read_file};
use lookup::{Key6, Prefix};

/// The full table that the project measures with.
pub(crate) const DEFAULT_ROUTES: &str = "../shared/data/bgp/bart-prefixes-v4v6.txt.gz";

/// Ports of the benchmarks' router.
pub(crate) const PORTS: u16 = 4;

/// A small, good and reproducible generator (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Reads the routes, or says what is missing.
pub(crate) fn routes(path: &Path) -> Result<RoutesFile, String> {
    read_file(path).map_err(|e| format!("{e}; give another table with --routes"))
}

/// The MAC of port `port` of the benchmarks' router.
pub(crate) fn port_mac(port: u16) -> [u8; 6] {
    [2, 0, 0, 0, 1, port as u8]
}

/// The gateway on port `port`.
pub(crate) fn gateway(port: u16, v4: bool) -> IpAddr {
    if v4 {
        IpAddr::from([10, port as u8, 0, 2])
    } else {
        IpAddr::from([0xfd00, port, 0, 0, 0, 0, 0, 2])
    }
}

/// The MAC of the gateways on port `port`.
pub(crate) fn gateway_mac(port: u16) -> [u8; 6] {
    [2, 0, 0, 0, 2, port as u8]
}

/// The interface of port `port`.
pub(crate) fn interface(port: u16) -> Interface {
    Interface {
        name: format!("p{port}"),
        up: true,
        port,
        mac: port_mac(port),
        mtu: 1500,
        addresses4: vec![(u32::from_be_bytes([10, port as u8, 0, 1]), 24)],
        addresses6: vec![([0xfd00_0000_0000_0000 | u64::from(port) << 32, 1], 64)],
        ..Interface::default()
    }
}

/// The tables of a router with four ports, each route by the gateway of one of them.
pub(crate) fn fib(routes: &RoutesFile, tables: RouteTables) -> Result<(FibBuilder, Fib), String> {
    let mut random = Random(1);
    fib_of(routes, tables, move |ports| random.below(ports))
}

/// The tables that the kernels `lpm4` and `lpm6` look up in.
pub(crate) fn of_kernels() -> RouteTables {
    Limits::default().into()
}

/// The same with every route, and the benchmark network 198.18.0.0/15 (RFC 2544), by one port.
pub(crate) fn fib_by_port(routes: &RoutesFile, port: usize) -> Result<(FibBuilder, Fib), String> {
    let mut routes = routes.clone();
    let network = Prefix::masked(u32::from_be_bytes([198, 18, 0, 0]), 15);
    if !routes.v4.iter().any(|(prefix, _)| *prefix == network) {
        routes.v4.push((network, 1));
        routes.v4.sort_unstable_by_key(|(prefix, _)| (prefix.addr(), prefix.len()));
    }
    fib_of(&routes, RouteTables::default(), move |_| port)
}

/// The same with each route by the port that `choose` says, given their number: first the IPv4 routes in their order, then
/// those of IPv6.
pub(crate) fn fib_of(
    routes: &RoutesFile,
    tables: RouteTables,
    choose: impl FnMut(usize) -> usize,
) -> Result<(FibBuilder, Fib), String> {
    fib_of_mtu(routes, tables, 1500, choose)
}

/// The same with links of another MTU.
pub(crate) fn fib_of_mtu(
    routes: &RoutesFile,
    tables: RouteTables,
    mtu: u16,
    mut choose: impl FnMut(usize) -> usize,
) -> Result<(FibBuilder, Fib), String> {
    let mut builder = FibBuilder::new(Options::default(), tables);
    for port in 0..PORTS {
        builder.set_interface(port, Some(Interface { mtu, ..interface(port) }));
        for v4 in [true, false] {
            builder.set_neighbour(port, gateway(port, v4), Some(gateway_mac(port)));
        }
    }
    let failed = |e: lookup::TableError| e.to_string();
    let hops = |builder: &mut FibBuilder, v4: bool| -> Result<Vec<u32>, lookup::TableError> {
        (0..PORTS)
            .map(|port| {
                let way = Way { interface: port, gateway: Some(gateway(port, v4)), weight: 1 };
                let target = RouteTarget::Paths(vec![way]);
                if v4 {
                    builder.create_hop::<u32>(&target)
                } else {
                    builder.create_hop::<u128>(&target)
                }
            })
            .collect()
    };
    let hops4 = hops(&mut builder, true).map_err(failed)?;
    let v4 = routes.v4.iter().map(|(p, _)| (*p, hops4[choose(hops4.len())])).collect();
    builder.load::<u32>(v4).map_err(failed)?;
    let hops6 = hops(&mut builder, false).map_err(failed)?;
    let v6 = routes.v6.iter().map(|(p, _)| (*p, hops6[choose(hops6.len())])).collect();
    builder.load::<u128>(v6).map_err(failed)?;
    let fib = builder.freeze().map_err(failed)?;
    Ok((builder, fib))
}

/// Which addresses a load asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// A random prefix of the table with random host bits.
    Prefixes,
    /// Uniform over the unicast addresses (IPv4: 1.0.0.0 to 223.255.255.255; IPv6: 2000::/3).
    Uniform,
}

/// `n` IPv4 addresses.
pub(crate) fn keys4(prefixes: &[Prefix<u32>], n: usize, spread: Spread, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    let mut keys = Vec::with_capacity(n);
    while keys.len() < n {
        let bits = random.next() as u32;
        let key = match spread {
            Spread::Uniform => bits,
            Spread::Prefixes => {
                let prefix = prefixes[random.below(prefixes.len())];
                let host = if prefix.len() >= 32 { 0 } else { u32::MAX >> prefix.len() };
                prefix.addr() | bits & host
            }
        };
        if matches!(key >> 24, 1..=126 | 128..=223) {
            keys.push(key);
        }
    }
    keys
}

/// `n` IPv6 addresses.
pub(crate) fn keys6(prefixes: &[Prefix<u128>], n: usize, spread: Spread, seed: u64) -> Vec<Key6> {
    let mut random = Random(seed);
    (0..n)
        .map(|_| {
            let bits = u128::from(random.next()) << 64 | u128::from(random.next());
            let key = match spread {
                Spread::Uniform => bits >> 3 | 1 << 125,
                Spread::Prefixes => {
                    let prefix = prefixes[random.below(prefixes.len())];
                    let host = if prefix.len() >= 128 { 0 } else { u128::MAX >> prefix.len() };
                    prefix.addr() | bits & host
                }
            };
            [(key >> 64) as u64, key as u64]
        })
        .collect()
}
