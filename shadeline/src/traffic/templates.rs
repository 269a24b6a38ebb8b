//! From values to frames: one template for each family and size.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use io::generator::{Checksum, IMIX, Stamp, StampPlace, Template, Values, Vary, frame_len_of_wire};
use ipnet::IpNet;
use lookup::routes::read_file;
use packet::checksum::{pseudo_header_v4, pseudo_header_v6};
use packet::ethernet::EthernetHeader;
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::tcp::{TcpHeader, flags};
use packet::udp::UdpHeader;
use packet::{EtherType, IpProtocol, MacAddr};

use super::TrafficArgs;
use super::values::{Addresses, Ports, Protocol, Sizes, Tags};
use crate::failure::Failure;
use crate::output::note;

/// Addresses for measuring: RFC 2544 appendix C.2.2, RFC 5180 §8.
const SOURCES: [&str; 2] = ["198.18.0.0/16", "2001:2:0:1::/64"];
const DESTINATIONS: [&str; 2] = ["198.19.0.0/16", "2001:2:0:2::/64"];

/// Parts that the weights of two families are rounded to.
const FAMILY_WEIGHTS: usize = 100;

/// Problems of a file that are shown.
const SHOWN: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// The addresses of one family on one side.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    Random,
    Prefix(IpNet),
    /// In network order.
    List(Vec<Vec<u8>>),
}

/// What one side offers, by family; and whether it insists on what it offers.
struct Side {
    v4: Option<Choice>,
    v6: Option<Choice>,
    is_open: bool,
}

/// Makes the templates, their weights those of sizes and families.
pub(super) fn build(
    args: &TrafficArgs,
    src_mac: MacAddr,
    stamped: bool,
) -> Result<Vec<Template>, Failure> {
    let src = side("--src", args.src.as_ref(), SOURCES, args.seed)?;
    let dst = side("--dst", args.dst.as_ref(), DESTINATIONS, !args.seed)?;
    let mut templates = Vec::new();
    for (family, weight) in families(args, &src, &dst)? {
        let of = |side: &Side| match family {
            Family::V4 => side.v4.clone(),
            Family::V6 => side.v6.clone(),
        };
        let (Some(src), Some(dst)) = (of(&src), of(&dst)) else { continue };
        let frame = Frame { args, family, src_mac, src, dst, stamped };
        for (size, share) in frame.sizes() {
            templates.push(frame.template(size, share * weight)?);
        }
    }
    Ok(templates)
}

/// What `--src` or `--dst` offers.
fn side(
    option: &str,
    addresses: Option<&Addresses>,
    default: [&str; 2],
    seed: u64,
) -> Result<Side, Failure> {
    let parsed = |text: &str| text.parse().ok().map(Choice::Prefix);
    let both = |v4, v6| Side { v4, v6, is_open: true };
    Ok(match addresses {
        None => both(parsed(default[0]), parsed(default[1])),
        Some(Addresses::Random) => both(Some(Choice::Random), Some(Choice::Random)),
        Some(&Addresses::Prefix(net)) => {
            let choice = Some(Choice::Prefix(net));
            let (v4, v6) = if net.addr().is_ipv4() { (choice, None) } else { (None, choice) };
            Side { v4, v6, is_open: false }
        }
        Some(Addresses::File(path)) => {
            let file = read_file(path).map_err(Failure::other)?;
            for problem in file.problems.first.iter().take(SHOWN) {
                note!("warning: {}: {problem}", path.display());
            }
            let more = file.problems.count.saturating_sub(SHOWN as u64);
            if more > 0 {
                note!("warning: {}: and {more} more", path.display());
            }
            if file.is_empty() {
                let what = format!("{option}: expected one address or prefix a line, found none");
                return Err(Failure::file(path, what));
            }
            let mut random = Bits(seed);
            let host = |len: u8, random: &mut Bits| {
                random.next().checked_shr(len.into()).unwrap_or_default()
            };
            let v4 = file.v4.iter().map(|(prefix, _)| {
                let host = (host(prefix.len(), &mut random) >> 96) as u32;
                (prefix.addr() | host).to_be_bytes().to_vec()
            });
            let v4: Vec<_> = v4.collect();
            let v6 = file.v6.iter().map(|(prefix, _)| {
                (prefix.addr() | host(prefix.len(), &mut random)).to_be_bytes().to_vec()
            });
            let v6: Vec<_> = v6.collect();
            let list = |list: Vec<_>| (!list.is_empty()).then_some(Choice::List(list));
            Side { v4: list(v4), v6: list(v6), is_open: false }
        }
    })
}

/// The families that both sides offer, and how often each comes.
fn families(args: &TrafficArgs, src: &Side, dst: &Side) -> Result<Vec<(Family, u32)>, Failure> {
    let v4 = src.v4.is_some() && dst.v4.is_some() && !args.ipv6;
    let v6 = src.v6.is_some() && dst.v6.is_some();
    let listed = |v4: bool| {
        let list = |side: &Side| match if v4 { &side.v4 } else { &side.v6 } {
            Some(Choice::List(list)) => list.len(),
            _ => 0,
        };
        list(src).max(list(dst)).max(1)
    };
    Ok(match (v4, v6) {
        (true, true) if src.is_open && dst.is_open => vec![(Family::V4, 1)],
        (true, true) => {
            let (n4, n6) = (listed(true), listed(false));
            let part = |n: usize| (n * FAMILY_WEIGHTS / (n4 + n6)).max(1) as u32;
            vec![(Family::V4, part(n4)), (Family::V6, part(n6))]
        }
        (true, false) => vec![(Family::V4, 1)],
        (false, true) => vec![(Family::V6, 1)],
        (false, false) => {
            let files = [args.src.as_ref(), args.dst.as_ref()].map(TrafficArgs::file);
            let of = if files.iter().any(Option::is_some) { " addresses of" } else { "" };
            let what = if args.ipv6 { "both be IPv6" } else { "be of one family" };
            return Err(Failure::usage(format!("expected{of} --src and --dst to {what}")));
        }
    })
}

/// Random bits that are the same for a seed for ever: SplitMix64 (Steele, Lea, Flood, 2014).
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u128 {
        let mut half = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(z ^ (z >> 31))
        };
        half() << 64 | half()
    }
}

/// What the frames of one family have in common.
struct Frame<'a> {
    args: &'a TrafficArgs,
    family: Family,
    src_mac: MacAddr,
    src: Choice,
    dst: Choice,
    stamped: bool,
}

impl Frame<'_> {
    fn ethernet(&self) -> EthernetHeader {
        let ethertype = match self.family {
            Family::V4 => EtherType::IPV4,
            Family::V6 => EtherType::IPV6,
        };
        let mut header = EthernetHeader::new(self.args.dst_mac, self.src_mac, ethertype);
        header.tags = match self.args.vlan {
            None => [None, None],
            Some(Tags(id, None)) => [Some((EtherType::VLAN, id)), None],
            Some(Tags(outer, Some(inner))) => {
                [Some((EtherType::QINQ, outer)), Some((EtherType::VLAN, inner))]
            }
        };
        header
    }

    fn ip_len(&self) -> usize {
        match self.family {
            Family::V4 => 20,
            Family::V6 => 40,
        }
    }

    fn l4_len(&self) -> usize {
        match self.args.protocol {
            Protocol::Udp => 8,
            Protocol::Tcp => 20,
        }
    }

    /// The least size with check sequence that all headers and the stamp fit in.
    fn size_min(&self) -> usize {
        let stamp = if self.stamped { Stamp::BYTES } else { 0 };
        (self.ethernet().len() + self.ip_len() + self.l4_len() + stamp + 4).max(64)
    }

    /// Sizes with check sequence and how often each comes. Only a list is taken literally.
    fn sizes(&self) -> Vec<(usize, u32)> {
        let size_min = self.size_min();
        match &self.args.size {
            None => vec![(size_min, 1)],
            Some(Sizes::List(sizes)) => sizes.iter().map(|size| (*size, 1)).collect(),
            Some(Sizes::Imix) => {
                IMIX.iter().map(|(len, weight)| ((len + 4).max(size_min), *weight)).collect()
            }
        }
    }

    fn template(&self, size: usize, weight: u32) -> Result<Template, Failure> {
        let size_min = self.size_min();
        if size < size_min {
            let stamp = if self.stamped { ", the stamp of a measurement among them" } else { "" };
            return Err(Failure::usage(format!(
                "--size {size}: the headers take at least {size_min} bytes{stamp}"
            )));
        }
        let mut frame = vec![0; frame_len_of_wire(size)];
        let l3 = self.ethernet().len();
        let l4 = l3 + self.ip_len();
        let emitted = self.emit(&mut frame, l3, l4);
        emitted
            .ok_or_else(|| Failure::usage(format!("--size {size}: longer than an IP packet")))?;

        let l4_checksum = match self.args.protocol {
            Protocol::Udp => Checksum { offset: l4 + 6, is_udp: true },
            Protocol::Tcp => Checksum { offset: l4 + 16, is_udp: false },
        };
        let ip_checksum = Checksum { offset: l3 + 10, is_udp: false };
        let (addresses, checksums) = match self.family {
            Family::V4 => ([l3 + 12, l3 + 16], vec![ip_checksum, l4_checksum]),
            Family::V6 => ([l3 + 8, l3 + 24], vec![l4_checksum]),
        };
        let mut vary = Vec::new();
        for (choice, offset) in [&self.src, &self.dst].into_iter().zip(addresses) {
            vary.extend(vary_address(choice, self.family, offset, &checksums));
        }
        for (ports, offset) in [(self.args.sport, l4), (self.args.dport, l4 + 2)] {
            let values = match ports {
                Ports::Range(first, last) if first == last => continue,
                Ports::Range(first, last) => {
                    Values::Counter { width: 2, first: first.into(), last: last.into() }
                }
                Ports::Random => Values::Random { mask: vec![0xff; 2] },
            };
            vary.push(Vary { offset, values, checksums: vec![l4_checksum] });
        }
        let stamp = self
            .stamped
            .then(|| StampPlace { offset: l4 + self.l4_len(), checksum: Some(l4_checksum) });
        Ok(Template { frame, vary, stamp, weight })
    }

    /// Writes all headers; `None` where the packet is too long for one.
    fn emit(&self, frame: &mut [u8], l3: usize, l4: usize) -> Option<()> {
        let protocol = match self.args.protocol {
            Protocol::Udp => IpProtocol::UDP,
            Protocol::Tcp => IpProtocol::TCP,
        };
        let len = frame.len() - l4;
        let (src, dst) =
            (first_address(&self.src, self.family), first_address(&self.dst, self.family));
        self.ethernet().emit(frame)?;
        let pseudo_header = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Ipv4Header::new(src, dst, protocol);
                header.ttl = self.args.ttl;
                // All packets have identification 0, which only those may that stay whole (RFC 6864).
                header.dont_fragment = true;
                header.emit(len, frame.get_mut(l3..)?)?;
                pseudo_header_v4(src, dst, protocol, u16::try_from(len).ok()?)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = Ipv6Header::new(src, dst, protocol);
                header.hop_limit = self.args.ttl;
                header.emit(len, frame.get_mut(l3..)?)?;
                pseudo_header_v6(src, dst, protocol, u32::try_from(len).ok()?)
            }
            _ => return None,
        };
        let first = |ports: Ports| match ports {
            Ports::Random => 0,
            Ports::Range(first, _) => first,
        };
        let (src_port, dst_port) = (first(self.args.sport), first(self.args.dport));
        let segment = frame.get_mut(l4..)?;
        match self.args.protocol {
            Protocol::Udp => UdpHeader { src_port, dst_port }.emit(Some(pseudo_header), segment)?,
            Protocol::Tcp => TcpHeader {
                src_port,
                dst_port,
                sequence: 1,
                acknowledgment: 1,
                flags: flags::ACK,
                window: 65_535,
                urgent_pointer: 0,
                options: &[],
            }
            .emit(pseudo_header, segment)?,
        };
        Some(())
    }
}

/// The address that is in the template, of which some bits may vary.
fn first_address(choice: &Choice, family: Family) -> IpAddr {
    match (choice, family) {
        (Choice::Prefix(net), _) => net.addr(),
        (_, Family::V4) => Ipv4Addr::new(1, 0, 0, 0).into(),
        // Global unicast is 2000::/3 (RFC 4291 §2.4, IANA).
        (_, Family::V6) => Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0).into(),
    }
}

/// How the address at `offset` varies.
fn vary_address(
    choice: &Choice,
    family: Family,
    offset: usize,
    checksums: &[Checksum],
) -> Vec<Vary> {
    let vary = |skip: usize, values| {
        vec![Vary { offset: offset + skip, values, checksums: checksums.to_vec() }]
    };
    match (choice, family) {
        (Choice::List(values), _) => vary(0, Values::List { values: values.clone(), random: true }),
        (Choice::Prefix(net), _) if net.prefix_len() == net.max_prefix_len() => Vec::new(),
        (Choice::Prefix(net), _) => {
            // Whole bytes of the prefix stay out of it.
            let (len, bytes) =
                (usize::from(net.prefix_len()), usize::from(net.max_prefix_len()) / 8);
            let mut mask = vec![0xff; bytes - len / 8];
            mask[0] >>= len % 8;
            vary(len / 8, Values::Random { mask })
        }
        // Unicast: neither "this network", loopback, multicast nor reserved (RFC 6890).
        (Choice::Random, Family::V4) => {
            let values = (1..=223).filter(|&byte| byte != 127).map(|byte| vec![byte]).collect();
            let mut all = vary(0, Values::List { values, random: true });
            all.extend(vary(1, Values::Random { mask: vec![0xff; 3] }));
            all
        }
        (Choice::Random, Family::V6) => {
            let mut mask = vec![0xff; 16];
            mask[0] = 0x1f;
            vary(0, Values::Random { mask })
        }
    }
}
