//! What an expression becomes, and how it runs over a frame.
//!
//! Tests set one value; a skip behind a test leaves out the other operand of `and` or `or` where the value already says
//! all. So nothing is kept but that value, and a test that is not reached cannot fail. Relations of bytes have a postfix
//! list of their own, on a stack of fixed size.

use chunk::Packet;

use super::Filter;
use crate::bytes::be32;
use crate::decode::{Decoded, Kind};
use crate::{EtherType, IpProtocol};

/// Numbers that a relation may keep at once.
pub(super) const STACK_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The value becomes that of the test.
    Test(Test),
    Not,
    /// Leaves out so many operations where this is the value.
    SkipIf(bool, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Mac(Side, u64),
    Net(Side, Prefix),
    /// Ports from the first to the second, of TCP, UDP and SCTP.
    Ports(Side, u16, u16),
    Kind(Kind),
    EtherType(EtherType),
    Protocol(Option<Kind>, IpProtocol),
    Vlan(Option<u16>),
    Less(usize),
    Greater(usize),
    /// `ether broadcast`.
    Broadcast,
    /// `ether multicast`, `ip multicast`, `ip6 multicast`.
    Multicast(Option<Kind>),
    /// `ip broadcast`: all ones or all zeros.
    IpBroadcast,
    /// Whether bytes may be counted from this header.
    Has(Base),
    /// The relation whose operations begin and end there.
    Relation(u32, u32, Relation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Src,
    Dst,
    Either,
    Both,
}

/// Addresses as 128 bits; IPv4 in the low 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) is_v6: bool,
    pub(super) bits: u128,
    pub(super) mask: u128,
}

/// The header from which a byte test counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Ether,
    /// The header of the network layer, of this EtherType.
    Network(EtherType),
    /// The header of an upper layer over IPv4, in a packet that is no later fragment.
    Upper(IpProtocol),
    /// ICMPv6.
    Icmpv6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operation on the stack of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arith {
    Const(u32),
    /// Length of the frame.
    Len,
    /// So many bytes at the offset on the stack.
    Load(Base, u8),
    Negate,
    Binary(Binary),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// A frame under test.
struct Frame<'a> {
    d: &'a Decoded,
    /// The start of it, or all.
    cell: &'a [u8],
    len: usize,
    /// All of it, where `cell` is the start.
    packet: Option<&'a Packet>,
}

impl Filter {
    /// Whether the frame matches; `frame` is the whole of it.
    pub fn matches(&self, decoded: &Decoded, frame: &[u8]) -> bool {
        self.matches_cell(decoded, frame, frame.len())
    }

    /// [`Filter::matches`] where `cell` may be only the start of a frame of `frame_len` bytes.
    pub fn matches_cell(&self, decoded: &Decoded, cell: &[u8], frame_len: usize) -> bool {
        self.run(&Frame { d: decoded, cell, len: frame_len, packet: None })
    }

    /// [`Filter::matches`] for a frame over any number of cells.
    pub fn matches_packet(&self, decoded: &Decoded, packet: &Packet) -> bool {
        let (cell, len) = (packet.data(), packet.frame_len());
        self.run(&Frame { d: decoded, cell, len, packet: Some(packet) })
    }

    fn run(&self, frame: &Frame<'_>) -> bool {
        let mut value = true;
        let mut at = 0;
        while let Some(op) = self.program.get(at) {
            at += 1;
            match *op {
                // The frame has no such byte: as in tcpdump, it does not match whatever else is asked.
                Op::Test(test) => match self.holds(test, frame) {
                    Some(holds) => value = holds,
                    None => return false,
                },
                Op::Not => value = !value,
                Op::SkipIf(on, ops) if on == value => at += ops as usize,
                Op::SkipIf(..) => {}
            }
        }
        value
    }

    fn holds(&self, test: Test, frame: &Frame<'_>) -> Option<bool> {
        let d = frame.d;
        Some(match test {
            Test::Mac(side, mac) => {
                let Some([dst, src]) = frame.macs() else { return Some(false) };
                side.any(src == mac, dst == mac)
            }
            Test::Net(side, prefix) => {
                let Some((is_v6, src, dst)) = frame.addresses() else { return Some(false) };
                is_v6 == prefix.is_v6
                    && side.any(src & prefix.mask == prefix.bits, dst & prefix.mask == prefix.bits)
            }
            Test::Ports(side, first, last) => {
                let range = first..=last;
                let found = frame.ports();
                found.is_some_and(|(src, dst)| side.any(range.contains(&src), range.contains(&dst)))
            }
            Test::Kind(kind) => d.kind == kind,
            Test::EtherType(ethertype) => d.ethertype == ethertype,
            Test::Protocol(kind, protocol) => {
                d.protocol == protocol && kind.map_or(d.is_ip(), |kind| d.kind == kind)
            }
            Test::Vlan(None) => d.vlan_count > 0,
            Test::Vlan(id) => d.vlan_id() == id || (d.vlan_count > 1 && d.inner_vlan_id() == id),
            Test::Less(len) => frame.len <= len,
            Test::Greater(len) => frame.len >= len,
            Test::Broadcast => frame.macs().is_some_and(|[dst, _]| dst == (1 << 48) - 1),
            Test::Multicast(None) => frame.cell.first().is_some_and(|first| first & 1 != 0),
            Test::Multicast(Some(Kind::Ipv6)) => d.kind == Kind::Ipv6 && d.dst[0] >> 56 == 0xff,
            Test::Multicast(Some(kind)) => d.kind == kind && d.dst_v4() >> 28 >= 0xe,
            Test::IpBroadcast => {
                d.kind == Kind::Ipv4 && frame.is_whole() && matches!(d.dst_v4(), 0 | u32::MAX)
            }
            Test::Has(base) => frame.start(base).is_some(),
            Test::Relation(from, to, relation) => {
                let ops = self.arith.get(from as usize..to as usize)?;
                let (left, right) = run(ops, frame)?;
                match relation {
                    Relation::Equal => left == right,
                    Relation::Unequal => left != right,
                    Relation::Less => left < right,
                    Relation::LessOrEqual => left <= right,
                    Relation::Greater => left > right,
                    Relation::GreaterOrEqual => left >= right,
                }
            }
        })
    }
}

/// The two numbers of a relation; `None` where a byte is not there, or for a division by zero.
fn run(ops: &[Arith], frame: &Frame<'_>) -> Option<(u32, u32)> {
    let mut stack = [0u32; STACK_MAX];
    let mut n = 0;
    for op in ops {
        match *op {
            Arith::Const(value) => {
                *stack.get_mut(n)? = value;
                n += 1;
            }
            Arith::Len => {
                *stack.get_mut(n)? = frame.len as u32;
                n += 1;
            }
            Arith::Load(base, size) => {
                let top = stack.get_mut(n.checked_sub(1)?)?;
                *top = frame.load(base, *top, size)?;
            }
            Arith::Negate => {
                let top = stack.get_mut(n.checked_sub(1)?)?;
                *top = top.wrapping_neg();
            }
            Arith::Binary(binary) => {
                n = n.checked_sub(1)?;
                let right = stack[n];
                let left = stack.get_mut(n.checked_sub(1)?)?;
                *left = binary.of(*left, right)?;
            }
        }
    }
    (n == 2).then_some((stack[0], stack[1]))
}

impl Binary {
    /// On 32 bits without sign, as everywhere in a packet filter; `None` for a division by zero.
    pub(super) fn of(self, left: u32, right: u32) -> Option<u32> {
        Some(match self {
            Binary::Add => left.wrapping_add(right),
            Binary::Subtract => left.wrapping_sub(right),
            Binary::Multiply => left.wrapping_mul(right),
            Binary::Divide => left.checked_div(right)?,
            Binary::Remainder => left.checked_rem(right)?,
            Binary::And => left & right,
            Binary::Or => left | right,
            Binary::Xor => left ^ right,
            Binary::ShiftLeft => left.checked_shl(right).unwrap_or(0),
            Binary::ShiftRight => left.checked_shr(right).unwrap_or(0),
        })
    }
}

impl Side {
    fn any(self, src: bool, dst: bool) -> bool {
        match self {
            Side::Src => src,
            Side::Dst => dst,
            Side::Either => src || dst,
            Side::Both => src && dst,
        }
    }
}

impl Frame<'_> {
    fn l3(&self) -> &[u8] {
        self.cell.get(usize::from(self.d.l3_offset)..).unwrap_or_default()
    }

    /// Destination and source.
    fn macs(&self) -> Option<[u64; 2]> {
        let bytes = self.cell.first_chunk::<12>()?;
        let mac =
            |at: usize| bytes[at..at + 6].iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
        Some([mac(0), mac(6)])
    }

    /// Family, source and destination; of ARP and RARP the sender's and the target's address.
    fn addresses(&self) -> Option<(bool, u128, u128)> {
        let wide = |words: [u64; 2]| u128::from(words[0]) << 64 | u128::from(words[1]);
        match (self.d.kind, self.d.ethertype) {
            (Kind::Ipv4 | Kind::Ipv6, _) if !self.is_whole() => None,
            (Kind::Ipv4, _) => Some((false, wide(self.d.src), wide(self.d.dst))),
            (Kind::Ipv6, _) => Some((true, wide(self.d.src), wide(self.d.dst))),
            (Kind::Arp, _) | (_, EtherType::RARP) => {
                let arp = self.l3().first_chunk::<28>()?;
                Some((false, be32(arp, 14).into(), be32(arp, 24).into()))
            }
            (Kind::Other, _) => None,
        }
    }

    /// Whether the fixed header of an IP packet is there, without which it has no addresses.
    fn is_whole(&self) -> bool {
        self.d.l4_offset > 0
    }

    /// Where the upper layer of an IP packet begins that is no later fragment. Lengths are not looked at: captures from
    /// senders that leave segmentation to the network card have wrong ones.
    fn upper(&self) -> Option<usize> {
        let d = self.d;
        let is_there = d.is_ip() && d.fragment_offset == 0 && d.l4_offset > d.l3_offset;
        is_there.then_some(usize::from(d.l4_offset))
    }

    fn ports(&self) -> Option<(u16, u16)> {
        let has_ports =
            matches!(self.d.protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP);
        let at = self.upper().filter(|_| has_ports)?;
        let bytes = self.cell.get(at..)?.first_chunk::<4>()?;
        let word = be32(bytes, 0);
        Some(((word >> 16) as u16, word as u16))
    }

    /// Where a header begins; `None` where the frame has no such header.
    fn start(&self, base: Base) -> Option<usize> {
        let d = self.d;
        match base {
            Base::Ether => Some(0),
            Base::Network(ethertype) => {
                (d.ethertype == ethertype).then_some(usize::from(d.l3_offset))
            }
            Base::Upper(protocol) => {
                self.upper().filter(|_| d.kind == Kind::Ipv4 && d.protocol == protocol)
            }
            Base::Icmpv6 => {
                let is_it = d.kind == Kind::Ipv6 && d.protocol == IpProtocol::ICMPV6;
                self.upper().filter(|_| is_it)
            }
        }
    }

    /// `size` bytes as a number, `offset` behind the start of a header.
    fn load(&self, base: Base, offset: u32, size: u8) -> Option<u32> {
        let at = self.start(base)?.checked_add(offset as usize)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
        if let Some(bytes) = self.cell.get(at..at.checked_add(usize::from(size))?) {
            return Some(number(bytes));
        }
        let mut bytes = [0; 4];
        let bytes = bytes.get_mut(..usize::from(size))?;
        self.packet?.read_at(at, bytes).then(|| number(bytes))
    }
}
