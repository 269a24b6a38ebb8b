//! The control side of the tables.
//!
//! ```text
//! create, set ─▶ next hops ─▶ records ┐
//! set_interface, set_neighbour ───────┤
//! insert, remove, load ─▶ tables ─────┴▶ freeze() ─▶ the first Fib
//!                                        take_patches() ─▶ one publish each
//! ```
//!
//! A route names the number of a next hop; what the number stands for can change under all routes
//! that name it at once, for the price of one record (prefix-independent convergence). Numbers of
//! next hops, adjacencies and groups that were let go are used again only after the next
//! [`FibBuilder::take_patches`].
//!
//! Thread rule: one owner.

use std::collections::HashMap;
use std::net::IpAddr;

use super::choice::{RouteTables, V4Table, V6Table};
use super::family::Half;
use super::hops::{Hops, RouteTarget};
use super::own::OwnAddresses;
use super::records::{Interface, Options};
use super::tables::{Fib, FibPatch, vlans};
use crate::auto4::Auto4Builder;
use crate::bspl::BsplBuilder;
use crate::dir24_8::Dir24_8Builder;
use crate::mtrie6::Mtrie6Builder;
use crate::poptrie::PoptrieBuilder;
use crate::{Address, NextHopId, Prefix, TableError};

/// Builds the first [`Fib`] and turns changes into patches. A clone is a builder as it was then, to go back to: it has
/// its own routes and tables, which takes as long as copying them.
#[derive(Debug, Clone)]
pub struct FibBuilder {
    options: Options,
    options_changed: bool,
    tables: RouteTables,
    hops: Hops,
    halves: Halves,
    shared: HashMap<(bool, RouteTarget), (NextHopId, u32)>, // and routes that name it
    targets: HashMap<NextHopId, (bool, RouteTarget)>,       // of the shared ones
}

/// Both families.
#[derive(Debug, Clone)]
pub struct Halves {
    v4: Half<u32>,
    v6: Half<u128>,
}

/// IPv4 (`u32`) and IPv6 (`u128`).
pub trait Family: Address {
    /// Whether it is IPv4.
    const V4: bool;
    #[doc(hidden)]
    fn half(halves: &Halves) -> &Half<Self>;
    #[doc(hidden)]
    fn half_mut(halves: &mut Halves) -> &mut Half<Self>;
}

impl Family for u32 {
    const V4: bool = true;
    fn half(halves: &Halves) -> &Half<u32> {
        &halves.v4
    }
    fn half_mut(halves: &mut Halves) -> &mut Half<u32> {
        &mut halves.v4
    }
}

impl Family for u128 {
    const V4: bool = false;
    fn half(halves: &Halves) -> &Half<u128> {
        &halves.v6
    }
    fn half_mut(halves: &mut Halves) -> &mut Half<u128> {
        &mut halves.v6
    }
}

impl FibBuilder {
    /// Without any route, interface or neighbour.
    pub fn new(options: Options, tables: impl Into<RouteTables>) -> Self {
        Self {
            options,
            options_changed: false,
            tables: tables.into(),
            hops: Hops::new(),
            halves: Halves { v4: Half::new(), v6: Half::new() },
            shared: HashMap::new(),
            targets: HashMap::new(),
        }
    }

    /// The first version of the tables; from now on changes become patches. A second call is
    /// refused, and after an error the builder is of no use.
    pub fn freeze(&mut self) -> Result<Fib, TableError> {
        let again = || TableError::Full { what: "first versions", used: 1, limit: 1 };
        let half4 = &mut self.halves.v4;
        let v4 = match self.tables.v4 {
            V4Table::Auto(limits) => half4.freeze(|rib| Auto4Builder::build(rib, limits)),
            V4Table::Dir24_8(limits) => half4.freeze(|rib| Dir24_8Builder::build(rib, limits)),
            V4Table::Poptrie(limits) => half4.freeze(|rib| PoptrieBuilder::build(rib, limits)),
        };
        let v4 = v4.ok_or_else(again)?.map_err(|error| self.of::<u32>(error))?;
        let half6 = &mut self.halves.v6;
        let v6 = match self.tables.v6 {
            V6Table::Bspl => half6.freeze(BsplBuilder::build),
            V6Table::Mtrie6(limits) => half6.freeze(|rib| Mtrie6Builder::build(rib, limits)),
        };
        let v6 = v6.ok_or_else(again)?.map_err(|error| self.of::<u128>(error))?;
        self.take_patches(); // all of it is in the tables that follow
        let interfaces = self.hops.adjacencies.interfaces().to_vec();
        Ok(Fib {
            v4,
            v6,
            next_hops: self.hops.records().to_vec(),
            group_members: self.hops.groups.members().to_vec(),
            adjacencies: self.hops.adjacencies.records().to_vec(),
            vlans: vlans(&interfaces),
            own: OwnAddresses::of(&interfaces),
            interfaces,
            neighbours: self.hops.adjacencies.neighbours(),
            options: self.options,
        })
    }

    /// Everything since the last call, for one publish. Empty when nothing changed.
    pub fn take_patches(&mut self) -> Vec<FibPatch> {
        let mut patches = Vec::new();
        if std::mem::take(&mut self.options_changed) {
            patches.push(FibPatch::Options(self.options));
        }
        let changes = self.hops.adjacencies.take_changes();
        patches.extend(changes.interfaces.into_iter().map(|(i, r)| FibPatch::Interface(i, r)));
        patches.extend(changes.records.into_iter().map(|(i, r)| FibPatch::Adjacency(i, r)));
        patches.extend(changes.named.into_iter().map(|(i, a, n)| FibPatch::Neighbour(i, a, n)));
        let groups = self.hops.groups.take_changes();
        patches.extend(
            groups
                .into_iter()
                .map(|(first, members)| FibPatch::GroupMembers { first, members: members.into() }),
        );
        let hops = self.hops.take_changes();
        patches.extend(hops.into_iter().map(|(id, record)| FibPatch::NextHop(id, record)));
        let v4 = self.halves.v4.take_patches();
        let v6 = self.halves.v6.take_patches();
        patches.extend((!v4.is_empty()).then_some(FibPatch::V4(v4)));
        patches.extend((!v6.is_empty()).then_some(FibPatch::V6(v6)));
        patches
    }

    /// Sets the options.
    pub fn set_options(&mut self, options: Options) {
        self.options_changed |= self.options != options;
        self.options = options;
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Sets an interface, or takes it away. Its routes and neighbours are the caller's.
    pub fn set_interface(&mut self, index: u16, interface: Option<Interface>) {
        self.hops.adjacencies.set_interface(index, interface);
    }

    /// The interface of that index.
    pub fn interface(&self, index: u16) -> Option<&Interface> {
        self.hops.adjacencies.interfaces().get(usize::from(index))?.as_ref()
    }

    /// All interfaces.
    pub fn interfaces(&self) -> impl Iterator<Item = (u16, &Interface)> {
        let interfaces = self.hops.adjacencies.interfaces();
        (0u16..).zip(interfaces).filter_map(|(i, record)| Some((i, record.as_ref()?)))
    }

    /// Sets what is known of a neighbour: every next hop that leads to it follows, and where it is
    /// on a connected subnet it gets a host route.
    pub fn set_neighbour(&mut self, interface: u16, address: IpAddr, mac: Option<[u8; 6]>) {
        let before = self.hops.adjacencies.set_mac(interface, address, mac);
        if before.is_some() == mac.is_some() {
            return;
        }
        match address {
            IpAddr::V4(v4) => self.set_host(v4.to_bits(), interface, address, mac.is_some()),
            IpAddr::V6(v6) => self.set_host(v6.to_bits(), interface, address, mac.is_some()),
        }
    }

    /// The MAC address of a neighbour that is known.
    pub fn neighbour(&self, interface: u16, address: IpAddr) -> Option<[u8; 6]> {
        self.hops.adjacencies.mac(interface, address)
    }

    fn set_host<A: Family>(&mut self, key: A, interface: u16, address: IpAddr, known: bool) {
        let mut id = None;
        if known {
            // Without a number there is no host route; the neighbour is found by its name.
            let Ok(new) = self.hops.create(A::V4, true) else { return };
            let path = super::Path { interface, gateway: Some(address), weight: 1 };
            self.hops.set(new, &RouteTarget::Paths(vec![path]));
            id = Some(new);
        }
        let half = A::half_mut(&mut self.halves);
        if let Some(before) = half.set_host(key, interface, id, &self.hops) {
            self.hops.destroy(before);
        }
    }

    /// A new next hop, for routes of family `A`. Its number is the caller's until
    /// [`FibBuilder::destroy_hop`].
    pub fn create_hop<A: Family>(&mut self, target: &RouteTarget) -> Result<NextHopId, TableError> {
        let id = self.hops.create(A::V4, false)?;
        self.hops.set(id, target);
        Ok(id)
    }

    /// Changes what a next hop stands for; all its routes follow.
    pub fn set_hop<A: Family>(&mut self, id: NextHopId, target: &RouteTarget) {
        let before = self.hops.link(id);
        self.hops.set(id, target);
        if before != self.hops.link(id) {
            A::half_mut(&mut self.halves).link_changed(id, &self.hops);
        }
    }

    /// Lets a next hop go. No route may name it any more.
    pub fn destroy_hop(&mut self, id: NextHopId) {
        self.hops.destroy(id);
    }

    /// Adds or replaces a route; the next hop that stood there. On an error nothing has changed.
    pub fn insert<A: Family>(
        &mut self,
        prefix: Prefix<A>,
        id: NextHopId,
    ) -> Result<Option<NextHopId>, TableError> {
        let done = A::half_mut(&mut self.halves).insert(prefix, id, &self.hops);
        done.map_err(|error| self.of::<A>(error))
    }

    /// Removes a route; its next hop.
    pub fn remove<A: Family>(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        A::half_mut(&mut self.halves).remove(prefix, &self.hops)
    }

    /// Adds many routes, of equal prefixes the last one; a prefix that has a route gets the new
    /// one. Before [`FibBuilder::freeze`] this is the quick way to a full table. On an error some
    /// routes may be in.
    pub fn load<A: Family>(
        &mut self,
        routes: Vec<(Prefix<A>, NextHopId)>,
    ) -> Result<(), TableError> {
        let done = A::half_mut(&mut self.halves).load(routes, &self.hops);
        done.map_err(|error| self.of::<A>(error))
    }

    /// An error with its family and table, which [`FibBuilder::insert`] and others give.
    fn of<A: Family>(&self, error: TableError) -> TableError {
        TableError::Of { table: self.tables.name::<A>(), error: Box::new(error) }
    }

    /// The next hop of exactly this prefix.
    pub fn get<A: Family>(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        A::half(&self.halves).explicit(prefix, &self.hops)
    }

    /// The longest route for an address.
    pub fn longest_match<A: Family>(&self, address: A) -> Option<(Prefix<A>, NextHopId)> {
        A::half(&self.halves).explicit_match(address, &self.hops)
    }

    /// The longest route of at most `len` bits for an address.
    pub fn longest_match_up_to<A: Family>(
        &self,
        address: A,
        len: u8,
    ) -> Option<(Prefix<A>, NextHopId)> {
        if len >= A::WIDTH {
            return self.longest_match(address);
        }
        A::half(&self.halves).rib().longest_match_up_to(address, len)
    }

    /// All routes behind `after` in order of (address, length), neighbours' host routes left out.
    pub fn routes<A: Family>(
        &self,
        after: Option<Prefix<A>>,
    ) -> impl Iterator<Item = (Prefix<A>, NextHopId)> {
        A::half(&self.halves).explicit_routes(after, &self.hops)
    }

    /// Number of routes in the table, host routes of neighbours included.
    pub fn len<A: Family>(&self) -> usize {
        A::half(&self.halves).rib().len()
    }

    /// Whether the table holds no route.
    pub fn is_empty<A: Family>(&self) -> bool {
        self.len::<A>() == 0
    }

    /// Host routes that a full table refused, since the start.
    pub fn hosts_refused(&self) -> u64 {
        self.halves.v4.hosts_refused + self.halves.v6.hosts_refused
    }

    /// As [`FibBuilder::insert`] for a caller that keeps no numbers: equal targets share a next hop,
    /// which goes with its last route.
    pub fn add_route<A: Family>(
        &mut self,
        prefix: Prefix<A>,
        target: &RouteTarget,
    ) -> Result<(), TableError> {
        let id = self.share::<A>(target)?;
        match self.insert(prefix, id) {
            Ok(before) => {
                if let Some(before) = before {
                    self.unshare(before);
                }
                Ok(())
            }
            Err(error) => {
                self.unshare(id);
                Err(error)
            }
        }
    }

    /// Takes away a route of [`FibBuilder::add_route`]; whether it was there.
    pub fn remove_route<A: Family>(&mut self, prefix: Prefix<A>) -> bool {
        let before = self.remove(prefix);
        if let Some(before) = before {
            self.unshare(before);
        }
        before.is_some()
    }

    fn share<A: Family>(&mut self, target: &RouteTarget) -> Result<NextHopId, TableError> {
        let key = (A::V4, target.clone());
        if let Some((id, routes)) = self.shared.get_mut(&key) {
            *routes += 1;
            return Ok(*id);
        }
        let id = self.create_hop::<A>(target)?;
        self.targets.insert(id, key.clone());
        self.shared.insert(key, (id, 1));
        Ok(id)
    }

    fn unshare(&mut self, id: NextHopId) {
        let Some(key) = self.targets.get(&id) else { return };
        let Some((_, routes)) = self.shared.get_mut(key) else { return };
        *routes -= 1;
        if *routes == 0 {
            self.shared.remove(key);
            self.targets.remove(&id);
            self.hops.destroy(id);
        }
    }
}
