//! IPsec (RFC 4301) for packets in memory: which packets are protected, by which keys, and what their headers become.
//!
//! ```text
//!  out   packet ─▶ Policies::find ─▶ View::outbound ─▶ outbound::plan ─▶ room ─▶ Plan::write_headers ─▶ crypto::esp::seal_batch
//!  in    packet ─▶ found ─▶ View::inbound ─▶ crypto::esp::open_batch ─▶ inner, transport_back ─▶ Policies::find: as protected?
//! ```
//!
//! - [`policy`]: the security policy database: selectors over addresses, protocol and ports, looked up by `classify`;
//!   [`policy::reference`] is the plain list.
//! - [`association`]: security associations: parameters, counts, lifetimes.
//! - [`database`]: both of them for control, which adds, replaces, deletes and expires, and publishes a [`View`] to the
//!   threads of the data path.
//! - [`outbound`](mod@outbound): outer headers, UDP encapsulation (RFC 3948), where ESP goes in transport mode.
//! - [`path`]: path MTUs, by ICMP errors about packets that were sent.
//! - [`inbound`](mod@inbound): which packets are ESP, what is inside, congestion marks (RFC 6040), the packet of transport mode.
//!
//! Ciphers, sequence numbers and replay windows are those of `crypto::esp`. Nothing here opens sockets or knows a pipeline.
//!
//! ```
//! use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
//! use ipsec::{Action, Database, Direction, Parameters, Policy, Selector, Template, Tuple};
//!
//! let suite = Suite::new(Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16), Authentication::None)?;
//! let key = Key::new(suite, &Secret::new(vec![7; 20]), &Secret::none())?;
//! let mut database = Database::new();
//! let ends = ("192.0.2.1".parse()?, "198.51.100.1".parse()?);
//! database.add(Parameters::new(Direction::Out, 0x1000, ends, 1), key, 0)?;
//! database.add_policy(Policy {
//!     direction: Direction::Out,
//!     priority: 1,
//!     if_id: 0,
//!     selector: Selector { destination: Some("10.2.0.0/16".parse()?), ..Selector::ANY },
//!     action: Action::Protect(Template { reqid: 1, tunnel: None }),
//! })?;
//! let view = database.view()?;
//! let tuple = Tuple { family: 4, dst: [0, 0x0a02_0001], ..Tuple::default() };
//! let Some(Action::Protect(template)) = view.outgoing().find(&tuple) else { panic!() };
//! assert_eq!(view.outbound(&template, &tuple).unwrap().parameters().spi, 0x1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Threads: a [`Database`] belongs to control; a [`View`] is read by all, and what changes in it is behind atomics.
#![forbid(unsafe_code)]

pub mod association;
pub mod database;
mod hash;
pub mod inbound;
pub mod outbound;
mod parameters;
pub mod path;
mod peer;
pub mod policy;

pub use association::{Association, Exhausted, Expiry, Tally};
pub use database::{Ahead, Database, DatabaseError, NotCarried, View};
pub use parameters::{Direction, Dont, Dscp, Limit, Limits, Mode, Parameters, Udp};
pub use policy::{Action, Number, Policies, Policy, Room, Selector, Template, Tuple};

/// An address as packets are looked up by: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
pub type Words = [u64; 2];

/// The words of an address, and the family it is of: 4 or 6.
pub fn words(address: std::net::IpAddr) -> (u8, Words) {
    match address {
        std::net::IpAddr::V4(v4) => (4, [0, v4.to_bits().into()]),
        std::net::IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            (6, [(bits >> 64) as u64, bits as u64])
        }
    }
}
