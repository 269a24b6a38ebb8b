//! Stage `bridge_in`: from frame to VLAN and keys.
//!
//! | | |
//! | --- | --- |
//! | writes | `flags`, `tci`, `source_key`, `destination_key` (in `pre_shade`) |
//! | next | `bridge` |
//! | forward | frames that Linux sends by the port's twin: out by that port as they are |
//! | drop | `truncated`, `vlan_truncated`, `vlan_not_allowed`, `source_mac_group`, `source_mac_zero`, `bridge_reserved`, `interface_down` |

use chunk::{Chunk, Columns, Declaration, DropReason, ReasonBlock, Verdict};
use engine::{Context, MARK_FROM_HOST, Phases, Stage};
use lookup::bridge::{Refused, SwitchTables, split_key, station_key};
use packet::ethernet::EthernetView;
use packet::vlan::VlanView;
use packet::{EtherType, MacAddr};

use super::columns::{SwitchColumns, flags, is_live};
use super::reasons;

/// The stage.
#[derive(Debug, Default)]
pub struct BridgeIn(());

impl BridgeIn {
    /// A stage without state.
    pub fn new() -> Self {
        Self(())
    }
}

/// What a frame's header says.
struct Header {
    flags: u16,
    tci: u16,
    source_key: u64,
    destination_key: u64,
}

impl<T: AsRef<SwitchTables> + Send + Sync + 'static> Stage<T> for BridgeIn {
    fn name(&self) -> &'static str {
        "bridge_in"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[SwitchColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let tables = cx.tables.as_ref();
        let view = SwitchColumns::view(&mut chunk.rows);
        for packet in chunk.packets.iter().take(AHEAD) {
            packet.prefetch();
        }
        for (row, packet) in chunk.packets.iter().enumerate() {
            if let Some(later) = chunk.packets.get(row + AHEAD) {
                later.prefetch();
            }
            if !is_live(view.verdict[row]) {
                continue;
            }
            if packet.mark == MARK_FROM_HOST {
                view.verdict[row] = Verdict::forward(packet.port).0;
                continue;
            }
            match read(packet.data(), packet.port, tables) {
                Ok(header) => {
                    view.flags[row] = header.flags;
                    view.tci[row] = header.tci;
                    view.source_key[row] = header.source_key;
                    view.destination_key[row] = header.destination_key;
                }
                Err(reason) => view.verdict[row] = Verdict::drop(reason).0,
            }
        }
    }
}

/// Frames that are asked for ahead.
const AHEAD: usize = 4;

#[inline(always)]
fn read(frame: &[u8], port: u16, tables: &SwitchTables) -> Result<Header, DropReason> {
    let ethernet = EthernetView::new_checked(frame).ok_or(packet::reasons::TRUNCATED)?;
    let (dst, src) = (ethernet.dst(), ethernet.src());
    if !src.is_unicast() {
        let is_group = src.is_multicast();
        return Err(if is_group {
            packet::reasons::SOURCE_MAC_GROUP
        } else {
            reasons::SOURCE_MAC_ZERO
        });
    }
    if is_reserved(dst) {
        return Err(reasons::BRIDGE_RESERVED);
    }
    let tag = match ethernet.ethertype() {
        EtherType::VLAN => {
            let tag = VlanView::new_checked(ethernet.payload());
            Some(tag.ok_or(packet::reasons::VLAN_TRUNCATED)?.tci())
        }
        _ => None,
    };
    let record = tables.port(port).ok_or(packet::reasons::INTERFACE_DOWN)?;
    let vlan = record.ingress(tag.map(|tci| tci & 0xfff)).map_err(|refused| match refused {
        Refused::PortDown => packet::reasons::INTERFACE_DOWN,
        Refused::Vlan => reasons::VLAN_NOT_ALLOWED,
    })?;
    let of = |condition: bool, flag: u16| if condition { flag } else { 0 };
    Ok(Header {
        flags: of(dst.is_multicast(), flags::GROUP)
            | of(dst.is_broadcast(), flags::BROADCAST)
            | of(tag.is_some(), flags::TAGGED),
        tci: tag.unwrap_or(0) & 0xf000 | vlan,
        source_key: station_key(vlan, src.0),
        destination_key: station_key(vlan, dst.0),
    })
}

/// VLAN and address of the station that sent a frame, where a switch learns from it: one that is received by an
/// accepting port with learning.
pub fn source_of(frame: &[u8], port: u16, tables: &SwitchTables) -> Option<(u16, [u8; 6])> {
    let learns = tables.port(port).is_some_and(|record| record.learning);
    learns
        .then(|| read(frame, port, tables).ok().map(|header| split_key(header.source_key)))
        .flatten()
}

/// The addresses that no bridge forwards (IEEE 802.1Q-2018 table 8-1): spanning tree, pause, LACP, LLDP.
#[inline(always)]
fn is_reserved(dst: MacAddr) -> bool {
    matches!(dst.0, [0x01, 0x80, 0xc2, 0, 0, last] if last < 0x10)
}
