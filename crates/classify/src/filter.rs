//! The header of a packet filter: the 5-tuple, and what else a firewall asks of a packet.
//!
//! Not every packet has ports: a later fragment, an ICMP message, a protocol without. A rule that asks for ports
//! must not match those, also where its range holds the number that is in their place. So the last word,
//! of which the protocol takes a quarter, says which [`shape`] a packet has, and a rule that asks for ports asks for
//! that shape too. Beside it are the TCP flags, the state of the packet in its flow, and the interface that the packet came
//! in by.
//!
//! ```text
//!  IPv4   src    │ dst    │ sport 16, dport 16 │ proto 8, flags 8, shape 3, state 3, interface 10      4 words
//!  IPv6   src (4)│ dst (4)│ …                  │ …                                                  10 words
//! ```
//!
//! Where rules ask for the application of a flow, headers are longer ([`schema_v4_wide`], [`schema_v6_wide`]): the number of the
//! application is the word behind these.
//!
//! The place of the ports holds type and code of an ICMP message, as in OpenFlow 1.0 (§5.2.3, table 3).

use std::sync::Arc;

use crate::schema::{Field, Kind, Schema};

/// Numbers of the fields.
pub mod field {
    /// Source address.
    pub const SRC: usize = 0;
    /// Destination address.
    pub const DST: usize = 1;
    /// Source port, or type of an ICMP message.
    pub const SPORT: usize = 2;
    /// Destination port, or code of an ICMP message.
    pub const DPORT: usize = 3;
    /// Protocol.
    pub const PROTO: usize = 4;
    /// TCP flags.
    pub const FLAGS: usize = 5;
    /// [`shape`](super::shape).
    pub const SHAPE: usize = 6;
    /// State of the packet in its flow, a number of up to three bits; 0 where no flows are tracked.
    pub const STATE: usize = 7;
    /// Number of the interface.
    pub const INTERFACE: usize = 8;
    /// Number of the application, of wide headers alone.
    pub const APPLICATION: usize = 9;
}

/// Bits of the field [`field::SHAPE`]: what the packet has.
pub mod shape {
    /// The packet has ports.
    pub const PORTS: u8 = 1 << 0;
    /// It has type and code of ICMP or ICMPv6.
    pub const ICMP: u8 = 1 << 1;
    /// It is a fragment, the first or a later one.
    pub const FRAGMENT: u8 = 1 << 2;
}

/// The largest number of an interface.
pub const INTERFACE_MAX: u16 = 0x3ff;

/// The bits of a state.
pub const STATE_MAX: u8 = 0b111;

/// Where the state is in the last word.
const STATE_SHIFT: u32 = 10;

/// Words of a header of IPv4.
pub const WORDS_V4: usize = 4;

/// Words of a header of IPv6.
pub const WORDS_V6: usize = 10;

/// Words of a header of IPv4 with the application, and of IPv6.
pub const WORDS_V4_WIDE: usize = 9;
/// See [`WORDS_V4_WIDE`].
pub const WORDS_V6_WIDE: usize = 16;

/// The number of an application, by its name; never 0, which is that of none. FNV-1a, 32 bits: no list of names is needed.
pub const fn application(name: &str) -> u32 {
    let (bytes, mut hash, mut at) = (name.as_bytes(), 0x811c_9dc5_u32, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    if hash == 0 { 1 } else { hash }
}

/// The last two words of a header, the same for both families. What a packet does not have is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tail {
    /// Source port, or type.
    pub sport: u16,
    /// Destination port, or code.
    pub dport: u16,
    /// Protocol.
    pub proto: u8,
    /// TCP flags.
    pub flags: u8,
    /// Bits of [`shape`].
    pub shape: u8,
    /// State, up to [`STATE_MAX`].
    pub state: u8,
    /// Interface, up to [`INTERFACE_MAX`].
    pub interface: u16,
}

impl Tail {
    #[inline]
    fn words(self) -> [u32; 2] {
        let ports = u32::from(self.sport) << 16 | u32::from(self.dport);
        let what = u32::from(self.proto) << 24
            | u32::from(self.flags) << 16
            | u32::from(self.shape & 0x7) << 13
            | state_bits(self.state)
            | u32::from(self.interface & INTERFACE_MAX);
        [ports, what]
    }
}

/// A state as it is in the last word of a header of either family.
#[inline]
pub const fn state_bits(state: u8) -> u32 {
    ((state & STATE_MAX) as u32) << STATE_SHIFT
}

/// A header of IPv4.
#[inline]
pub fn header_v4(src: u32, dst: u32, tail: Tail) -> [u32; WORDS_V4] {
    let [ports, what] = tail.words();
    [src, dst, ports, what]
}

/// A header of IPv6; addresses as `[high, low]`.
#[inline]
pub fn header_v6(src: [u64; 2], dst: [u64; 2], tail: Tail) -> [u32; WORDS_V6] {
    let [a, b] = src.map(|half| [(half >> 32) as u32, half as u32]);
    let [c, d] = dst.map(|half| [(half >> 32) as u32, half as u32]);
    let [ports, what] = tail.words();
    [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1], ports, what]
}

/// A header with the application behind its words; `WIDE` is the number of words of the schema.
#[inline]
pub fn widened<const WORDS: usize, const WIDE: usize>(
    header: [u32; WORDS],
    application: u32,
) -> [u32; WIDE] {
    const { assert!(WORDS < WIDE) };
    let mut wide = [0; WIDE];
    wide[..WORDS].copy_from_slice(&header);
    wide[WORDS] = application;
    wide
}

/// The fields of a filter of IPv4.
pub fn schema_v4() -> Arc<Schema> {
    schema(32, false)
}

/// The fields of a filter of IPv6.
pub fn schema_v6() -> Arc<Schema> {
    schema(128, false)
}

/// The fields of a filter of IPv4 whose rules ask for applications.
pub fn schema_v4_wide() -> Arc<Schema> {
    schema(32, true)
}

/// The fields of a filter of IPv6 whose rules ask for applications.
pub fn schema_v6_wide() -> Arc<Schema> {
    schema(128, true)
}

fn schema(address_bits: u8, is_wide: bool) -> Arc<Schema> {
    let mut fields = vec![
        Field::new("src", address_bits, Kind::Prefix),
        Field::new("dst", address_bits, Kind::Prefix),
        Field::new("sport", 16, Kind::Range),
        Field::new("dport", 16, Kind::Range),
        Field::new("proto", 8, Kind::Mask),
        Field::new("tcp_flags", 8, Kind::Mask),
        Field::new("shape", 3, Kind::Mask),
        Field::new("state", 3, Kind::Mask),
        Field::new("in", 10, Kind::Mask),
    ];
    if is_wide {
        fields.push(Field::new("application", 32, Kind::Mask));
    }
    Arc::new(Schema::new(fields).expect("ten fields of up to 352 bits fit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_schemas() {
        let tail = Tail {
            sport: 0x1234,
            dport: 0x5678,
            proto: 6,
            flags: 0x12,
            shape: shape::PORTS | shape::FRAGMENT,
            state: 0b110,
            interface: 0x2bc,
        };
        let rest = [0x1234, 0x5678, 6, 0x12, 5, 0b110, 0x2bc];
        let v4 = schema_v4();
        assert_eq!(v4.words(), WORDS_V4);
        let values = [&[0x0a00_0001, 0xc000_0201][..], &rest].concat();
        assert_eq!(v4.header(&values), header_v4(0x0a00_0001, 0xc000_0201, tail));
        let v6 = schema_v6();
        assert_eq!(v6.words(), WORDS_V6);
        let (src, dst) = ([0x2001_0db8_0000_0001, 0x2], [0x2001_0db8_0000_0003, 0x4_0000_0005]);
        let whole = |halves: [u64; 2]| u128::from(halves[0]) << 64 | u128::from(halves[1]);
        let values = [&[whole(src), whole(dst)][..], &rest].concat();
        assert_eq!(v6.header(&values), header_v6(src, dst, tail));
        assert_eq!(v4.fields()[field::INTERFACE].max(), INTERFACE_MAX.into());
        let names = ["src", "dst", "sport", "dport", "proto", "tcp_flags", "shape", "state", "in"];
        assert_eq!(v4.fields()[field::STATE].max(), STATE_MAX.into());
        let stateless = header_v4(0x0a00_0001, 0xc000_0201, Tail { state: 0, ..tail });
        let [.., what] = header_v4(0x0a00_0001, 0xc000_0201, tail);
        assert_eq!(stateless[3] | state_bits(0b110), what);
        assert!(v4.fields().iter().map(|f| f.name.as_ref()).eq(names));
        assert_eq!(v4.fields()[field::SHAPE].name, "shape");
    }

    #[test]
    fn wide_headers_have_the_application_behind_the_others() {
        let tail = Tail { sport: 1, dport: 2, proto: 17, interface: 3, ..Tail::default() };
        let rest = [1, 2, 17, 0, 0, 0, 3, 0xdead_beef];
        let v4 = schema_v4_wide();
        assert_eq!(v4.words(), WORDS_V4_WIDE);
        let header = header_v4(0x0a00_0001, 0xc000_0201, tail);
        let wide: [u32; WORDS_V4_WIDE] = widened(header, 0xdead_beef);
        assert_eq!(v4.header(&[&[0x0a00_0001, 0xc000_0201][..], &rest].concat())[..], wide);
        let v6 = schema_v6_wide();
        assert_eq!(v6.words(), WORDS_V6_WIDE);
        let header = header_v6([0, 7], [0, 9], tail);
        let wide: [u32; WORDS_V6_WIDE] = widened(header, 0xdead_beef);
        assert_eq!(v6.header(&[&[7, 9][..], &rest].concat())[..], wide);
        assert_eq!(v4.fields()[field::APPLICATION].name, "application");
        // Of the list of the hash's authors.
        assert_eq!((application(""), application("a")), (0x811c_9dc5, 0xe40c_292c));
    }
}
