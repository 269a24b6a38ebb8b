//! Stage `bridge_in`: from frame to VLAN and keys.
//!
//! | | |
//! | --- | --- |
//! | writes | `flags`, `tci`, `source_key`, `destination_key` (in `pre_shade`); what a firewall sees |
//! | next | `bridge` |
//! | forward | frames that Linux sends by the port's twin: out by that port as they are |
//! | drop | `truncated`, `vlan_truncated`, `vlan_not_allowed`, `source_mac_group`, `source_mac_zero`, `bridge_reserved`, `interface_down` |

use chunk::{Chunk, ColumnSet, Columns, Declaration, DropReason, ReasonBlock, Verdict};
use engine::{Context, MARK_FROM_HOST, Phases, Stage};
use lookup::bridge::{Refused, SwitchTables, split_key, station_key};
use packet::ethernet::EthernetView;
use packet::vlan::VlanView;
use packet::{Decoded, EtherType, MacAddr};

use super::columns::{BridgeInColumns, BridgeInView, SwitchColumns, SwitchView, flags, is_live};
use super::reasons;
use crate::firewall::Headers;
use crate::received;
use crate::records::{self, Records};

/// The stage.
#[derive(Debug, Default)]
pub struct BridgeIn {
    with_headers: bool,
    with_records: bool,
}

impl BridgeIn {
    /// A stage without state.
    pub fn new() -> Self {
        Self::default()
    }

    /// It also decodes the packets and fills the [header columns](crate::firewall::HeaderColumns), which a later stage
    /// reads. The switch itself needs no more of a frame than its link header.
    #[must_use]
    pub fn with_headers(mut self) -> Self {
        self.with_headers = true;
        self
    }

    /// With headers, it also leaves what it decoded in records, which later stages read.
    #[must_use]
    pub fn with_records(mut self) -> Self {
        self.with_records = true;
        self
    }
}

/// The columns that the stage writes.
struct Out<'a> {
    verdict: &'a mut [u32],
    flags: &'a mut [u16],
    tci: &'a mut [u16],
    source_key: &'a mut [u64],
    destination_key: &'a mut [u64],
    headers: Option<Headers<'a>>,
    records: Option<Records<'a>>,
}

impl<'a> From<SwitchView<'a>> for Out<'a> {
    fn from(view: SwitchView<'a>) -> Self {
        Self {
            verdict: view.verdict,
            flags: view.flags,
            tci: view.tci,
            source_key: view.source_key,
            destination_key: view.destination_key,
            headers: None,
            records: None,
        }
    }
}

impl<'a> From<BridgeInView<'a>> for Out<'a> {
    fn from(view: BridgeInView<'a>) -> Self {
        Self {
            verdict: view.verdict,
            flags: view.flags,
            tci: view.tci,
            source_key: view.source_key,
            destination_key: view.destination_key,
            headers: Some(Headers {
                family: view.filter_family,
                head0: view.filter_head0,
                head1: view.filter_head1,
                head2: view.filter_head2,
                l3: view.filter_l3,
            }),
            records: Some(Records::new(view.record, view.record_is_known)),
        }
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
        match self.with_headers {
            true => &[SwitchColumns::COLUMNS, BridgeInColumns::COLUMNS],
            false => &[SwitchColumns::COLUMNS],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        let leaves = self.with_headers && self.with_records;
        if leaves { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    /// Headers are all that is looked at, and all that is changed.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let tables = cx.tables.as_ref();
        let mut out = match self.with_headers {
            true => Out::from(BridgeInColumns::view(&mut chunk.rows)),
            false => Out::from(SwitchColumns::view(&mut chunk.rows)),
        };
        out.records.take_if(|_| !self.with_records);
        if let Some(headers) = &mut out.headers {
            headers.begin();
        }
        let mut own_record = Decoded::default();
        for packet in chunk.packets.iter().take(AHEAD) {
            packet.prefetch();
        }
        for (row, packet) in chunk.packets.iter().enumerate() {
            if let Some(later) = chunk.packets.get(row + AHEAD) {
                later.prefetch();
            }
            if !is_live(out.verdict[row]) {
                continue;
            }
            if packet.mark & MARK_FROM_HOST != 0 {
                out.verdict[row] = Verdict::forward(packet.port).0;
                continue;
            }
            match read(packet.data(), packet.port, tables) {
                Ok(header) => {
                    out.flags[row] = header.flags;
                    out.tci[row] = header.tci;
                    out.source_key[row] = header.source_key;
                    out.destination_key[row] = header.destination_key;
                    if let Some(headers) = &mut out.headers {
                        let d = match &mut out.records {
                            Some(records) => records.write(row),
                            None => &mut own_record,
                        };
                        received::decode_into(packet, d);
                        headers.put(row, packet.data(), d, packet.port);
                    }
                }
                Err(reason) => out.verdict[row] = Verdict::drop(reason).0,
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
