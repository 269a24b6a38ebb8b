//! Bundles of one channel (ONF extension 230): changes that are collected, and carried out all at once or not at all.
//!
//! What they hold counts against one [`Budget`] of all channels, so many connections hold as much as one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::switch::Change;
use crate::error::ErrorCode;
use crate::message::{Body, BundleAdd, BundleControl, BundleFlags, BundleStep, Message};

/// Bundles of a channel at most.
const BUNDLES_MAX: usize = 16;

/// Bytes that the bundles of all channels may still hold.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<AtomicUsize>);

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |rest: usize| rest.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

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

#[derive(Debug)]
pub(super) struct Bundles {
    all: BTreeMap<u32, Bundle>,
    budget: Budget,
}

impl Drop for Bundles {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A bundle that is carried out: its changes, and of each the request to echo.
#[derive(Debug, Default)]
pub(super) struct Commit {
    pub(super) changes: Vec<Change>,
    pub(super) requests: Vec<(u32, Vec<u8>)>,
}

impl Bundles {
    /// None yet.
    pub(super) fn new(budget: Budget) -> Self {
        Self { all: BTreeMap::new(), budget }
    }

    /// All leave.
    pub(super) fn clear(&mut self) {
        while let Some(id) = self.all.keys().next().copied() {
            self.remove(id);
        }
    }

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
            Body::PortMod(port) => {
                port.check(crate::Version::V13)?;
                Change::Port(port)
            }
            _ => return Err(ErrorCode::BundleMsgUnsupported),
        };
        // A message for a bundle that is not there opens it.
        if !self.all.contains_key(&add.bundle) {
            if self.all.len() >= BUNDLES_MAX {
                return Err(ErrorCode::BundleOutOf);
            }
            self.open(add.bundle, add.flags);
        }
        let budget = self.budget.clone();
        let bundle = self.find(add.bundle, add.flags)?;
        if bundle.is_closed {
            self.remove(add.bundle);
            return Err(ErrorCode::BundleClosed);
        }
        let head = super::echoed(request).to_vec();
        // The change is about as long as the message that it was read from.
        let len = size_of::<Added>() + head.len() + request.len();
        if !budget.take(len) {
            return Err(ErrorCode::BundleMsgTooMany);
        }
        bundle.added.push(Added { change, xid, head, len });
        Ok(())
    }

    fn open(&mut self, id: u32, flags: BundleFlags) {
        self.all.insert(id, Bundle { flags, is_closed: false, added: Vec::new() });
    }

    fn remove(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.all.remove(&id)?;
        self.budget.give(bundle.added.iter().map(|added| added.len).sum());
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
