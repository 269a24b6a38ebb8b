//! Applications on the data path.
//!
//! An application is a list of stages over a declaration of columns; the engine carries chunks
//! through it: the [`router`], the layer-2 [`switch`], the named-data forwarder [`ndn`]; the [`firewall`] is a stage of
//! the first two, and with a [`wire`] an application by itself. Their tables are parts of one version ([`controlplane::tables`]).
#![forbid(unsafe_code)]

pub mod firewall;
pub mod ndn;
pub mod router;
pub mod switch;
pub mod wire;
