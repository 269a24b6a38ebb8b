//! Bundles of one channel (ONF extension 230): changes that are collected, and carried out all at once or not at all.

use std::collections::BTreeMap;

use super::switch::Change;
use crate::error::ErrorCode;
use crate::message::{Body, BundleAdd, BundleControl, BundleFlags, BundleStep, Message};

/// Bundles of a channel at most.
const BUNDLES_MAX: usize = 16;
/// Bytes of the messages of all bundles of a channel at most.
const BYTES_MAX: usize = 256 << 20;

/// A message of a bundle with the bytes that an error would echo.
#[derive(Debug)]
struct Added {
    change: Change,
    xid: u32,
    head: Vec<u8>,
    len: usize,
}

#[derive(Debug)]
struct Bundle {
    flags: BundleFlags,
    is_closed: bool,
    added: Vec<Added>,
}

#[derive(Debug, Default)]
pub(super) struct Bundles {
    all: BTreeMap<u32, Bundle>,
    bytes: usize,
}

/// A bundle that is carried out: its changes, and of each the request to echo.
#[derive(Debug, Default)]
pub(super) struct Commit {
    pub(super) changes: Vec<Change>,
    pub(super) requests: Vec<(u32, Vec<u8>)>,
}

impl Bundles {
    /// Opens, closes, discards or takes out a bundle. On commit its changes, which are no longer here.
    pub(super) fn control(
        &mut self,
        request: &BundleControl,
    ) -> Result<(BundleStep, Option<Commit>), ErrorCode> {
        let unknown_flags = !(BundleFlags::ATOMIC | BundleFlags::ORDERED).0;
        match request.step {
            BundleStep::OpenRequest => {
                if request.flags.0 & unknown_flags != 0 {
                    return Err(ErrorCode::BundleFlags);
                }
                // Opened twice: neither is there then, as the extension has it.
                if self.remove(request.bundle).is_some() {
                    return Err(ErrorCode::BundleId);
                }
                if self.all.len() >= BUNDLES_MAX {
                    return Err(ErrorCode::BundleOutOf);
                }
                self.open(request.bundle, request.flags);
                Ok((BundleStep::OpenReply, None))
            }
            BundleStep::CloseRequest => {
                let bundle = self.find(request.bundle, request.flags)?;
                if bundle.is_closed {
                    self.remove(request.bundle);
                    return Err(ErrorCode::BundleClosed);
                }
                bundle.is_closed = true;
                Ok((BundleStep::CloseReply, None))
            }
            BundleStep::CommitRequest => {
                let found = self.find(request.bundle, request.flags).map(|_| ());
                let removed = self.remove(request.bundle);
                found?;
                let mut commit = Commit::default();
                for added in removed.into_iter().flat_map(|bundle| bundle.added) {
                    commit.changes.push(added.change);
                    commit.requests.push((added.xid, added.head));
                }
                Ok((BundleStep::CommitReply, Some(commit)))
            }
            BundleStep::DiscardRequest => match self.remove(request.bundle) {
                Some(_) => Ok((BundleStep::DiscardReply, None)),
                None => Err(ErrorCode::BundleId),
            },
            _ => Err(ErrorCode::BundleType),
        }
    }

    /// Adds a message; `request` is the whole of the outer one.
    pub(super) fn add(&mut self, add: BundleAdd, request: &[u8]) -> Result<(), ErrorCode> {
        let Message { xid, body, .. } = *add.message;
        let change = match body {
            Body::FlowMod(flow) => Change::Flow(flow),
            Body::GroupMod(group) => Change::Group(group),
            Body::PortMod(port) => Change::Port(port),
            _ => return Err(ErrorCode::BundleMsgUnsupported),
        };
        // A message for a bundle that is not there opens it.
        if !self.all.contains_key(&add.bundle) {
            if self.all.len() >= BUNDLES_MAX {
                return Err(ErrorCode::BundleOutOf);
            }
            self.open(add.bundle, add.flags);
        }
        if self.bytes + request.len() > BYTES_MAX {
            return Err(ErrorCode::BundleMsgTooMany);
        }
        let bundle = self.find(add.bundle, add.flags)?;
        if bundle.is_closed {
            self.remove(add.bundle);
            return Err(ErrorCode::BundleClosed);
        }
        let head = super::echoed(request).to_vec();
        bundle.added.push(Added { change, xid, head, len: request.len() });
        self.bytes += request.len();
        Ok(())
    }

    fn open(&mut self, id: u32, flags: BundleFlags) {
        self.all.insert(id, Bundle { flags, is_closed: false, added: Vec::new() });
    }

    fn remove(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.all.remove(&id)?;
        self.bytes -= bundle.added.iter().map(|added| added.len).sum::<usize>();
        Some(bundle)
    }

    fn find(&mut self, id: u32, flags: BundleFlags) -> Result<&mut Bundle, ErrorCode> {
        match self.all.get_mut(&id) {
            None => Err(ErrorCode::BundleId),
            Some(bundle) if bundle.flags != flags => Err(ErrorCode::BundleFlags),
            Some(bundle) => Ok(bundle),
        }
    }
}
