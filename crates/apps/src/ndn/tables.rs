//! What the forwarder reads: name prefixes, next hops, faces, ports.
//!
//! A *face* is a way to a neighbour: an Ethernet port with the neighbour's address or the group of all forwarders,
//! or a pair of UDP addresses. A prefix leads to a next hop, a next hop to faces, best first. An Interest takes the
//! first that is up and is not the one it came by.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use controlplane::tables::{TablePart, each_change};
use device::tables::Change;
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
    /// It was made for who sent first, and follows the neighbour's MAC.
    pub on_demand: bool,
}

/// The ends of a UDP face.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpEnds {
    /// Our address and the neighbour's, of one family.
    pub addresses: [IpAddr; 2],
    /// Our port and the neighbour's.
    pub ports: [u16; 2],
}

/// A physical port, as frames meet it that may be no NDN packets. A port without a description takes frames for any
/// station, and has no twin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NdnPort {
    /// The link is up, and so is the twin.
    pub up: bool,
    /// Its MAC.
    pub mac: [u8; 6],
    /// Frames for other stations are taken too.
    pub any_mac: bool,
    /// Linux has a twin of it, which takes what is not an NDN packet.
    pub twin: bool,
    /// Its addresses. Datagrams to them and to NDN's port are the forwarder's, not the twin's.
    pub addresses: Vec<IpAddr>,
    /// A stranger's Interest in a datagram to one of them gets a face.
    pub on_demand: bool,
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

/// All tables of a forwarder. The default is that of one without faces and routes.
#[derive(Debug, Clone, Default)]
pub struct NdnTables {
    fib: Blob,
    hops: Vec<Vec<u16>>, // by next hop
    faces: Vec<Option<Face>>,
    ports: Vec<Option<NdnPort>>,
    by_arrival: HashMap<Arrived, u16>,
    /// By port: there is no room for another stranger.
    full: Vec<bool>,
    /// Answers to commands, by the components of their names.
    answers: HashMap<Vec<u8>, Arc<[u8]>>,
    /// By worker: how many of its questions control has settled.
    settled: Vec<u64>,
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
    /// A port, or one without a description.
    Port(u16, Option<NdnPort>),
    /// Whether there is no room for another stranger, by port.
    Full(Vec<bool>),
    /// The answer to the command of this name, or none any more.
    Answer(Vec<u8>, Option<Arc<[u8]>>),
    /// Control has settled so many questions of a worker.
    Settled(u16, u64),
}

impl NdnTables {
    /// The prefixes of a [`lookup::names::NameFibBuilder`], without next hops and faces.
    pub fn new(fib: Blob) -> Self {
        Self { fib, ..Self::default() }
    }

    /// The prefixes; `None` where the blob is not such a table.
    pub fn fib(&self) -> Option<NameFib<'_>> {
        NameFib::new(&self.fib)
    }

    /// A face.
    pub fn face(&self, index: u16) -> Option<&Face> {
        self.faces.get(usize::from(index))?.as_ref()
    }

    /// A port; `None` without a description.
    pub fn port(&self, index: u16) -> Option<&NdnPort> {
        self.ports.get(usize::from(index))?.as_ref()
    }

    /// The bytes of the table of prefixes, for devices.
    pub fn blob(&self) -> &Blob {
        &self.fib
    }

    /// Memory of the prefixes, bytes.
    pub fn len_bytes(&self) -> usize {
        self.fib.len_bytes()
    }

    /// The faces of a next hop, best first.
    pub fn hop(&self, next_hop: NextHopId) -> &[u16] {
        self.hops.get(next_hop as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether there is no room for another stranger on a port.
    pub(super) fn is_full(&self, port: u16) -> bool {
        self.full.get(usize::from(port)).is_some_and(|full| *full)
    }

    /// The answer to a command of this name.
    pub(super) fn answer(&self, name: &[u8]) -> Option<&[u8]> {
        self.answers.get(name).map(|packet| &packet[..])
    }

    /// How many questions of a worker control has settled.
    pub(super) fn settled(&self, worker: u16) -> u64 {
        self.settled.get(usize::from(worker)).copied().unwrap_or(0)
    }

    /// The face that a frame came by.
    pub(super) fn arrived_by(&self, arrived: &Arrived) -> Option<u16> {
        self.by_arrival.get(arrived).copied()
    }

    /// The face that an Interest for `next_hop` takes that came by `from`: the first that is up and whose
    /// neighbour's MAC is known, else the first that is up.
    pub(super) fn way(&self, next_hop: NextHopId, from: u16) -> Option<u16> {
        let up = self.hop(next_hop).iter().copied().filter(|face| *face != from);
        let mut up = up.filter_map(|face| Some((face, self.face(face).filter(|face| face.up)?)));
        let (first, face) = up.next()?;
        if face.neighbour_mac.is_some() {
            return Some(first);
        }
        let known = up.find(|(_, face)| face.neighbour_mac.is_some());
        Some(known.map_or(first, |(face, _)| face))
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
                let before = self.faces[at].as_ref().and_then(Face::arrival);
                // Another face may have taken the place meanwhile.
                if let Some(before) = before.filter(|b| self.by_arrival.get(b) == Some(index)) {
                    self.by_arrival.remove(&before);
                }
                if let Some(arrived) = face.as_ref().and_then(Face::arrival) {
                    self.by_arrival.insert(arrived, *index);
                }
                self.faces[at].clone_from(face);
            }
            NdnPatch::Port(index, port) => {
                let at = usize::from(*index);
                if self.ports.len() <= at {
                    self.ports.resize(at + 1, None);
                }
                self.ports[at].clone_from(port);
            }
            NdnPatch::Full(full) => self.full.clone_from(full),
            NdnPatch::Answer(name, Some(packet)) => {
                self.answers.insert(name.clone(), packet.clone());
            }
            NdnPatch::Answer(name, None) => drop(self.answers.remove(name)),
            NdnPatch::Settled(worker, count) => {
                let at = usize::from(*worker);
                if self.settled.len() <= at {
                    self.settled.resize(at + 1, 0);
                }
                self.settled[at] = *count;
            }
        }
    }
}

impl AsRef<NdnTables> for NdnTables {
    fn as_ref(&self) -> &NdnTables {
        self
    }
}

/// The forwarder's part: [`NdnTables`], with the table of prefixes as its one region.
#[derive(Debug)]
pub struct NdnPart;

impl TablePart for NdnPart {
    type Tables = NdnTables;

    const REGIONS: usize = 1;

    fn len_bytes(tables: &NdnTables) -> usize {
        tables.len_bytes()
    }

    fn regions(tables: &NdnTables) -> Vec<Cow<'_, [u32]>> {
        vec![Cow::Borrowed(tables.fib.words())]
    }

    fn changes(patch: &NdnPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        // Faces, ports and next hops' faces belong to what is done on the CPU.
        if let NdnPatch::Fib(patch) = patch {
            each_change(patch, 0, change);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use controlplane::PartImages;
    use device::tables::TableSource;
    use lookup::names::{NameFibBuilder, NameHasher, NameLimits, NameList};
    use lookup::versions::versions;

    use super::*;

    fn name(index: u32) -> NameList {
        let mut list = NameList::new();
        let component = |value: u32| [&[8, 4][..], &value.to_be_bytes()].concat();
        list.push([component(index % 7), component(index)].iter().map(Vec::as_slice));
        list
    }

    /// Applies a change the way a device does.
    fn apply(region: &mut Vec<u32>, change: &Change<'_>) {
        match change {
            Change::Write { at, words } => region[*at..][..words.len()].copy_from_slice(words),
            Change::Fill { at, count, value } => region[*at..][..*count].fill(*value),
            Change::Grow(len) => region.resize((*len).next_multiple_of(16).max(region.len()), 0),
            Change::Replace(words) => *region = words.to_vec(),
        }
    }

    /// A copy of the regions that follows the names' changes is, word for word, what the tables say of themselves.
    #[test]
    fn a_copy_follows_the_names() {
        let limits = NameLimits { prefixes: 5000, name_bytes: 1 << 22 };
        let (mut builder, blob) =
            NameFibBuilder::build(NameHasher::new(1), &name(0), &[1], limits).unwrap();
        let (mut writer, reader) = versions(NdnTables::new(blob));
        let images = PartImages::<NdnPart>::new(writer.changes(), 0);
        let start = reader.pin();
        let mut copy: Vec<_> = images.regions(&start).iter().map(|r| r.to_vec()).collect();
        assert_eq!(copy.len(), 1);
        let (mut at, mut grown) = (start.version(), false);
        drop(start);
        for round in 0..40 {
            let mut patches = Vec::new();
            for index in round * 50..(round + 1) * 50 {
                builder.insert(name(index).get(0), 1 + index, &mut patches).unwrap();
                if index % 3 == 0 {
                    builder.remove(name(index / 2).get(0), &mut patches);
                }
            }
            let face = NdnPatch::Hop(round, vec![1]);
            let patches = patches.into_iter().map(NdnPatch::Fib).chain([face]);
            writer.publish(patches.collect());
            let pin = reader.pin();
            let is_known = images.changes(at, pin.version(), &mut |region, change| {
                assert_eq!(region, 0);
                grown |= matches!(change, Change::Grow(_));
                apply(&mut copy[region], &change);
            });
            assert!(is_known);
            at = pin.version();
            assert!(*images.regions(&pin)[0] == copy[0][..], "round {round}");
        }
        assert!(grown, "the names' region grew on the way");
    }
}
