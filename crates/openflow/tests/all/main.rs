//! Messages beside those of other implementations, the flow syntax beside ovs-ofctl, the agent beside a plain switch.

mod bytes;
mod channels;
mod monitors;
mod ofctl;
mod plain;
mod random;
mod serve;
mod text;
mod tls;
