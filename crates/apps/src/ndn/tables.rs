//! What the forwarder reads: name prefixes, next hops, faces.
//!
//! A *face* is a way to a neighbour: an Ethernet port with the neighbour's address or the group of all forwarders,
//! or a pair of UDP addresses. A prefix leads to a next hop, a next hop to faces, best first. An Interest takes the
//! first that is up and is not the one it came by.

use std::collections::HashMap;
use std::net::IpAddr;

use lookup::names::NameFib;
use lookup::versions::Patchable;
use lookup::{Blob, NextHopId, Patch};

/// A way to a neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Face {
    /// Its name, for people.
    pub name: String,
    /// Packets may go there.
    pub up: bool,
    /// The physical port.
    pub port: u16,
    /// Bytes of the largest payload of a frame.
    pub mtu: u16,
    /// The port's MAC.
    pub mac: [u8; 6],
    /// The neighbour's MAC, or that of the gateway to it, or a group's; `None` while it is not known.
    pub neighbour_mac: Option<[u8; 6]>,
    /// Addresses and ports, ours first, of a UDP face.
    pub udp: Option<UdpEnds>,
}

/// The ends of a UDP face.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpEnds {
    /// Our address and the neighbour's, of one family.
    pub addresses: [IpAddr; 2],
    /// Our port and the neighbour's.
    pub ports: [u16; 2],
}

/// How a received frame names its face.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Arrived {
    /// By this port, from this MAC; a group's where it was sent to a group.
    Ethernet(u16, [u8; 6]),
    /// By this port, between these ends.
    Udp(u16, UdpEnds),
}

impl Face {
    fn arrival(&self) -> Option<Arrived> {
        match self.udp {
            Some(ends) => Some(Arrived::Udp(self.port, ends)),
            None => self.neighbour_mac.map(|mac| Arrived::Ethernet(self.port, mac)),
        }
    }
}

/// All tables of a forwarder.
#[derive(Debug, Clone)]
pub struct NdnTables {
    fib: Blob,
    hops: Vec<Vec<u16>>, // by next hop
    faces: Vec<Option<Face>>,
    by_arrival: HashMap<Arrived, u16>,
}

/// A change of [`NdnTables`].
#[derive(Debug, Clone)]
pub enum NdnPatch {
    /// Of the table of prefixes.
    Fib(Patch),
    /// The faces of a next hop, best first.
    Hop(NextHopId, Vec<u16>),
    /// A face, or none of this number.
    Face(u16, Option<Face>),
}

impl NdnTables {
    /// The prefixes of a [`lookup::names::NameFibBuilder`], without next hops and faces.
    pub fn new(fib: Blob) -> Self {
        Self { fib, hops: Vec::new(), faces: Vec::new(), by_arrival: HashMap::new() }
    }

    /// The prefixes; `None` where the blob is no such table.
    pub fn fib(&self) -> Option<NameFib<'_>> {
        NameFib::new(&self.fib)
    }

    /// A face.
    pub fn face(&self, index: u16) -> Option<&Face> {
        self.faces.get(usize::from(index))?.as_ref()
    }

    /// The faces of a next hop, best first.
    pub fn hop(&self, next_hop: NextHopId) -> &[u16] {
        self.hops.get(next_hop as usize).map_or(&[], Vec::as_slice)
    }

    /// The face that a frame came by.
    pub(super) fn arrived_by(&self, arrived: &Arrived) -> Option<u16> {
        self.by_arrival.get(arrived).copied()
    }

    /// The face that an Interest for `next_hop` takes that came by `from`.
    pub(super) fn way(&self, next_hop: NextHopId, from: u16) -> Option<u16> {
        let is_good = |face: &&u16| **face != from && self.face(**face).is_some_and(|face| face.up);
        self.hop(next_hop).iter().find(is_good).copied()
    }
}

impl Patchable for NdnTables {
    type Patch = NdnPatch;

    fn apply(&mut self, patch: &NdnPatch) {
        match patch {
            NdnPatch::Fib(patch) => self.fib.apply(std::slice::from_ref(patch)),
            NdnPatch::Hop(next_hop, faces) => {
                let index = *next_hop as usize;
                if self.hops.len() <= index {
                    self.hops.resize(index + 1, Vec::new());
                }
                self.hops[index].clone_from(faces);
            }
            NdnPatch::Face(index, face) => {
                let at = usize::from(*index);
                if self.faces.len() <= at {
                    self.faces.resize(at + 1, None);
                }
                if let Some(arrived) = self.faces[at].as_ref().and_then(Face::arrival) {
                    self.by_arrival.remove(&arrived);
                }
                if let Some(arrived) = face.as_ref().and_then(Face::arrival) {
                    self.by_arrival.insert(arrived, *index);
                }
                self.faces[at].clone_from(face);
            }
        }
    }
}

impl AsRef<NdnTables> for NdnTables {
    fn as_ref(&self) -> &NdnTables {
        self
    }
}
