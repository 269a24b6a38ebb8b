//! What streams and datagrams say, against other programs and for any bytes.

#[path = "../common/mod.rs"]
mod common;
mod labels;
mod ndpi;
mod properties;
mod quic;
mod tshark;
