//! Applications on the data path.
//!
//! An application is a list of stages over a declaration of columns; the engine carries chunks
//! through it. Today there are two: the [`router`] and the layer-2
//! [`switch`].
//! through it: the [`router`], and the parts of the [`ndn`] forwarder.
#![forbid(unsafe_code)]

pub mod ndn;
pub mod router;
pub mod switch;
