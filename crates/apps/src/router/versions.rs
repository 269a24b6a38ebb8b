//! A device's view of the versions of the forwarding tables.

use std::borrow::Cow;

use device::tables::{Change, TableSource};
use lookup::fib;
use lookup::fib::{Fib, FibPatch};
use lookup::versions::Changes;

use crate::tables::each_change;

/// The forwarding tables as a device copies them and follows their changes.
#[derive(Debug)]
pub struct FibImages(pub Changes<FibPatch>);

impl TableSource<Fib> for FibImages {
    fn regions<'a>(&self, tables: &'a Fib) -> Vec<Cow<'a, [u32]>> {
        tables.regions().into()
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let Some(versions) = self.0.between(from, to) else { return false };
        for patch in versions.iter().flat_map(|patches| patches.iter()) {
            patch.regions(&mut |region, patch| each_change(&patch, region, change));
        }
        true
    }
}

// The kernels' numbers are the router's own.
const _: () = {
    use super::columns::{Decision, flags};
    use kernels::image::router;
    assert!(flags::IPV4 == kernels::flags::IPV4 && flags::IPV6 == kernels::flags::IPV6);
    assert!(flags::LINK_LOCAL == kernels::flags::LINK_LOCAL);
    assert!(Decision::ADJACENCIES_MAX == kernels::decision::ADJACENCIES_MAX);
    assert!(Decision::Connected(0).encode() == kernels::decision::CONNECTED);
    assert!(Decision::Local(0).encode() == kernels::decision::LOCAL);
    assert!(Decision::Broadcast(0).encode() == kernels::decision::BROADCAST);
    assert!(Decision::NoRoute.encode() == kernels::decision::NO_ROUTE);
    assert!(Decision::Unreachable.encode() == kernels::decision::UNREACHABLE);
    assert!(fib::image::V4 == router::ROUTES4 && fib::image::V6 == router::ROUTES6);
    assert!(fib::image::NEXT_HOPS == router::NEXT_HOPS);
    assert!(fib::image::GROUP_MEMBERS == router::GROUP_MEMBERS);
    assert!(fib::image::ADJACENCIES == router::ADJACENCIES);
    assert!(fib::image::INTERFACES == router::REVERSE_PATH);
};
