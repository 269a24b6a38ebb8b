//! Stage `bridge_out`: learning, and out by the right ports.
//!
//! | | |
//! | --- | --- |
//! | reads | `flags`, `tci`, `source_key`, `source`, `destination` (in `post_shade`) |
//! | forward | out by the station's port, or by the last one of a flood |
//! | drop | `station_limit`, `same_port`, `vlan_not_allowed`, `flood_nowhere`, `storm_control`, `no_cells` |
//! | emits | the other copies of a flood, one for each port |
//!
//! What the table says of a destination is checked against its port's VLANs here, so that an entry that is out
//! of date, or a number that a broken device wrote, misdirects nothing.

use std::sync::Arc;

use chunk::{Chunk, Columns, Declaration, DropReason, Packet, ReasonBlock, Verdict};
use engine::{Context, Phases, Stage};
use lookup::bridge::{FloodKind, Station, StationEvent, SwitchTables, split_key};

use super::SwitchPipeline;
use super::columns::{SwitchColumns, flags, is_live, vlan};
use super::counters::SwitchCounters;
use super::reasons;
use super::stations::Stations;
use crate::router::frames::{push_tags, strip_tags};

/// Tag protocol identifier of a customer tag.
const TPID: u16 = 0x8100;

/// Bytes of a link header with a tag.
const TAGGED_LEN: usize = 18;

/// The stage.
pub struct BridgeOut {
    stations: Stations,
    learns_ahead: bool,
    counters: Arc<SwitchCounters>,
}

impl BridgeOut {
    /// A stage of one worker.
    pub fn new(options: &SwitchPipeline) -> Self {
        let counters = options.counters.clone();
        let stations =
            Stations::new(options.events.clone(), options.waiting.clone(), counters.clone());
        Self { stations, learns_ahead: options.learns_ahead, counters }
    }
}

impl<T: AsRef<SwitchTables> + Send + Sync + 'static> Stage<T> for BridgeOut {
    fn name(&self) -> &'static str {
        "bridge_out"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[SwitchColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }

    /// Headers are all that is looked at, and all that is changed.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn needs_one_worker(&self, tables: &T) -> Option<&'static str> {
        match tables.as_ref().has_storm_control() {
            true => Some("storm control counts the flooded frames of a port, which workers share"),
            false => (!self.learns_ahead).then_some("it learns stations by the order of frames"),
        }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let tables = cx.tables.as_ref();
        let now_s = (cx.now_ns / 1_000_000_000) as u32;
        let view = SwitchColumns::view(&mut chunk.rows);
        for (verdict, source) in view.verdict.iter().zip(&*view.source) {
            if is_live(*verdict) && Station(*source).is_known() {
                tables.seen().prefetch(Station(*source).record());
            }
        }
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            if !is_live(view.verdict[row]) {
                continue;
            }
            let (port, bits, tci) = (packet.port, view.flags[row], view.tci[row]);
            let source = Station(view.source[row]);
            let is_of_port = source.is_known() && source.port() == port;
            if !is_of_port && tables.drops_extra(port) {
                view.verdict[row] = Verdict::drop(reasons::STATION_LIMIT).0;
                continue;
            }
            if !self.learns_ahead {
                self.learn(port, view.source_key[row], source, tables, (now_s, cx.now_ns));
            }
            let destination = Station(view.destination[row]);
            let arrival_ns = cx.arrival_ns(packet);
            let result = if destination.is_known() {
                deliver(packet, destination.port(), port, bits, tci, tables)
            } else {
                let kind = match bits {
                    _ if bits & flags::BROADCAST != 0 => FloodKind::Broadcast,
                    _ if bits & flags::GROUP != 0 => FloodKind::Multicast,
                    _ => FloodKind::Unknown,
                };
                let flood = Flood { tables, port, bits, tci };
                if tables.may_flood(port, kind, arrival_ns) {
                    let emitted = &mut chunk.emitted;
                    flood.out(packet, cx.pool, &self.counters, |to, copy| {
                        let verdict = Verdict::forward(to);
                        emitted.push(chunk::Emitted { cause: row as u16, verdict, packet: copy });
                    })
                } else {
                    Err(reasons::STORM_CONTROL)
                }
            };
            view.verdict[row] = match result {
                Ok(to) => Verdict::forward(to).0,
                Err(reason) => Verdict::drop(reason).0,
            };
        }
    }
}

impl BridgeOut {
    /// Refreshes a known station; sends an event for one that is new or has moved.
    #[inline(always)]
    fn learn(
        &mut self,
        port: u16,
        key: u64,
        station: Station,
        tables: &SwitchTables,
        (now_s, now_ns): (u32, u64),
    ) {
        if station.is_known() {
            if station.port() == port {
                return tables.seen().touch(station.record(), now_s);
            }
            if station.is_static() {
                return;
            }
        }
        self.tell(port, key, station, tables, now_ns);
    }

    #[cold]
    fn tell(&mut self, port: u16, key: u64, station: Station, tables: &SwitchTables, now_ns: u64) {
        if !tables.port(port).is_some_and(|record| record.learning) {
            return;
        }
        if tables.is_port_full(port) {
            return self.counters.port_full.add(1);
        }
        if !station.is_known() && tables.options().is_full {
            return self.counters.table_full.add(1);
        }
        let (vlan, mac) = split_key(key);
        let replaces = !station.is_known() && tables.options().replaces;
        self.stations.send(StationEvent { vlan, mac, port }, replaces, now_ns);
    }
}

/// Sends a frame to a station.
#[inline(always)]
fn deliver(
    packet: &mut Packet,
    to: u16,
    from: u16,
    bits: u16,
    tci: u16,
    tables: &SwitchTables,
) -> Result<u16, DropReason> {
    if to == from {
        return Err(reasons::SAME_PORT);
    }
    let tagged = tables.port(to).and_then(|record| record.egress(vlan(tci)));
    let tagged = tagged.ok_or(reasons::VLAN_NOT_ALLOWED)?;
    if retag(packet, bits, tci, tagged) { Ok(to) } else { Err(chunk::reasons::NO_CELLS) }
}

/// A frame that goes to all ports of its VLAN but its own.
struct Flood<'a> {
    tables: &'a SwitchTables,
    port: u16,
    bits: u16,
    tci: u16,
}

impl Flood<'_> {
    /// Emits a copy for each port but the last, which the frame itself takes.
    #[cold]
    fn out(
        &self,
        packet: &mut Packet,
        pool: &mut chunk::Pool,
        counters: &SwitchCounters,
        mut emit: impl FnMut(u16, Packet),
    ) -> Result<u16, DropReason> {
        let Self { tables, port, bits, tci } = *self;
        let mut ports = tables.egress(vlan(tci)).iter().filter(|egress| egress.port != port);
        let mut next = ports.next().ok_or(reasons::FLOOD_NOWHERE)?;
        counters.flooded.add(1);
        for after in ports {
            if let Some(mut copy) = packet.duplicate(pool) {
                if retag(&mut copy, bits, tci, next.tagged) {
                    counters.copies.add(1);
                    emit(next.port, copy);
                } else {
                    copy.free(pool);
                    counters.copies_lost.add(1);
                }
            } else {
                counters.copies_lost.add(1);
            }
            next = after;
        }
        if retag(packet, bits, tci, next.tagged) {
            Ok(next.port)
        } else {
            Err(chunk::reasons::NO_CELLS)
        }
    }
}

/// Gives a frame the tag that it is to leave with, or none. `false` where there is no room for one.
#[inline(always)]
fn retag(packet: &mut Packet, bits: u16, tci: u16, tagged: bool) -> bool {
    match (bits & flags::TAGGED != 0, tagged) {
        (false, false) => true,
        (false, true) => push_tags(packet, &[(TPID, tci)]),
        (true, false) => {
            strip_tags(packet, TAGGED_LEN);
            true
        }
        (true, true) => {
            // A priority tag becomes one of the VLAN.
            if let Some(field) = packet.data_mut().get_mut(14..16) {
                field.copy_from_slice(&tci.to_be_bytes());
            }
            true
        }
    }
}
