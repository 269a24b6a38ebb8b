//! The RIB itself: candidates, choice, and versions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use lookup::fib::{Fib, FibBuilder, FibPatch, Options, RouteTables, RouteTarget};
use lookup::versions::{Patchable, Writer};
use lookup::{NextHopId, Prefix, TableError};

use super::family::{AnyPrefix, Both, RibFamily};
use super::origins::{Origin, OriginKey};
use super::routes::join;
use super::types::{RibChange, RibError, Source, Target};

/// All routes, and the forwarding tables made of them. A clone is all of it as it was then, to go back to where a
/// change of many routes fails in the middle; it takes as long as copying the tables.
#[derive(Clone)]
pub struct RibManager {
    pub(super) fib: FibBuilder,
    pub(super) is_frozen: bool,
    pub(super) origins: Vec<Option<Origin>>, // by number of the next hop
    pub(super) numbers: HashMap<OriginKey, NextHopId>,
    pub(super) several: Both,
    pub(super) objects: HashMap<u32, Target>,
    pub(super) recursive: BTreeSet<NextHopId>,
    /// Interfaces, objects or routes changed that origins were resolved with.
    pub(super) unsettled: bool,
    pub(super) refused: u64,
}

/// One route, for tables and questions.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteView<'a> {
    /// Destinations.
    pub prefix: IpNet,
    /// The source of the route.
    pub source: Source,
    /// Smaller wins within one preference.
    pub metric: u32,
    /// Where to, as the source says it.
    pub target: &'a Target,
    /// Where to, resolved; `None`: it does not resolve.
    pub resolved: Option<&'a RouteTarget>,
    /// It is the one in use among those of its prefix.
    pub installed: bool,
}

/// Counts of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RibStats {
    /// Routes in the IPv4 table, neighbours' host routes included.
    pub installed_v4: usize,
    /// Routes in the IPv6 table, neighbours' host routes included.
    pub installed_v6: usize,
    /// From interfaces.
    pub connected: usize,
    /// From the configuration.
    pub static_: usize,
    /// From the control socket.
    pub api: usize,
    /// From the kernel.
    pub kernel: usize,
    /// From files.
    pub file: usize,
    /// From Router Advertisements.
    pub advertised: usize,
    /// Routes that do not resolve.
    pub unresolved: usize,
    /// Distinct (source, metric, target).
    pub origins: usize,
    /// Routes that a full table refused, since the start.
    pub refused: u64,
}

/// What became of a routes file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// Routes of the file now in the RIB.
    pub routes: usize,
    /// Routes for whose token there was no target.
    pub skipped: usize,
    /// Prefixes that had no route of the file before, have none any more, or have another one.
    pub changed: usize,
}

impl RibManager {
    /// An empty RIB.
    pub fn new(options: Options, tables: impl Into<RouteTables>) -> Self {
        Self {
            fib: FibBuilder::new(options, tables),
            is_frozen: false,
            origins: Vec::new(),
            numbers: HashMap::new(),
            several: Both::default(),
            objects: HashMap::new(),
            recursive: BTreeSet::new(),
            unsettled: false,
            refused: 0,
        }
    }

    /// Builds the tables, with all that was applied so far: the first version for
    /// [`versions`](lookup::versions::versions). Large files are best loaded before. To be called once.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn freeze(&mut self) -> Result<Fib, TableError> {
        self.settle();
        self.is_frozen = true;
        self.fib.freeze()
    }

    /// Takes one change; it becomes visible with [`RibManager::commit`]. On an error nothing changed.
    pub fn apply(&mut self, change: RibChange) -> Result<(), RibError> {
        match change {
            RibChange::Interface { index, interface } => self.set_interface(index, interface),
            RibChange::Route { prefix, source, metric, target } => match prefix.into() {
                AnyPrefix::V4(prefix) => self.add(prefix, source, metric, target),
                AnyPrefix::V6(prefix) => self.add(prefix, source, metric, target),
            },
            RibChange::RemoveRoute { prefix, source, metric } => match prefix.into() {
                AnyPrefix::V4(prefix) => self.remove(prefix, source, metric),
                AnyPrefix::V6(prefix) => self.remove(prefix, source, metric),
            },
            RibChange::Object { id, target } => {
                match target {
                    Some(target) => self.objects.insert(id, target),
                    None => self.objects.remove(&id),
                };
                self.unsettled = true;
                Ok(())
            }
            RibChange::Neighbour { interface, address, mac } => {
                self.fib.set_neighbour(interface, address, mac);
                Ok(())
            }
            RibChange::Options(options) => {
                self.fib.set_options(options);
                Ok(())
            }
        }
    }

    /// The patches that make everything applied so far visible. Before [`RibManager::freeze`]: none.
    pub fn take_patches(&mut self) -> Vec<FibPatch> {
        self.settle();
        if self.is_frozen { self.fib.take_patches() } else { Vec::new() }
    }

    /// Makes everything applied so far visible as one version of tables that the forwarding tables
    /// are part of; its number. Sleeps while readers still hold the version before the current one.
    pub fn commit<T: Patchable<Patch: From<FibPatch>>>(&mut self, writer: &mut Writer<T>) -> u64 {
        let patches = self.take_patches();
        if patches.is_empty() {
            return writer.version();
        }
        writer.publish(patches.into_iter().map(Into::into).collect())
    }

    /// Makes these the static routes, all of them: of prefix, metric and target. Those of equal
    /// prefix and metric become one, of all their legs. What stays as it was is not touched.
    pub fn sync_static(&mut self, routes: Vec<(IpNet, u32, Target)>) -> Result<(), RibError> {
        let mut v4: BTreeMap<(Prefix<u32>, u32), Target> = BTreeMap::new();
        let mut v6: BTreeMap<(Prefix<u128>, u32), Target> = BTreeMap::new();
        for (prefix, metric, target) in routes {
            match prefix.into() {
                AnyPrefix::V4(prefix) => join(v4.entry((prefix, metric)), target),
                AnyPrefix::V6(prefix) => join(v6.entry((prefix, metric)), target),
            }
        }
        self.sync_targets(v4)?;
        self.sync_targets(v6)
    }

    /// Makes these the routes of file `file`, all of them. The number beside each prefix is a token
    /// of the caller's, such as that of [`lookup::routes::RoutesFile`] or what
    /// [`spread`](super::spread) gives; `target` says once for each token and family (true: IPv4)
    /// what it stands for. A file that has changed touches only the routes that did.
    pub fn sync_file(
        &mut self,
        file: u16,
        metric: u32,
        v4: Vec<(Prefix<u32>, u32)>,
        v6: Vec<(Prefix<u128>, u32)>,
        mut target: impl FnMut(bool, u32) -> Option<Target>,
    ) -> Result<Loaded, RibError> {
        let source = Source::File(file);
        let mut loaded = Loaded::default();
        self.sync_tokens(source, metric, v4, |token| target(true, token), &mut loaded)?;
        self.sync_tokens(source, metric, v6, |token| target(false, token), &mut loaded)?;
        Ok(loaded)
    }

    /// Whether `source` has a route for exactly `prefix`.
    pub fn contains(&self, prefix: IpNet, source: Source) -> bool {
        let ids = match prefix.into() {
            AnyPrefix::V4(prefix) => self.candidates(prefix),
            AnyPrefix::V6(prefix) => self.candidates(prefix),
        };
        ids.iter().any(|id| self.source(*id) == Some(source))
    }

    /// The route to `prefix` that `source` gave, the best one where it gave several.
    pub fn route(&self, prefix: IpNet, source: Source) -> Option<RouteView<'_>> {
        match prefix.into() {
            AnyPrefix::V4(prefix) => self.route_of(prefix, source),
            AnyPrefix::V6(prefix) => self.route_of(prefix, source),
        }
    }

    fn route_of<A: RibFamily>(&self, prefix: Prefix<A>, source: Source) -> Option<RouteView<'_>> {
        let ids = self.candidates(prefix);
        let own: Vec<_> =
            ids.iter().copied().filter(|id| self.source(*id) == Some(source)).collect();
        self.view(prefix, self.best(&own).or(own.first().copied())?)
    }

    /// The installed route that packets to `address` take, neighbours' host routes aside.
    pub fn route_get(&self, address: IpAddr) -> Option<RouteView<'_>> {
        match address {
            IpAddr::V4(v4) => {
                let (prefix, id) = self.fib.longest_match(v4.to_bits())?;
                self.view(prefix, id)
            }
            IpAddr::V6(v6) => {
                let (prefix, id) = self.fib.longest_match(v6.to_bits())?;
                self.view(prefix, id)
            }
        }
    }

    /// All routes, IPv4 first, in order of (address, length), from the first prefix behind `after`.
    /// A prefix's candidates follow one another, so a page can end after any of its prefixes.
    pub fn routes(&self, after: Option<IpNet>) -> impl Iterator<Item = RouteView<'_>> {
        let (after4, after6, skip4) = match after.map(AnyPrefix::from) {
            None => (None, None, false),
            Some(AnyPrefix::V4(prefix)) => (Some(prefix), None, false),
            Some(AnyPrefix::V6(prefix)) => (None, Some(prefix), true),
        };
        let v4 = (!skip4).then(|| self.family_routes(after4)).into_iter().flatten();
        v4.chain(self.family_routes::<u128>(after6))
    }

    /// All routes of exactly `prefix`.
    pub fn routes_of(&self, prefix: IpNet) -> impl Iterator<Item = RouteView<'_>> {
        let (v4, v6) = match prefix.into() {
            AnyPrefix::V4(prefix) => (Some(prefix), None),
            AnyPrefix::V6(prefix) => (None, Some(prefix)),
        };
        let v4 = v4.into_iter().flat_map(|prefix| self.prefix_routes(prefix));
        v4.chain(v6.into_iter().flat_map(|prefix| self.prefix_routes(prefix)))
    }

    /// All routes of prefixes within `net`, in order, its own among them. Looks at no others.
    pub fn routes_within(&self, net: IpNet) -> impl Iterator<Item = RouteView<'_>> {
        let own = self.routes_of(net);
        own.chain(self.routes(Some(net)).take_while(move |view| net.contains(&view.prefix)))
    }

    /// Counts of routes.
    pub fn stats(&self) -> RibStats {
        let mut stats = RibStats {
            installed_v4: self.fib.len::<u32>(),
            installed_v6: self.fib.len::<u128>(),
            refused: self.refused + self.fib.hosts_refused(),
            ..RibStats::default()
        };
        for origin in self.origins.iter().flatten() {
            let routes = origin.routes as usize;
            stats.origins += 1;
            stats.unresolved += if origin.resolution.target.is_none() { routes } else { 0 };
            *match origin.key.source {
                Source::Connected => &mut stats.connected,
                Source::Static => &mut stats.static_,
                Source::Api => &mut stats.api,
                Source::Kernel => &mut stats.kernel,
                Source::File(_) => &mut stats.file,
                Source::Advertised => &mut stats.advertised,
            } += routes;
        }
        stats
    }

    /// The forwarding tables' builder, to ask about interfaces and neighbours.
    pub fn fib(&self) -> &FibBuilder {
        &self.fib
    }
}
