//! The way of a header, table by table.

use super::view::*;
use crate::explain::Explained;
use crate::reduction::explain::{Way, class, rank};
use crate::reduction::frame::*;

impl Rfc<'_> {
    /// Which table is read at which entry, and which class is there.
    ///
    /// # Panics
    /// For a header of another width.
    pub(crate) fn explain(&self, header: &[u32]) -> Explained {
        let header = header.first_chunk::<WORDS>().expect("a header of four words");
        let mut way = Way::new(&self.frame, &NAMES);
        let addresses = way.addresses(header, false);
        let [.., sport, dport, proto] = halves(header);
        let (sport, dport) = (way.part(SPORT, sport), way.part(DPORT, dport));
        let proto = way.part(PROTO, proto);
        let ports = way.cross(1, PORTS, (sport, dport), class);
        let tail = way.cross(2, TAILS, (ports, proto), class);
        let addresses = way.cross(2, ADDRESSES, addresses, class);
        let number = way.cross(3, RESULT, (addresses, tail), rank);
        let found = way.rule(number);
        Explained { steps: way.steps, end: "the tree has four phases", found }
    }
}
