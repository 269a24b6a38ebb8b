//! Applications on the data path.
//!
//! An application is a list of stages over a declaration of columns; the engine carries chunks
//! through it. Today there is one: the [`router`].
#![forbid(unsafe_code)]

pub mod router;
