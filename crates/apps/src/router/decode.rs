//! Stage `decode`: one look at each packet, and the end of all that is not plain transit.
//!
//! | | |
//! | --- | --- |
//! | reads | the packets |
//! | writes | `flags`, `l3`, `interface`, `flow_hash`, `dst4` or `dst6`; `src4` or `src6` for `rpf`; what a firewall sees |
//! | next | `rpf` or `route` for transit and for what may be ours; `rewrite` for what the router answers |
//! | forward | packets of the host, tagged, out of the interface's port |
//! | host | ARP, neighbour discovery, link-local groups, broadcasts, unknown EtherTypes: where there is a twin |
//! | drop | every anomaly under its own reason; not for us; from our own addresses; multicast; source routes |
//!
//! Almost all packets are plain: whole, untagged or on a known subinterface, to our MAC, unicast,
//! without options. They take one straight line; one branch sends everything else to the cold
//! half in `control`.
//!
//! The first line of a frame comes from memory, which takes longer than all the work on it: it is
//! asked for `AHEAD` packets ahead.

use std::sync::{Arc, Weak};

use chunk::{Chunk, ColumnSet, Columns, Declaration, DropReason, Packet, ReasonBlock, Verdict};
use engine::{Context, MARK_FROM_HOST, Phases, Stage};
use lookup::fib::{Fib, Interface};
use packet::{Anomaly, Decoded, IpProtocol, Kind};

use super::columns::{
    Answer, DecodeColumns, DecodeView, RouterColumns, RouterView, flags, is_live,
};
use super::counters::RouterCounters;
use super::events::Events;
use super::frames;
use super::reasons;
use super::{PipelineOptions, Proxy};
use crate::firewall::Headers;
use crate::ports::PortNames;
use crate::received;
use crate::records::{self, Records};

/// Packets whose first line is on its way while one is decoded. Measured with `examples/cost.rs`.
const AHEAD: usize = 24;

/// Flags of a packet that is not plain.
const ODD: u16 =
    Decoded::HAS_OPTIONS | Decoded::SRC_MAC_GROUP | Decoded::DST_MULTICAST | Decoded::DST_BROADCAST;

/// The columns of a pipeline whose later stages read headers.
pub(crate) const WITH_HEADERS: &[Declaration] = &[RouterColumns::COLUMNS, DecodeColumns::COLUMNS];

/// The stage.
pub struct Decode {
    with_source: bool,
    with_headers: bool,
    with_records: bool,
    pub(super) events: Events,
    counters: Arc<RouterCounters>,
    names: PortNames,
    pub(super) proxy: Option<Weak<dyn Proxy>>,
}

/// What the cold half found.
pub(super) enum Outcome {
    /// Goes on to the route, with these flags.
    Route(u16),
    /// The router answers it.
    Answer(Answer),
    /// For the twin of the interface it came in by.
    Host,
    /// Ends here.
    Drop(DropReason),
}

impl Decode {
    /// `with_source`: whether a later stage reads the source columns.
    pub fn new(with_source: bool, options: &PipelineOptions) -> Self {
        let events = Events::new(options.events.clone(), options.counters.clone(), options.seed);
        let counters = options.counters.clone();
        let (names, proxy) = (options.names.clone(), options.proxy.clone());
        Self {
            with_source,
            with_headers: false,
            with_records: false,
            events,
            counters,
            names,
            proxy,
        }
    }

    /// It also fills the [header columns](crate::firewall::HeaderColumns), which a later stage reads.
    #[must_use]
    pub fn with_headers(mut self) -> Self {
        self.with_headers = true;
        self
    }

    /// Later stages need the headers, too: they find them in records.
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
    l3: &'a mut [u8],
    interface: &'a mut [u16],
    flow_hash: &'a mut [u32],
    dst4: &'a mut [u32],
    src4: &'a mut [u32],
    dst6: &'a mut [[u64; 2]],
    src6: &'a mut [[u64; 2]],
    headers: Option<Headers<'a>>,
    records: Option<Records<'a>>,
}

impl<'a> From<RouterView<'a>> for Out<'a> {
    fn from(view: RouterView<'a>) -> Self {
        Self {
            verdict: view.verdict,
            flags: view.flags,
            l3: view.l3,
            interface: view.interface,
            flow_hash: view.flow_hash,
            dst4: view.dst4,
            src4: view.src4,
            dst6: view.dst6,
            src6: view.src6,
            headers: None,
            records: None,
        }
    }
}

impl<'a> From<DecodeView<'a>> for Out<'a> {
    fn from(view: DecodeView<'a>) -> Self {
        Self {
            verdict: view.verdict,
            flags: view.flags,
            l3: view.l3,
            interface: view.interface,
            flow_hash: view.flow_hash,
            dst4: view.dst4,
            src4: view.src4,
            dst6: view.dst6,
            src6: view.src6,
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

/// Port and tags of the packet before, which are mostly those of the next one too, and their
/// interface.
struct Known {
    port: u16,
    vlan_count: u8,
    vlan_ids: [u16; 2],
    interface: u16,
    /// A frame is for us by this interface if its destination MAC, under the mask, is `mac`.
    mask: u64,
    mac: u64,
}

/// The group bit of a MAC address as a number.
const GROUP: u64 = 1 << 40;

impl Known {
    /// Takes no packet.
    const NOBODY: Known = Known {
        port: chunk::PORT_NONE,
        vlan_count: u8::MAX,
        vlan_ids: [0; 2],
        interface: 0,
        mask: 0,
        mac: u64::MAX,
    };

    /// Brings the interface up to date, if port or tags are not those of the packet before. Counts
    /// the packets of subinterfaces, unless they were counted before.
    #[inline(never)]
    fn update(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        fib: &Fib,
        counters: Option<&RouterCounters>,
    ) {
        let vlan_ids = d.vlan_tci.map(|tci| tci & 0xfff);
        let is_same =
            (self.port, self.vlan_count, self.vlan_ids) == (packet.port, d.vlan_count, vlan_ids);
        if !is_same {
            self.look_up(packet, d, vlan_ids, fib);
        }
        let is_known = self.mac != Known::NOBODY.mac;
        let is_received = d.vlan_count > 0 && packet.mark & MARK_FROM_HOST == 0;
        if let Some(counters) = counters.filter(|_| is_received && is_known) {
            counters.count_tagged_rx(self.interface, packet.frame_len());
        }
    }

    fn look_up(&mut self, packet: &Packet, d: &Decoded, vlan_ids: [u16; 2], fib: &Fib) {
        let (port, vlan_count) = (packet.port, d.vlan_count);
        *self = Known { port, vlan_count, vlan_ids, ..Known::NOBODY };
        let found = fib.classify(port, vlan_count, d.vlan_tci);
        if let Some(index) = found
            && let Some(interface) = fib.interface(index).filter(|interface| interface.up)
        {
            self.interface = index;
            (self.mask, self.mac) = unicast_to(interface);
        }
    }
}

/// Mask and value of unicast MAC addresses that `interface` takes packets for.
fn unicast_to(interface: &Interface) -> (u64, u64) {
    let [a, b, c, d, e, f] = interface.mac;
    let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    if interface.any_mac { (GROUP, 0) } else { ((1 << 48) - 1, mac) }
}

/// The destination MAC of a frame as a number.
#[inline(always)]
fn destination_mac(frame: &[u8]) -> u64 {
    frame.first_chunk().map_or(0, |first| u64::from_be_bytes(*first) >> 16)
}

/// The drop reason of an anomaly.
pub const fn reason(anomaly: Anomaly) -> DropReason {
    match anomaly {
        Anomaly::None => chunk::reasons::UNKNOWN,
        Anomaly::Truncated => packet::reasons::TRUNCATED,
        Anomaly::VlanTruncated => packet::reasons::VLAN_TRUNCATED,
        Anomaly::TooManyVlanTags => packet::reasons::VLAN_TOO_MANY,
        Anomaly::NonIp => packet::reasons::ETHERTYPE_UNKNOWN,
        Anomaly::BadArp => packet::reasons::ARP_MALFORMED,
        Anomaly::BadVersion => packet::reasons::IP_BAD_VERSION,
        Anomaly::BadHeaderLength => packet::reasons::IP_BAD_HEADER_LENGTH,
        Anomaly::BadTotalLength => packet::reasons::IP_BAD_TOTAL_LENGTH,
        Anomaly::BadChecksum => packet::reasons::IP_BAD_CHECKSUM,
        Anomaly::MartianSource => packet::reasons::IP_MARTIAN_SOURCE,
        Anomaly::MartianDestination => packet::reasons::IP_MARTIAN_DESTINATION,
        Anomaly::ZeroLengthFragment => packet::reasons::IP_ZERO_LENGTH_FRAGMENT,
        Anomaly::OverlongFragment => packet::reasons::IP_OVERLONG_FRAGMENT,
        Anomaly::BadExtensionHeader => packet::reasons::IP6_EXTENSION_HEADERS,
        Anomaly::ExtensionHeaderLoop => packet::reasons::IP6_EXTENSION_LOOP,
        Anomaly::TooManyExtensionHeaders => packet::reasons::IP6_EXTENSIONS_TOO_MANY,
    }
}

/// fe80::/10 by the high half of an address.
#[inline(always)]
pub(super) const fn is_link_local(high: u64) -> bool {
    high >> 54 == 0xfe80 >> 6
}

/// 169.254/16.
#[inline(always)]
pub(super) const fn is_link_local_v4(address: u32) -> bool {
    address >> 16 == 0xa9fe
}

/// Whether a decoded packet of a family needs the cold half for its addresses or its type.
#[inline(always)]
fn is_special(d: &Decoded, family: u16) -> bool {
    if family == flags::IPV4 {
        is_link_local_v4(d.src_v4()) | is_link_local_v4(d.dst_v4())
    } else {
        is_special_v6(d)
    }
}

/// ::ffff:0:0/96: IPv4 in the form of IPv6, for use within a node alone (RFC 4291 §2.5.5.2, RFC 6890).
#[inline(always)]
pub(super) const fn is_mapped_v4(address: [u64; 2]) -> bool {
    address[0] == 0 && address[1] >> 32 == 0xffff
}

/// Whether a decoded IPv6 packet needs the cold half: link-local addresses, neighbour discovery.
#[inline(always)]
fn is_special_v6(d: &Decoded) -> bool {
    is_link_local(d.src[0])
        | is_link_local(d.dst[0])
        | (d.src[0] == 0)
        | (d.dst[0] == 0)
        | (d.protocol == IpProtocol::ICMPV6 && (133..=137).contains(&(d.l4_word >> 24)))
}

impl<T: AsRef<Fib>> Stage<T> for Decode {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.with_headers || self.with_records {
            true => WITH_HEADERS,
            false => &[RouterColumns::COLUMNS],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        if self.with_records { records::zeroed() } else { ColumnSet::EMPTY }
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
        self.look(chunk, &mut cx.over(T::as_ref), false);
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        let tables = tables.as_ref();
        let packet = &chunk.packets[row];
        let d = packet::decode(packet.data(), packet.frame_len());
        let port = packet.port;
        let interface = tables
            .classify(port, d.vlan_count, d.vlan_tci)
            .and_then(|index| tables.interface(index))
            .map_or_else(|| self.names.name(port), |interface| interface.name.clone());
        let mut text = match (d.src_ip(), d.dst_ip()) {
            (Some(src), Some(dst)) => {
                let (protocol, ttl, len) = (d.protocol, d.ttl, d.ip_total_len);
                format!("{src} > {dst} {protocol} ttl {ttl} length {len} in by {interface}")
            }
            _ => format!("{} in by {interface}", d.ethertype),
        };
        if d.anomaly != Anomaly::None {
            text = format!("{text}: {}", d.anomaly.name());
            if received::is_forgiven(packet, &d) {
                text += " (ignored)";
            }
        }
        text
    }
}

impl Decode {
    /// Decodes the packets of all live rows. `is_again`: the other rows stay as they are, and these have been changed since
    /// they were decoded.
    pub(crate) fn look(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Fib>, is_again: bool) {
        let mut out = match self.with_headers || self.with_records {
            true => Out::from(DecodeColumns::view(&mut chunk.rows)),
            false => Out::from(RouterColumns::view(&mut chunk.rows)),
        };
        out.headers.take_if(|_| !self.with_headers);
        out.records.take_if(|_| !self.with_records);
        if let Some(headers) = &mut out.headers {
            match is_again {
                false => headers.begin(),
                true => {
                    out.verdict.iter().zip(&mut *headers.family).for_each(|(verdict, family)| {
                        if is_live(*verdict) {
                            *family = 0;
                        }
                    })
                }
            }
        }
        let packets = &mut chunk.packets[..];
        for packet in packets.iter().take(AHEAD) {
            packet.prefetch();
        }
        let own = cx.tables.own_addresses();
        let mut known = Known::NOBODY;
        let mut own_record = Decoded::default();
        for row in 0..packets.len() {
            if let Some(ahead) = packets.get(row + AHEAD) {
                ahead.prefetch();
            }
            if !is_live(out.verdict[row]) {
                continue;
            }
            let packet = &packets[row];
            let frame = packet.data();
            let d = match &mut out.records {
                Some(records) => records.write(row),
                None => &mut own_record,
            };
            packet::decode::decode_into(frame, packet.frame_len(), d);
            let family = match d.kind {
                Kind::Ipv4 => flags::IPV4,
                Kind::Ipv6 => flags::IPV6,
                Kind::Arp | Kind::Other => 0,
            };
            if (packet.port != known.port) | ((d.vlan_count | known.vlan_count) != 0) {
                let counters = (!cx.is_again(row)).then_some(&*self.counters);
                known.update(packet, d, cx.tables, counters);
            }
            let plain = (destination_mac(frame) & known.mask == known.mac)
                & (d.anomaly == Anomaly::None)
                & (d.flags & ODD == 0)
                & (packet.mark & MARK_FROM_HOST == 0)
                & (family != 0);
            let (found, interface) = if plain && !is_special(d, family) {
                (family, known.interface)
            } else {
                match self.settle(&mut packets[row], d, cx) {
                    Ok(found) => found,
                    Err(verdict) => {
                        out.verdict[row] = verdict.0;
                        continue;
                    }
                }
            };
            let claims_to_be_us = (found & flags::IPV4 != 0 && own.has4(d.src_v4()))
                | (found & flags::IPV6 != 0 && own.has6(d.src));
            if claims_to_be_us {
                out.verdict[row] = Verdict::drop(reasons::OWN_SOURCE).0;
                continue;
            }
            if let Some(headers) = &mut out.headers
                && found & (flags::IPV4 | flags::IPV6) != 0
            {
                headers.put(row, packets[row].data(), d, interface);
            }
            out.flags[row] = found;
            out.l3[row] = d.l3_offset as u8;
            out.interface[row] = interface;
            out.flow_hash[row] = packet::flow::flow_hash(d);
            if family == flags::IPV4 {
                out.dst4[row] = d.dst_v4();
                if self.with_source {
                    out.src4[row] = d.src_v4();
                }
            } else {
                out.dst6[row] = d.dst;
                if self.with_source {
                    out.src6[row] = d.src;
                }
            }
        }
    }

    /// A packet that is not plain: its flags and interface, or its verdict.
    #[cold]
    #[inline(never)]
    fn settle(
        &mut self,
        packet: &mut Packet,
        d: &mut Decoded,
        cx: &Context<'_, Fib>,
    ) -> Result<(u16, u16), Verdict> {
        let drop = |reason| Err(Verdict::drop(reason));
        received::forgive(packet, d);
        if packet.mark & MARK_FROM_HOST != 0 {
            return Err(from_host(packet, cx.tables, &self.counters));
        }
        // The link layer comes first: what is not for us is not judged.
        let unreadable = packet.data().len() < frames::ETHERNET_LEN
            || matches!(d.anomaly, Anomaly::VlanTruncated | Anomaly::TooManyVlanTags);
        if unreadable {
            return drop(reason(d.anomaly));
        }
        let Some(index) = cx.tables.classify(packet.port, d.vlan_count, d.vlan_tci) else {
            return drop(if d.vlan_count > 0 {
                packet::reasons::VLAN_UNKNOWN
            } else {
                packet::reasons::INTERFACE_DOWN
            });
        };
        let Some(interface) = cx.tables.interface(index).filter(|interface| interface.up) else {
            return drop(packet::reasons::INTERFACE_DOWN);
        };
        if d.has(Decoded::SRC_MAC_GROUP) {
            return drop(packet::reasons::SOURCE_MAC_GROUP);
        }
        let to = destination_mac(packet.data());
        let (mask, mac) = unicast_to(interface);
        if to & GROUP == 0 && to & mask != mac {
            return drop(packet::reasons::NOT_FOR_US);
        }
        match self.judge(packet, d, index, interface, cx) {
            Outcome::Route(flags) => Ok((flags, index)),
            Outcome::Answer(answer) => Ok((answer.encode(), index)),
            Outcome::Host => {
                frames::strip_tags(packet, usize::from(d.l3_offset));
                Err(Verdict::host(index))
            }
            Outcome::Drop(reason) => drop(reason),
        }
    }
}

/// A frame that the twin of an interface sent: tagged, and out.
fn from_host(packet: &mut Packet, fib: &Fib, counters: &RouterCounters) -> Verdict {
    match fib.interface(packet.port) {
        None => Verdict::drop(chunk::reasons::TX_NO_PORT),
        Some(interface) if !interface.up => Verdict::drop(chunk::reasons::TX_PORT_DOWN),
        Some(_) if packet.data().len() < frames::ETHERNET_LEN => {
            Verdict::drop(packet::reasons::TRUNCATED)
        }
        Some(interface) => {
            if frames::push_tags(packet, &interface.tags) {
                if !interface.tags.is_empty() {
                    counters.count_tagged_tx(packet.port, packet.frame_len());
                }
                Verdict::forward(interface.port)
            } else {
                Verdict::drop(chunk::reasons::NO_CELLS)
            }
        }
    }
}
