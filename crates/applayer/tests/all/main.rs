//! Sessions: cases of each protocol, streams cut anywhere, hostile input, captures beside tshark.
#![allow(unreachable_pub)]

#[path = "../../../l7proto/tests/common/mod.rs"]
mod common;
mod dns;
mod hostile;
mod http;
mod http2;
mod mail;
mod odd;
mod random;
mod recorder;
mod segments;
mod tshark;
