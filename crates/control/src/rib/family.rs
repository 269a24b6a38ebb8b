//! The RIB's two address families.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::Family;
use lookup::{Address, NextHopId, Prefix};
use smallvec::SmallVec;

/// The candidates of one prefix, the latest one last.
pub(super) type Candidates = SmallVec<[NextHopId; 4]>;

/// Prefixes whose candidates are not simply the one that is installed.
pub(super) type Several<A> = BTreeMap<Prefix<A>, Candidates>;

/// Both families.
#[derive(Debug, Clone, Default)]
pub(super) struct Both {
    pub(super) v4: Several<u32>,
    pub(super) v6: Several<u128>,
}

/// A family, with what the RIB needs of it.
pub(super) trait RibFamily: Family {
    fn several(both: &Both) -> &Several<Self>;
    fn several_mut(both: &mut Both) -> &mut Several<Self>;
    fn net(prefix: Prefix<Self>) -> IpNet;
    /// `None` for the other family.
    fn of(address: IpAddr) -> Option<Self>;
}

impl RibFamily for u32 {
    fn several(both: &Both) -> &Several<u32> {
        &both.v4
    }
    fn several_mut(both: &mut Both) -> &mut Several<u32> {
        &mut both.v4
    }
    fn net(prefix: Prefix<u32>) -> IpNet {
        Ipv4Net::new_assert(prefix.addr().to_ip(), prefix.len()).into()
    }
    fn of(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => Some(v4.to_bits()),
            IpAddr::V6(_) => None,
        }
    }
}

impl RibFamily for u128 {
    fn several(both: &Both) -> &Several<u128> {
        &both.v6
    }
    fn several_mut(both: &mut Both) -> &mut Several<u128> {
        &mut both.v6
    }
    fn net(prefix: Prefix<u128>) -> IpNet {
        Ipv6Net::new_assert(prefix.addr().to_ip(), prefix.len()).into()
    }
    fn of(address: IpAddr) -> Option<u128> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(v6.to_bits()),
        }
    }
}

/// A prefix of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnyPrefix {
    V4(Prefix<u32>),
    V6(Prefix<u128>),
}

impl From<IpNet> for AnyPrefix {
    fn from(net: IpNet) -> AnyPrefix {
        match net {
            IpNet::V4(v4) => AnyPrefix::V4(Prefix::masked(v4.addr().to_bits(), v4.prefix_len())),
            IpNet::V6(v6) => AnyPrefix::V6(Prefix::masked(v6.addr().to_bits(), v6.prefix_len())),
        }
    }
}
