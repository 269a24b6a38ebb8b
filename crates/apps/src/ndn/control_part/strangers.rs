//! Faces on demand: for whoever sends first.
//!
//! A stranger's Interest to one of our addresses gets a face, if its port lets strangers in and there is room. It goes
//! when nothing came by it for the idle timeout, and with it the prefixes that were registered over it. Its number serves
//! again once no pending Interest can know it any more.
//!
//! Live, the counters of workers say which faces received something, looked at once a second. Over captures each packet
//! is looked at before it enters the pipeline, and time is that of packets.

use control::config::{self, Config, FaceLink, Faces, Register};
use controlplane::Interfaces;
use packet::MacAddr;
use packet::ndn::management::is_command;
use packet::ndn::{self, Body};

use super::{FACES_MAX, Known, NdnControl, NdnPatch};
use crate::ndn::frames::{Sender, find};
use crate::ndn::stages::{INTEREST, kind_of};
use crate::ndn::tables::{NdnTables, UdpEnds};

/// Workers' counters are looked at this often.
const SAMPLE_NS: u64 = 1_000_000_000;

/// What the configuration lets the neighbours of a port do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Policy {
    /// Strangers get faces.
    pub(super) on_demand: bool,
    /// Prefixes may be registered.
    pub(super) register: bool,
}

impl Policy {
    /// Those of all ports, by number.
    pub(super) fn all(config: &Config, interfaces: &Interfaces) -> Vec<Policy> {
        let of = |number| {
            let name = interfaces.name(number);
            let own = config.port(name).filter(|_| interfaces.is_port(number));
            let own = own.filter(|_| config.pipeline_of(name).uses("ndn"));
            own.map_or(Policy::default(), |port| Policy {
                on_demand: port.faces == Faces::OnDemand,
                register: port.register == Register::Any,
            })
        };
        (0..interfaces.count() as u16).map(of).collect()
    }
}

/// All of them.
#[derive(Debug, Clone)]
pub(super) struct Strangers {
    /// Faces at a time.
    max: usize,
    /// Numbers of faces, those of the configuration among them.
    pub(super) numbers: usize,
    /// How many there are now,
    pub(super) count: usize,
    /// and how many there were since the start.
    made: u64,
    pub(super) idle_ns: u64,
    /// The longest lifetime of a pending Interest.
    lifetime_ns: u64,
    /// What workers know of room on each port.
    full: Vec<bool>,
    /// Nothing ends before this time.
    pub(super) timer_ns: u64,
    sampled_ns: u64,
}

/// One face on demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// When something came by it.
    used_ns: u64,
    /// What had come by it then.
    received: u64,
    /// It is gone, and from this time on its number may serve again.
    free_ns: Option<u64>,
}

/// The idle timeout of a configuration.
pub(super) fn idle_ns(config: &Config) -> u64 {
    config.ndn.idle_timeout.as_nanos() as u64
}

impl Strangers {
    pub(super) fn of(config: &Config) -> Self {
        let max = config.ndn.on_demand_faces as usize;
        Self {
            max,
            // As many again may be gone and known to pending Interests.
            numbers: FACES_MAX + 2 * max,
            count: 0,
            made: 0,
            idle_ns: idle_ns(config),
            lifetime_ns: config.ndn.lifetime_max.as_nanos() as u64,
            full: Vec::new(),
            timer_ns: u64::MAX,
            sampled_ns: 0,
        }
    }
}

impl NdnControl {
    /// The face of a stranger: one that there is, or a new one.
    pub(super) fn stranger(
        &mut self,
        port: u16,
        ends: UdpEnds,
        mac: [u8; 6],
        now_ns: u64,
    ) -> Option<u16> {
        if let Some(number) = self.face_of(port, ends) {
            return Some(number);
        }
        let number = self.free_number(now_ns).filter(|_| self.policy(port).on_demand)?;
        if self.shares().get(usize::from(port)).is_some_and(|own| *own >= self.free()) {
            return None;
        }
        self.strangers.made += 1;
        let name = format!("@{}", self.strangers.made);
        let link = FaceLink::Udp {
            local: (ends.addresses[0], ends.ports[0]).into(),
            remote: (ends.addresses[1], ends.ports[1]).into(),
            gateway: None,
            mac: Some(MacAddr(mac)),
        };
        let port = self.interfaces.name(port).to_owned();
        let configured = Some(config::Face { name: name.clone(), port, link });
        let totals = self.face_totals(number as u16);
        let demand = Demand { used_ns: now_ns, received: totals[0] + totals[1], free_ns: None };
        let known = Known { name, configured, published: None, demand: Some(demand) };
        match self.faces.get_mut(number) {
            Some(place) => *place = known,
            None => self.faces.push(known),
        }
        // What another face of this number counted is not this one's.
        if self.base.1.len() <= number {
            self.base.1.resize(number + 1, <_>::default());
        }
        self.base.1[number] = totals;
        self.refresh_face(number);
        self.strangers.count += 1;
        let ends_ns = now_ns.saturating_add(self.strangers.idle_ns);
        self.strangers.timer_ns = self.strangers.timer_ns.min(ends_ns);
        self.set_full(now_ns);
        Some(number as u16)
    }

    /// The face between these ends.
    fn face_of(&self, port: u16, ends: UdpEnds) -> Option<u16> {
        let is_it = |known: &Known| {
            known.published.as_ref().is_some_and(|face| (face.port, face.udp) == (port, Some(ends)))
        };
        self.faces.iter().position(is_it).map(|at| at as u16)
    }

    /// The number that a new face has; `None` if there is no room.
    fn free_number(&self, now_ns: u64) -> Option<usize> {
        if self.strangers.count >= self.strangers.max {
            return None;
        }
        let is_free = |known: &Known| {
            known.demand.and_then(|demand| demand.free_ns).is_some_and(|free| free <= now_ns)
        };
        let used = self.faces.iter().position(is_free);
        let made = self.faces.iter().filter(|known| known.demand.is_some()).count();
        used.or_else(|| (made < 2 * self.strangers.max).then_some(self.faces.len()))
    }

    /// How many faces on demand there may still be. A port has no more of them than that, so that one whose neighbours
    /// make them without end gets half of all, and leaves the others room.
    fn free(&self) -> usize {
        self.strangers.max.saturating_sub(self.strangers.count)
    }

    /// The faces on demand of each port.
    fn shares(&self) -> Vec<usize> {
        let mut shares = vec![0; self.ports.len()];
        let is_there = |known: &&Known| known.demand.is_some_and(|demand| demand.free_ns.is_none());
        for face in self.faces.iter().filter(is_there).filter_map(|known| known.published.as_ref())
        {
            if let Some(own) = shares.get_mut(usize::from(face.port)) {
                *own += 1;
            }
        }
        shares
    }

    /// Tells workers on which ports there is room.
    fn set_full(&mut self, now_ns: u64) {
        let (is_full, free) = (self.free_number(now_ns).is_none(), self.free());
        let full: Vec<bool> = self.shares().iter().map(|own| is_full || *own >= free).collect();
        if full != self.strangers.full {
            self.strangers.full.clone_from(&full);
            self.changed.push(NdnPatch::Full(full));
        }
    }

    /// A face on demand sends from another MAC now.
    pub(super) fn moved(&mut self, number: u16, mac: [u8; 6]) {
        let Some(known) = self.faces.get_mut(usize::from(number)) else { return };
        let link = known.configured.as_mut().filter(|_| known.demand.is_some());
        if let Some(FaceLink::Udp { mac: own, .. }) = link.map(|face| &mut face.link) {
            *own = Some(MacAddr(mac));
            self.refresh_face(usize::from(number));
        }
    }

    /// Faces on demand go that the port does not want any more: strangers are not let in, or its address is another one.
    pub(super) fn dismiss(&mut self, port: u16) {
        let Some((own, _)) = self.ports.get(usize::from(port)) else { return };
        let is_gone = |known: &Known| {
            known.demand.is_some()
                && known.published.as_ref().is_some_and(|face| {
                    let is_own = |ends: UdpEnds| own.addresses.contains(&ends.addresses[0]);
                    face.port == port && !(own.on_demand && face.udp.is_some_and(is_own))
                })
        };
        let gone: Vec<_> = (0..self.faces.len()).filter(|at| is_gone(&self.faces[*at])).collect();
        gone.into_iter().for_each(|number| self.remove_face(number));
    }

    /// Publishes what the configuration now lets strangers do.
    pub(super) fn set_policy(&mut self, number: u16) {
        let on_demand = self.policy(number).on_demand;
        let Some((port, _)) = self.ports.get_mut(usize::from(number)) else { return };
        if port.on_demand != on_demand {
            port.on_demand = on_demand;
            self.changed.push(NdnPatch::Port(number, Some(port.clone())));
        }
        self.dismiss(number);
    }

    fn remove_face(&mut self, number: usize) {
        let lifetime_ns = self.strangers.lifetime_ns;
        let known = &mut self.faces[number];
        let Some(demand) = known.demand.as_mut().filter(|demand| demand.free_ns.is_none()) else {
            return;
        };
        demand.free_ns = Some(demand.used_ns.saturating_add(lifetime_ns));
        known.configured = None;
        self.strangers.count -= 1;
        self.refresh_face(number);
        self.forget_face(number as u16);
        self.strangers.timer_ns = 0; // there may be room now
    }

    /// Live: which faces have received something.
    pub(super) fn sample(&mut self, now_ns: u64) {
        if self.strangers.count == 0 || now_ns < self.strangers.sampled_ns + SAMPLE_NS {
            return;
        }
        self.strangers.sampled_ns = now_ns;
        for number in 0..self.faces.len() {
            if self.faces[number].demand.is_none() {
                continue;
            }
            let totals = self.face_totals(number as u16);
            let received = totals[0] + totals[1];
            if let Some(demand) = &mut self.faces[number].demand
                && demand.received != received
            {
                (demand.received, demand.used_ns) = (received, now_ns);
            }
        }
    }

    /// Ends what has had its time: faces, registered prefixes, answers.
    pub(super) fn expire(&mut self, now_ns: u64) {
        if now_ns < self.strangers.timer_ns {
            return;
        }
        let idle_ns = self.strangers.idle_ns;
        let ends_ns = |known: &Known| {
            let demand = known.demand.filter(|demand| demand.free_ns.is_none());
            demand.map(|demand| demand.used_ns.saturating_add(idle_ns))
        };
        for number in 0..self.faces.len() {
            if ends_ns(&self.faces[number]).is_some_and(|ends_ns| ends_ns <= now_ns) {
                self.remove_face(number);
            }
        }
        self.expire_registrations(now_ns);
        self.set_full(now_ns);
        let free_ns = |known: &Known| known.demand?.free_ns.filter(|free_ns| *free_ns > now_ns);
        let faces = self.faces.iter().filter_map(|known| ends_ns(known).or_else(|| free_ns(known)));
        let next_ns = faces.chain(self.registrations.next_ns()).min();
        self.strangers.timer_ns = next_ns.unwrap_or(u64::MAX);
    }

    /// Over captures: what a worker would ask of a packet. `false`, and nothing has changed, where it must begin a burst.
    /// `tables` may not yet say what has ended before this packet.
    pub(super) fn look_ahead(
        &mut self,
        packet: &chunk::Packet,
        is_first: bool,
        tables: &NdnTables,
    ) -> bool {
        let Ok((at, sender)) = find(packet, tables) else { return true };
        let bytes = packet.data().get(at..).unwrap_or_default();
        let (Ok((kind, _)), Ok(read)) = (kind_of(bytes), ndn::Packet::new_checked(bytes)) else {
            return true; // it does not go on
        };
        let command = match &read.body {
            Body::Interest(interest) if is_command(&interest.name()) => Some(interest.bytes()),
            _ => None,
        };
        let mac = packet.data().get(6..12).and_then(|mac| <[u8; 6]>::try_from(mac).ok());
        let mac = mac.unwrap_or_default();
        let stranger = match sender {
            Sender::Stranger(ends) => Some(ends),
            Sender::Face(face) if self.is_gone(face) => tables.face(face).and_then(|face| face.udp),
            Sender::Face(_) => None,
        };
        let face = match (sender, stranger) {
            (_, Some(ends)) if kind == INTEREST => {
                if !is_first {
                    return false;
                }
                self.stranger(packet.port, ends, mac, packet.time_ns)
            }
            (Sender::Face(face), None) => Some(face),
            _ => None,
        };
        let Some(face) = face else { return true };
        let published =
            self.faces.get(usize::from(face)).and_then(|known| known.published.as_ref());
        let is_moved =
            published.is_some_and(|face| face.on_demand && face.neighbour_mac != Some(mac));
        if (is_moved || command.is_some()) && !is_first {
            return false;
        }
        if is_moved {
            self.moved(face, mac);
        }
        if let Some(demand) = self.faces.get_mut(usize::from(face)).and_then(|k| k.demand.as_mut())
        {
            demand.used_ns = packet.time_ns;
        }
        if let Some(command) = command {
            self.command(face, command, packet.time_ns);
        }
        true
    }

    /// Whether a face on demand has ended.
    fn is_gone(&self, face: u16) -> bool {
        let known = self.faces.get(usize::from(face));
        known.and_then(|known| known.demand).is_some_and(|demand| demand.free_ns.is_some())
    }
}
