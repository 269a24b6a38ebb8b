//! Wire formats from outside, in one program.

mod bad_input;
mod captures;
mod checksum;
mod filter;
mod flow;
mod fragment;
mod icmp_error;
mod inside;
mod nd;
mod ndn;
mod ndn_management;
mod offload;
mod oracle;
mod tcp_reset;
mod tcpdump;
mod tunnel;
