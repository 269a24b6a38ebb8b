//! A plain switch: the twin of the pipeline, one frame at a time, maps and vectors of bytes, no table and no
//! column in common with it.
//!
//! Storm control is left out, for it depends on time; the pipeline's is tested by itself.

use std::collections::HashMap;

use chunk::DropReason;
use lookup::bridge::{BridgePort, Learned, PortMode, StationEvent};

use super::reasons;

/// A plain switch.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    /// By number.
    pub ports: Vec<Option<BridgePort>>,
    /// By VLAN and address: port, and whether it is static.
    pub stations: HashMap<(u16, [u8; 6]), (u16, bool)>,
    /// Learned stations, in the order in which they give way.
    pub learned: Vec<LearnedStation>,
    /// Maximum number of stations.
    pub room: usize,
}

/// A learned station: VLAN and address, its port, when it was seen last, and when it had been seen last when it was put
/// at the end of the order; seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedStation {
    key: (u16, [u8; 6]),
    port: u16,
    seen_s: u32,
    looked_s: u32,
}

/// What comes of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Ports and bytes that leave, in the order of the ports; or why none does.
    pub sent: Result<Vec<(u16, Vec<u8>)>, DropReason>,
    /// The event that control gets.
    pub event: Option<StationEvent>,
}

/// A frame taken apart.
struct Frame {
    dst: [u8; 6],
    src: [u8; 6],
    /// Tag control information.
    tag: Option<u16>,
    /// EtherType and all behind it.
    rest: Vec<u8>,
}

impl Reference {
    /// What comes of `bytes` that come in by `port`.
    pub fn outcome(&mut self, port: u16, bytes: &[u8], now_s: u32) -> Outcome {
        let nothing = |reason| Outcome { sent: Err(reason), event: None };
        let frame = match take_apart(bytes) {
            Ok(frame) => frame,
            Err(reason) => return nothing(reason),
        };
        let Some(record) = self.port(port).filter(|record| record.up).cloned() else {
            return nothing(packet::reasons::INTERFACE_DOWN);
        };
        let record = &record;
        let id = frame.tag.map(|tci| tci % 4096).filter(|id| *id > 0);
        let vlan = match (&record.mode, id) {
            (PortMode::Access(vlan), None) => *vlan,
            (PortMode::Trunk { native: Some(vlan), .. }, None) => *vlan,
            (PortMode::Trunk { allowed, .. }, Some(id)) if allowed.iter().any(|v| v == id) => id,
            _ => return nothing(reasons::VLAN_NOT_ALLOWED),
        };
        let is_of_port = self.stations.get(&(vlan, frame.src)).is_some_and(|(at, _)| *at == port);
        if !is_of_port && self.is_port_full(port) && record.drops_extra {
            return nothing(reasons::STATION_LIMIT);
        }
        if is_of_port {
            self.see((vlan, frame.src), now_s);
        }
        let event = self.event(port, vlan, &frame, record);
        let priority = frame.tag.unwrap_or(0) / 4096;
        let tci = priority * 4096 + vlan;
        let leave = |to: u16| {
            let tagged = carries(self.port(to)?, vlan)?;
            Some((to, put_together(&frame, tagged.then_some(tci))))
        };
        let sent = match self.stations.get(&(vlan, frame.dst)) {
            Some((to, _)) if *to == port => Err(reasons::SAME_PORT),
            Some((to, _)) => leave(*to).map(|one| vec![one]).ok_or(reasons::VLAN_NOT_ALLOWED),
            None => {
                let others = (0..self.ports.len() as u16).filter(|to| *to != port);
                let all: Vec<_> = others.filter_map(leave).collect();
                if all.is_empty() { Err(reasons::FLOOD_NOWHERE) } else { Ok(all) }
            }
        };
        Outcome { sent, event }
    }

    fn event(
        &self,
        port: u16,
        vlan: u16,
        frame: &Frame,
        record: &BridgePort,
    ) -> Option<StationEvent> {
        let tells = match self.stations.get(&(vlan, frame.src)) {
            Some((at, is_static)) => *at != port && !is_static,
            None => self.stations.len() < self.room || !self.learned.is_empty(),
        };
        let event = StationEvent { vlan, mac: frame.src, port };
        let tells = tells && !self.is_port_full(port);
        (tells && record.learning).then_some(event)
    }

    /// What control does with an event.
    pub fn learn(&mut self, event: StationEvent, now_s: u32) -> Learned {
        let StationEvent { vlan, mac, port } = event;
        let key = (vlan, mac);
        let known = self.stations.get(&key).copied();
        if known.is_some_and(|(_, is_static)| is_static) {
            return Learned::Static;
        }
        if known.is_some_and(|(at, _)| at == port) {
            self.see(key, now_s);
            return Learned::Known;
        }
        if self.is_port_full(port) {
            return Learned::Refused;
        }
        if known.is_none() && self.stations.len() >= self.room {
            let most = self.learned.iter().map(|station| self.count(station.port)).max();
            let Some(most) = most else { return Learned::Refused };
            let has_most = |port: &u16| self.count(*port) == most;
            let largest = Some(port).filter(has_most).or_else(|| (0..u16::MAX).find(has_most));
            largest.into_iter().for_each(|port| self.evict(port));
        }
        self.learned.retain(|station| station.key != key);
        self.learned.push(LearnedStation { key, port, seen_s: now_s, looked_s: now_s });
        match self.stations.insert(key, (port, false)) {
            Some(_) => Learned::Moved,
            None => Learned::New,
        }
    }

    /// Takes the stations away by which a port is over its limit.
    pub fn shed(&mut self, port: u16) {
        while self.limit(port).is_some_and(|limit| self.count(port) > limit) {
            self.evict(port);
        }
    }

    /// Takes away the first station of a port that was not seen since it was looked at; those that were go to the end, 64
    /// of them at most.
    fn evict(&mut self, port: u16) {
        for chance in 0..=64 {
            let first = self.learned.iter().position(|station| station.port == port);
            let Some(first) = first else { return };
            let station = self.learned.remove(first);
            if chance == 64 || station.seen_s == station.looked_s {
                self.stations.remove(&station.key);
                return;
            }
            self.learned.push(LearnedStation { looked_s: station.seen_s, ..station });
        }
    }

    fn see(&mut self, key: (u16, [u8; 6]), now_s: u32) {
        let found = self.learned.iter_mut().find(|station| station.key == key);
        found.into_iter().for_each(|station| station.seen_s = now_s);
    }

    fn count(&self, port: u16) -> usize {
        self.learned.iter().filter(|station| station.port == port).count()
    }

    fn limit(&self, port: u16) -> Option<usize> {
        self.port(port)?.stations.map(|limit| limit as usize)
    }

    fn is_port_full(&self, port: u16) -> bool {
        self.limit(port).is_some_and(|limit| self.count(port) >= limit)
    }

    fn port(&self, port: u16) -> Option<&BridgePort> {
        self.ports.get(usize::from(port))?.as_ref()
    }
}

/// Whether a port carries a VLAN, and then whether with a tag.
fn carries(record: &BridgePort, vlan: u16) -> Option<bool> {
    if !record.up {
        return None;
    }
    match &record.mode {
        PortMode::Access(own) if *own == vlan => Some(false),
        PortMode::Trunk { native: Some(native), .. } if *native == vlan => Some(false),
        PortMode::Trunk { allowed, .. } if allowed.iter().any(|v| v == vlan) => Some(true),
        _ => None,
    }
}

fn take_apart(bytes: &[u8]) -> Result<Frame, DropReason> {
    if bytes.len() < 14 {
        return Err(packet::reasons::TRUNCATED);
    }
    let mac = |at: usize| -> [u8; 6] { std::array::from_fn(|i| bytes[at + i]) };
    let (dst, src) = (mac(0), mac(6));
    if src[0] % 2 == 1 {
        return Err(packet::reasons::SOURCE_MAC_GROUP);
    }
    if src == [0; 6] {
        return Err(reasons::SOURCE_MAC_ZERO);
    }
    if dst[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && dst[5] <= 0x0f {
        return Err(reasons::BRIDGE_RESERVED);
    }
    if bytes[12..14] != [0x81, 0x00] {
        return Ok(Frame { dst, src, tag: None, rest: bytes[12..].to_vec() });
    }
    if bytes.len() < 18 {
        return Err(packet::reasons::VLAN_TRUNCATED);
    }
    let tag = Some(u16::from_be_bytes([bytes[14], bytes[15]]));
    Ok(Frame { dst, src, tag, rest: bytes[16..].to_vec() })
}

fn put_together(frame: &Frame, tag: Option<u16>) -> Vec<u8> {
    let mut bytes = [frame.dst, frame.src].concat();
    if let Some(tci) = tag {
        bytes.extend([0x81, 0x00]);
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend(&frame.rest);
    bytes
}
