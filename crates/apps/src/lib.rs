//! Applications on the data path.
//!
//! An application is a list of stages over a declaration of columns; the engine carries chunks
//! through it: the [`router`]. The stages of the layer-2 [`switch`] and of the named-data forwarder [`ndn`] stand
//! beside it; no configuration asks for them yet.
#![forbid(unsafe_code)]

pub mod ndn;
pub mod router;
pub mod switch;
