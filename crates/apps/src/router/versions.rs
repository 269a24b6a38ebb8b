//! The engine's view of the versions of the forwarding tables.

use engine::Versions;
use lookup::fib::Fib;
use lookup::versions::{Pin, Reader};

/// One worker's way to the newest version.
#[derive(Debug)]
pub struct FibVersions(pub Reader<Fib>);

impl Versions for FibVersions {
    type Tables = Fib;
    type Pin = Pin<Fib>;

    #[inline]
    fn pin(&mut self) -> Pin<Fib> {
        self.0.pin()
    }

    #[inline]
    fn number(pin: &Pin<Fib>) -> u64 {
        pin.version()
    }
}
