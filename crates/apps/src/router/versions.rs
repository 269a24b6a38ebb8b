//! The forwarding tables as a part of the program's.

use std::borrow::Cow;

use controlplane::tables::{PartImages, TablePart, each_change};
use device::tables::Change;
use kernels::image::router;
use lookup::fib;
use lookup::fib::{Fib, FibPatch};

/// The router's part: [`Fib`], with the regions of [`kernels::image::router`].
#[derive(Debug)]
pub struct RouterPart;

/// The forwarding tables by themselves, as a device copies them and follows their changes.
pub type FibImages = PartImages<RouterPart>;

impl TablePart for RouterPart {
    type Tables = Fib;

    const REGIONS: usize = router::REGIONS;

    fn len_bytes(tables: &Fib) -> usize {
        tables.len_bytes()
    }

    fn regions(tables: &Fib) -> Vec<Cow<'_, [u32]>> {
        tables.regions().into()
    }

    fn changes(patch: &FibPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        patch.regions(&mut |region, patch| each_change(&patch, region, change));
        true
    }
}

// The kernels' numbers are the router's own.
const _: () = {
    use super::columns::{Decision, flags};
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
