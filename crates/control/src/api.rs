//! The control socket: how `shadeline ctl` and programs talk to a running instance.
//!
//! A Unix stream socket, mode 0660. One JSON object a line: the client writes a [`Request`], the
//! server answers with any number of [`Response`]s, of which the last is `end` or `error`. Then
//! the next request may follow. Long tables come in pieces of [`ROWS_PER_RESPONSE`] rows, so that
//! neither side holds a million routes as one text; a capture is a stream of frames that the
//! client ends by hanging up.
//!
//! ```text
//! > {"request":"show","what":"neighbours"}
//! < {"response":"neighbours","rows":[{"address":"192.0.2.1","port":"lan",…}]}
//! < {"response":"end"}
//! ```
//!
//! This module knows the requests and tables that every pipeline has. Those of applications pass through it by their
//! names: a [`Request::Call`] with fields, a [`Response::Rows`] with rows. With `"text":true` in the request, tables come
//! as texts that the server has made ([`Response::Table`], [`Response::Text`]), so that a client prints tables that it
//! does not know.
//!
//! Thread rule: one thread accepts, one thread per connection (at most [`server::Limits::connections`], and some more of
//! root) reads, calls the handler and writes. The handler is shared and must not block for long on the data path. A client
//! that does not send or read is hung up ([`server::Limits`]). The server opens no file that a request names: clients read
//! and write their files with their own rights.

pub mod answer;
mod client;
mod message;
pub mod place;
pub mod rows;
pub mod server;
pub mod table;

pub use client::{Client, ClientError, Process};
pub use message::{
    Asked, CORE_REQUESTS, CORE_RESPONSES, CaptureAt, ErrorKind, Frame, Request, Response,
    TraceStep, decode, fields_of,
};
pub use rows::*;
pub use server::{BindError, Responder, Server};

/// Rows of a table in one response at most.
pub const ROWS_PER_RESPONSE: usize = 1024;

#[cfg(test)]
mod tests;
