//! Addresses as integers and prefixes over them.

use std::fmt;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IPv6 lookup key: the high and the low 64 bits of the address, in host order.
pub type Key6 = [u64; 2];

/// An address as an unsigned integer in host order: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Hash + fmt::Debug + Send + Sync + 'static {
    /// What the tables are asked with.
    type Key: Copy + fmt::Debug + Send + Sync + 'static;
    /// The std type that prints and parses it.
    type Ip: fmt::Display + FromStr;
    /// Width in bits: 32 or 128.
    const WIDTH: u8;
    /// The address of all zeros.
    const ZERO: Self;

    /// The address with its bits below the first `len` cleared; `len` ≤ `WIDTH`.
    fn truncate(self, len: u8) -> Self;
    /// The address with its bits below the first `len` set: the last one under a prefix.
    fn fill(self, len: u8) -> Self;
    /// How many leading bits both have in common: 0..=`WIDTH`.
    fn common_len(self, other: Self) -> u8;
    /// Bit `index` counted from the most significant, which is 0.
    fn bit(self, index: u8) -> bool;
    /// To a lookup key.
    fn to_key(self) -> Self::Key;
    /// From a lookup key.
    fn from_key(key: Self::Key) -> Self;
    /// To the std type.
    fn to_ip(self) -> Self::Ip;
    /// From the std type.
    fn from_ip(ip: Self::Ip) -> Self;
}

macro_rules! address {
    ($int:ty, $ip:ty, $key:ty, $to_key:expr, $from_key:expr) => {
        impl Address for $int {
            type Key = $key;
            type Ip = $ip;
            const WIDTH: u8 = <$int>::BITS as u8;
            const ZERO: Self = 0;

            #[inline]
            fn truncate(self, len: u8) -> Self {
                debug_assert!(len <= Self::WIDTH);
                if len == 0 {
                    return 0;
                }
                self & (<$int>::MAX << (Self::WIDTH - len))
            }
            #[inline]
            fn fill(self, len: u8) -> Self {
                debug_assert!(len <= Self::WIDTH);
                if len == Self::WIDTH {
                    return self;
                }
                self | (<$int>::MAX >> len)
            }
            #[inline]
            fn common_len(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }
            #[inline]
            fn bit(self, index: u8) -> bool {
                debug_assert!(index < Self::WIDTH);
                self >> (Self::WIDTH - 1 - index) & 1 == 1
            }
            #[inline]
            fn to_key(self) -> Self::Key {
                $to_key(self)
            }
            #[inline]
            fn from_key(key: Self::Key) -> Self {
                $from_key(key)
            }
            fn to_ip(self) -> Self::Ip {
                <$ip>::from_bits(self)
            }
            fn from_ip(ip: Self::Ip) -> Self {
                ip.to_bits()
            }
        }
    };
}

address!(u32, Ipv4Addr, u32, |a| a, |k| k);
address!(u128, Ipv6Addr, Key6, |a: u128| [(a >> 64) as u64, a as u64], |k: Key6| {
    u128::from(k[0]) << 64 | u128::from(k[1])
});

/// A prefix in canonical form: the bits below its length are zero. Sorted by address, then length,
/// so that a prefix is right before its more-specifics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    addr: A,
    len: u8,
}

/// Why a prefix is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Not an address of this family.
    #[error("expected an address, such as 192.0.2.0 or 2001:db8::")]
    Address,
    /// Not a length, or too long for the family.
    #[error("expected a prefix length of 0 to {max}")]
    Length {
        /// 32 or 128.
        max: u8,
    },
    /// Bits are set below the prefix length.
    #[error("host bits are set below the prefix length {len}")]
    HostBits {
        /// The length given.
        len: u8,
    },
}

impl<A: Address> Prefix<A> {
    /// A prefix; an error when `len` is too long or a bit below it is set.
    pub fn new(addr: A, len: u8) -> Result<Self, PrefixError> {
        if len > A::WIDTH {
            return Err(PrefixError::Length { max: A::WIDTH });
        }
        if addr.truncate(len) != addr {
            return Err(PrefixError::HostBits { len });
        }
        Ok(Self { addr, len })
    }

    /// The prefix of length `len` that covers `addr`; a `len` beyond the family's width counts as it.
    pub fn masked(addr: A, len: u8) -> Self {
        let len = len.min(A::WIDTH);
        Self { addr: addr.truncate(len), len }
    }

    /// The prefix of length 0.
    pub fn default_route() -> Self {
        Self { addr: A::ZERO, len: 0 }
    }

    /// First address.
    #[inline]
    pub fn addr(self) -> A {
        self.addr
    }

    /// Length in bits, 0..=`A::WIDTH`.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> u8 {
        self.len
    }

    /// Last address.
    #[inline]
    pub fn last(self) -> A {
        self.addr.fill(self.len)
    }

    /// Whether `addr` lies under it.
    #[inline]
    pub fn contains(self, addr: A) -> bool {
        addr.truncate(self.len) == self.addr
    }

    /// Whether `other` is the same or more specific.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr.to_ip(), self.len)
    }
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `ADDRESS/LENGTH`; an address alone is a prefix of full length. Host bits are an error.
impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => {
                let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
                let len = len.parse().ok().filter(|_| digits);
                (addr, len.ok_or(PrefixError::Length { max: A::WIDTH })?)
            }
            None => (text, A::WIDTH),
        };
        let addr = addr.parse().map_err(|_| PrefixError::Address)?;
        Self::new(A::from_ip(addr), len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32"] {
            assert_eq!(text.parse::<Prefix<u32>>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Prefix<u128>>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.1".parse::<Prefix<u32>>().unwrap().len(), 32);
    }

    #[test]
    fn refuses_what_is_no_prefix() {
        let cases = [
            ("10.0.0.0/33", PrefixError::Length { max: 32 }),
            ("10.0.0.0/", PrefixError::Length { max: 32 }),
            ("10.0.0.0/+8", PrefixError::Length { max: 32 }),
            ("10.0.0.1/8", PrefixError::HostBits { len: 8 }),
            ("10.0.0/8", PrefixError::Address),
            ("::/0", PrefixError::Address),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Prefix<u32>>(), Err(error), "{text}");
        }
    }

    #[test]
    fn truncates_and_fills_at_the_ends() {
        assert_eq!(0xffff_ffff_u32.truncate(0), 0);
        assert_eq!(0xffff_ffff_u32.truncate(32), 0xffff_ffff);
        assert_eq!(0_u32.fill(0), 0xffff_ffff);
        assert_eq!(1_u128.fill(128), 1);
        assert_eq!(5_u32.common_len(5), 32);
    }
}
