//! A packet-filter language for captures: that of tcpdump, as pcap-filter(7) describes it.
//!
//! ```text
//! expression = term { ( "and" | "&&" | "or" | "||" ) term }
//! term       = { "not" | "!" } ( "(" expression ")" | test )
//! test       = [ protocol ] qualifiers names | names | number relation number
//!            | protocol | [ "ether" | "ip" | "ip6" ] ( "broadcast" | "multicast" )
//!            | "vlan" [ IDENTIFIER ] | "less" BYTES | "greater" BYTES
//! qualifiers = [ "src" | "dst" | "src or dst" | "src and dst" ] [ "host" | "net" | "port" | "portrange" ] | "proto"
//! names      = { "not" | "!" } ( NAME | "(" names { ( "and" | "or" ) names } ")" )
//! relation   = "=" | "==" | "!=" | "<" | "<=" | ">" | ">="
//! number     = NUMBER | CONSTANT | "len" | protocol "[" number [ ":" ( 1 | 2 | 4 ) ] "]" | "-" number
//!            | number operator number | "(" number ")"
//! ```
//!
//! [`SYNTAX`] is the same for people. An expression means what tcpdump means by it (`tests/tcpdump.rs` compares them), also
//! where that surprises: `and` and `or` bind equally and from left to right; a name without qualifiers has those of the
//! name before it; `tcp[…]` and `udp[…]` are about IPv4 alone; a frame without a byte that a comparison reads does not
//! match, whatever else is asked.
//!
//! What differs: a frame that ends within its headers has no addresses or no ports, instead of matching nothing, not even
//! `not port 80`; VLAN tags are seen through, and `vlan` does not shift what the tests behind it look at; extension headers
//! of IPv6 are seen through; every header of which a comparison names bytes must be there (libpcap 1.10 forgets some); `^` and `%` bind as in C; an address by itself is a host; names of hosts are not looked up, and
//! those of services are from a list of their own, so that a filter means the same everywhere.
//!
//! ```text
//! text ─ lexer ─▶ tokens ─ parser ─▶ program ─▶ matches
//!                           names
//! ```
//!
//! Running a program is bounded work without recursion. A filter is read-only once parsed: any thread.

mod arithmetic;
mod lexer;
mod names;
mod parser;
mod program;
mod values;

use program::{Arith, Op};

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    program: Vec<Op>,
    /// The operations of all relations.
    arith: Vec<Arith>,
}

/// Where an expression went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: expected {expected}")]
pub struct FilterError {
    /// Character, counted from 1.
    pub column: usize,
    /// What could be there.
    pub expected: String,
}

impl Filter {
    /// Parses `text`; the empty text matches everything.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parser::Parser::parse(text)
    }
}

/// The forms of the language, for help and manuals. Lines of examples begin with two spaces.
pub const SYNTAX: &str = "\
Packet filter in the language of tcpdump, pcap-filter(7), such as `tcp and port 80`:

  host 192.0.2.1, src host 2001:db8::1, dst 192.0.2.1, host 192.0.2.1 or 192.0.2.2
  net 10.0.0.0/8, src net 10.0.0.0 mask 255.0.0.0, net 10.1, net 2001:db8::/32
  port 80 or 443, src port domain, tcp dst port 22, portrange 6000-6008
  ether host 02:00:00:00:00:01, ether src MAC, ether dst MAC, ether proto 0x88cc
  ip, ip6, arp, rarp, tcp, udp, sctp, icmp, icmp6, igmp, esp, ah, pim, vrrp
  proto 89, ip proto gre, ip6 proto 58, vlan, vlan 10, less 64, greater 1500
  broadcast, multicast, ip multicast, ip6 multicast
  icmp[icmptype] = icmp-echo, tcp[tcpflags] & (tcp-syn|tcp-fin) != 0
  ip[8] < 5, ip6[7] = 1, udp[4:2] > 512, ether[0] & 1 = 1, len > 1000

Combine them with `and` (&&), `or` (||), `not` (!) and parentheses; `and` and `or` bind equally, from left to right. \
A name without a qualifier has those of the name before it. Quote what the shell would read: parentheses, brackets, &, |, <, >, !.

VLAN tags and IPv6 extension headers are seen through: `tcp` matches tagged TCP too.";
