//! Structures as they are in memory: fields in a fixed order, in the byte order of the machine where nothing else is said.
//!
//! [`wire_struct!`] declares a structure of `linux/xfrm.h` once: its fields, its padding and its length, which the compiler
//! compares with the sum of the fields. Padding is written as zeros, as the kernel does.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `AF_INET`.
pub const AF_INET: u16 = 2;
/// `AF_INET6`.
pub const AF_INET6: u16 = 10;

/// Bytes that are read from the front. Whoever makes one has checked the length; behind the end are zeros.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => {
                debug_assert!(false, "a length that was not checked");
                [0; N]
            }
        }
    }
}

/// A type of fixed length in messages.
pub(crate) trait Wire: Sized {
    /// Length in bytes.
    const LEN: usize;

    /// Reads [`Wire::LEN`] bytes.
    fn read(from: &mut Reader<'_>) -> Self;

    /// Appends [`Wire::LEN`] bytes.
    fn write(&self, to: &mut Vec<u8>);
}

macro_rules! wire_number {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            const LEN: usize = size_of::<$type>();

            fn read(from: &mut Reader<'_>) -> Self {
                <$type>::from_ne_bytes(from.take())
            }

            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

wire_number!(u8, u16, u32, u64, i32);

/// A port, or a mask of ports, in network byte order on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Port(pub u16);

impl Wire for Port {
    const LEN: usize = 2;

    fn read(from: &mut Reader<'_>) -> Self {
        Self(u16::from_be_bytes(from.take()))
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0.to_be_bytes());
    }
}

/// A security parameter index, in network byte order on the wire. `Display` has the form of `ip xfrm`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Spi(pub u32);

impl Wire for Spi {
    const LEN: usize = 4;

    fn read(from: &mut Reader<'_>) -> Self {
        Self(u32::from_be_bytes(from.take()))
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0.to_be_bytes());
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

impl fmt::Debug for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `xfrm_address_t`: an IPv4 address in the first four bytes, or an IPv6 address. The family is somewhere else in the
/// message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// The address, of family [`AF_INET`] or [`AF_INET6`]; none for other families.
    pub fn ip(self, family: u16) -> Option<IpAddr> {
        let [a, b, c, d, ..] = self.0;
        match family {
            AF_INET => Some(Ipv4Addr::new(a, b, c, d).into()),
            AF_INET6 => Some(Ipv6Addr::from(self.0).into()),
            _ => None,
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        let mut bytes = [0; 16];
        match ip {
            IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => bytes = v6.octets(),
        }
        Self(bytes)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.0[4..] == [0; 12] { AF_INET } else { AF_INET6 };
        write!(f, "{:?}", self.ip(family))
    }
}

impl Wire for Address {
    const LEN: usize = 16;

    fn read(from: &mut Reader<'_>) -> Self {
        Self(from.take())
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0);
    }
}

/// The family of an address.
pub fn family(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// Declares structures: `Name, length { field: Type, … }`, with `pad N` behind a field that N bytes of padding follow.
macro_rules! wire_struct {
    ($(
        $(#[$meta:meta])*
        $name:ident, $len:literal {
            $($(#[$doc:meta])* $field:ident: $type:ty $(, pad $pad:literal)?;)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        const _: () = assert!($len == 0 $(+ <$type as Wire>::LEN $(+ $pad)?)*);

        impl Wire for $name {
            const LEN: usize = $len;

            fn read(from: &mut Reader<'_>) -> Self {
                $(
                    let $field = <$type as Wire>::read(from);
                    $(let _: [u8; $pad] = from.take();)?
                )*
                Self { $($field),* }
            }

            fn write(&self, to: &mut Vec<u8>) {
                $(
                    self.$field.write(to);
                    $(to.extend_from_slice(&[0; $pad]);)?
                )*
            }
        }
    )*};
}

pub(crate) use wire_struct;
