//! The kernel's associations and policies, followed by a dump and the events beside it.
//!
//! ```text
//!            ┌──────── overrun ────────┐
//!            ▼                         │
//!   lost: events mean nothing ── begin ─▶ dumping ── end ─▶ in step
//!            ▲                         │                     │
//!            └──── end, interrupted ───┘        migration: another dump
//! ```
//!
//! The kernel announces each change to all who listen, and drops announcements if a listener is slow. Then only a dump
//! shows what there is. It runs beside the events: what an event has touched since [`Mirror::begin`] is newer than what the
//! dump says about it. A flush touches all that it removes, whether the dump has shown it or will.
//!
//! [`Mirror::begin`] needs an empty queue: after an overrun the kernel keeps dropping until the listener has read all, and
//! what is read until then is older than what was dropped.
//!
//! What the kernel does without a word about each object: a hard limit removes an association or a policy (the `EXPIRE` is
//! all that is said), and a migration gives associations new addresses by rules that depend on the kernel's hash order: the
//! mirror asks for a dump.
//!
//! Threads: one has it. Nothing waits; memory is bounded by [`Bounds`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::attribute::Attribute;
use crate::message::{Body, Kind, Message};
use crate::structs::value::*;
use crate::types::{Association, AssociationId, Policy, PolicyId};

/// Most entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Associations.
    pub associations: usize,
    /// Policies.
    pub policies: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { associations: 1 << 20, policies: 1 << 16 }
    }
}

/// A change of the kernel's databases.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new association.
    AssociationAdded(Arc<Association>),
    /// An association that was there is another one now, by its keys, its ends or its settings.
    AssociationReplaced(Arc<Association>),
    /// An association is gone.
    AssociationRemoved(AssociationId),
    /// A new policy.
    PolicyAdded(Arc<Policy>),
    /// A policy that was there is another one now.
    PolicyReplaced(Arc<Policy>),
    /// A policy is gone.
    PolicyRemoved(PolicyId),
    /// Whether policies are missing that the kernel has: one could not be read, or there is no room.
    PoliciesMissing(bool),
}

/// What the mirror has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorStats {
    /// Events that were applied.
    pub events: u64,
    /// Events that were left alone because a dump is due.
    pub stale: u64,
    /// Times that the kernel dropped events.
    pub overruns: u64,
    /// Dumps that were completed.
    pub dumps: u64,
    /// Dumps that the kernel says were torn, or that an overrun made worthless.
    pub torn_dumps: u64,
    /// Associations and policies that were left out, for there is no room.
    pub left_out: u64,
}

#[derive(Debug, Default)]
struct Dump {
    associations: BTreeMap<AssociationId, Arc<Association>>,
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    touched_associations: BTreeSet<AssociationId>,
    touched_policies: BTreeSet<PolicyId>,
    /// Protocols of flushes.
    flushed_associations: Vec<u8>,
    /// Types of flushed policies.
    flushed_policies: Vec<u8>,
    /// A policy was left out.
    is_missing: bool,
}

#[derive(Debug)]
enum State {
    Lost,
    Dumping(Box<Dump>),
    InStep,
}

/// The mirror.
#[derive(Debug)]
pub struct Mirror {
    bounds: Bounds,
    state: State,
    wants_dump: bool,
    /// A policy of the kernel is not in `policies`.
    is_missing: bool,
    associations: BTreeMap<AssociationId, Arc<Association>>,
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    changes: Vec<Change>,
    stats: MirrorStats,
}

impl Mirror {
    /// Knows nothing, and wants a dump.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            state: State::Lost,
            wants_dump: true,
            is_missing: false,
            associations: BTreeMap::new(),
            policies: BTreeMap::new(),
            changes: Vec::new(),
            stats: MirrorStats::default(),
        }
    }

    /// Whether a dump is due and none runs.
    pub fn wants_dump(&self) -> bool {
        self.wants_dump && !matches!(self.state, State::Dumping(_))
    }

    /// Whether it has what the kernel has, up to the events that were given to it.
    pub fn is_in_step(&self) -> bool {
        matches!(self.state, State::InStep) && !self.wants_dump
    }

    /// The kernel has dropped events, also while a dump ran.
    pub fn overrun(&mut self) {
        self.stats.overruns += 1;
        if matches!(self.state, State::Dumping(_)) {
            self.stats.torn_dumps += 1;
        }
        self.state = State::Lost;
        self.wants_dump = true;
    }

    /// A dump begins. After an overrun the listener's queue must have been empty since.
    pub fn begin(&mut self) {
        self.state = State::Dumping(Box::default());
        self.wants_dump = false;
    }

    /// Takes a message of the dump. Others than associations and policies are left alone, and so is everything if no dump
    /// runs.
    pub fn dumped(&mut self, message: &Message) {
        let State::Dumping(dump) = &mut self.state else { return };
        match &message.body {
            Body::SaInfo(info) if dump.associations.len() < self.bounds.associations => {
                if let Some(own) = Association::read(info, &message.attributes) {
                    dump.associations.insert(own.id, Arc::new(own));
                }
            }
            Body::PolicyInfo(info) if dump.policies.len() < self.bounds.policies => {
                if let Some(own) = Policy::read(info, &message.attributes) {
                    dump.policies.insert(own.id, Arc::new(own));
                }
            }
            Body::SaInfo(_) => self.stats.left_out += 1,
            Body::PolicyInfo(_) => {
                self.stats.left_out += 1;
                dump.is_missing = true;
            }
            _ => {}
        }
    }

    /// A message of this type could not be read, of a dump or an event.
    pub fn unread(&mut self, kind: u16) {
        let is_policy =
            [Kind::NewPolicy, Kind::UpdPolicy].iter().any(|policy| policy.number() == kind);
        match &mut self.state {
            State::Dumping(dump) if is_policy => dump.is_missing = true,
            _ if is_policy => self.set_missing(true),
            // What is gone may still be here.
            _ => self.wants_dump |= kind == Kind::DelPolicy.number(),
        }
    }

    fn set_missing(&mut self, is_missing: bool) {
        if self.is_missing != is_missing {
            self.is_missing = is_missing;
            self.changes.push(Change::PoliciesMissing(is_missing));
        }
    }

    /// The dump is at its end. `is_torn`: the kernel says that it was interrupted (`NLM_F_DUMP_INTR`), or it has failed;
    /// another one is due.
    pub fn end(&mut self, is_torn: bool) {
        let State::Dumping(dump) = std::mem::replace(&mut self.state, State::Lost) else { return };
        if is_torn {
            self.stats.torn_dumps += 1;
            self.wants_dump = true;
            return;
        }
        self.stats.dumps += 1;
        self.state = State::InStep;
        let Dump { associations, policies, is_missing, .. } = &*dump;
        if *is_missing {
            // Before others are taken away or let packets pass.
            self.set_missing(true);
        }
        let left_out = self.stats.left_out;
        let gone: Vec<_> = self
            .associations
            .keys()
            .filter(|id| !associations.contains_key(id) && !dump.touched_associations.contains(id))
            .copied()
            .collect();
        gone.into_iter().for_each(|id| self.remove_association(id));
        for (id, own) in associations {
            let is_flushed =
                dump.flushed_associations.iter().any(|proto| is_flushed(*proto, id.protocol));
            if !dump.touched_associations.contains(id) && !is_flushed {
                self.put_association(own.clone());
            }
        }
        let gone: Vec<_> = self
            .policies
            .keys()
            .filter(|id| !policies.contains_key(id) && !dump.touched_policies.contains(id))
            .copied()
            .collect();
        gone.into_iter().for_each(|id| self.remove_policy(id));
        for (id, own) in policies {
            let is_flushed = dump.flushed_policies.iter().any(|kind| own.is_of(*kind));
            if !dump.touched_policies.contains(id) && !is_flushed {
                self.put_policy(own.clone());
            }
        }
        let is_missing = *is_missing || self.stats.left_out > left_out;
        self.set_missing(is_missing);
        // What events have taken away since may have made room.
        let has_changed = !dump.touched_policies.is_empty() || !dump.flushed_policies.is_empty();
        self.wants_dump |= is_missing && has_changed;
    }

    /// Takes an event.
    pub fn event(&mut self, message: &Message) {
        if matches!(self.state, State::Lost) {
            self.stats.stale += 1;
            return;
        }
        self.stats.events += 1;
        let Message { kind, body, attributes } = message;
        match (kind, body) {
            (Kind::NewSa, Body::SaInfo(info)) => {
                if let Some(own) = Association::read(info, attributes) {
                    self.touch_association(own.id);
                    self.put_association(Arc::new(own));
                }
            }
            (Kind::UpdSa, Body::SaInfo(info)) => {
                if let Some(own) = Association::read(info, attributes) {
                    self.update_association(own);
                }
            }
            (Kind::DelSa, Body::SaId(id)) => {
                if let Some(id) = AssociationId::read(id, attributes) {
                    self.touch_association(id);
                    self.remove_association(id);
                }
            }
            (Kind::Expire, Body::Expire(expire)) if expire.hard != 0 => {
                let id = crate::structs::SaId {
                    daddr: expire.state.id.daddr,
                    spi: expire.state.id.spi,
                    family: expire.state.family,
                    proto: expire.state.id.proto,
                };
                if let Some(id) = AssociationId::read(&id, attributes) {
                    self.touch_association(id);
                    self.remove_association(id);
                }
            }
            (Kind::FlushSa, Body::Flush(flush)) => self.flush_associations(flush.proto),
            (Kind::NewPolicy | Kind::UpdPolicy, Body::PolicyInfo(info)) => {
                if let Some(own) = Policy::read(info, attributes) {
                    self.touch_policy(own.id);
                    self.put_policy(Arc::new(own));
                }
            }
            (Kind::DelPolicy, Body::PolicyId(_)) => {
                // The policy that was removed is in an attribute, whatever it was removed by.
                let info = attributes.iter().find_map(|attribute| match attribute {
                    Attribute::Policy(info) => Some(info),
                    _ => None,
                });
                match info.and_then(PolicyId::read) {
                    Some(id) => {
                        self.touch_policy(id);
                        self.remove_policy(id);
                    }
                    None => self.wants_dump = true,
                }
            }
            (Kind::PolExpire, Body::PolicyExpire(expire)) if expire.hard != 0 => {
                if let Some(id) = PolicyId::read(&expire.pol) {
                    self.touch_policy(id);
                    self.remove_policy(id);
                }
            }
            (Kind::FlushPolicy, _) => {
                let kind = attributes.iter().find_map(|attribute| match attribute {
                    Attribute::PolicyType(kind) => Some(kind.value),
                    _ => None,
                });
                self.flush_policies(kind.unwrap_or(XFRM_POLICY_TYPE_MAIN));
            }
            (Kind::Migrate, _) => self.wants_dump = true,
            _ => {}
        }
    }

    /// All changes since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// All associations.
    pub fn associations(&self) -> impl Iterator<Item = &Arc<Association>> {
        self.associations.values()
    }

    /// An association.
    pub fn association(&self, id: &AssociationId) -> Option<&Arc<Association>> {
        self.associations.get(id)
    }

    /// All policies.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// What it has seen.
    pub fn stats(&self) -> MirrorStats {
        self.stats
    }

    /// The kernel keeps the keys of an association that is in use, whatever the event shows; one that had an index only is
    /// what the event shows. Which of both it was is not known of what no event has touched since the dump began.
    fn update_association(&mut self, change: Association) {
        let is_known_well = match &self.state {
            State::Dumping(dump) => dump.touched_associations.contains(&change.id),
            _ => true,
        };
        self.wants_dump |= !is_known_well;
        let own = match self.associations.get(&change.id) {
            Some(known) if is_known_well => known.updated(&change),
            Some(_) => return,
            None => change,
        };
        self.touch_association(own.id);
        self.put_association(Arc::new(own));
    }

    fn touch_association(&mut self, id: AssociationId) {
        if let State::Dumping(dump) = &mut self.state {
            dump.touched_associations.insert(id);
        }
    }

    fn touch_policy(&mut self, id: PolicyId) {
        if let State::Dumping(dump) = &mut self.state {
            dump.touched_policies.insert(id);
        }
    }

    fn flush_associations(&mut self, proto: u8) {
        let gone: Vec<_> =
            self.associations.keys().filter(|id| is_flushed(proto, id.protocol)).copied().collect();
        gone.into_iter().for_each(|id| self.remove_association(id));
        if let State::Dumping(dump) = &mut self.state
            && !dump.flushed_associations.contains(&proto)
        {
            dump.flushed_associations.push(proto);
        }
    }

    /// A policy is gone: there is room for one that was left out, or it is the one that is missing.
    fn look_for_missing(&mut self) {
        let dump_lacks = matches!(&self.state, State::Dumping(dump) if dump.is_missing);
        self.wants_dump |= self.is_missing || dump_lacks;
    }

    fn flush_policies(&mut self, kind: u8) {
        self.look_for_missing();
        let gone: Vec<_> =
            self.policies.values().filter(|own| own.is_of(kind)).map(|own| own.id).collect();
        gone.into_iter().for_each(|id| self.remove_policy(id));
        if let State::Dumping(dump) = &mut self.state
            && !dump.flushed_policies.contains(&kind)
        {
            dump.flushed_policies.push(kind);
        }
    }

    fn put_association(&mut self, own: Arc<Association>) {
        let is_full = self.associations.len() >= self.bounds.associations;
        let change = match self.associations.get(&own.id) {
            Some(known) if known.is_same(&own) => return,
            Some(_) => Change::AssociationReplaced(own.clone()),
            None if is_full => {
                self.stats.left_out += 1;
                return;
            }
            None => Change::AssociationAdded(own.clone()),
        };
        self.associations.insert(own.id, own);
        self.changes.push(change);
    }

    fn remove_association(&mut self, id: AssociationId) {
        if self.associations.remove(&id).is_some() {
            self.changes.push(Change::AssociationRemoved(id));
        }
    }

    fn put_policy(&mut self, own: Arc<Policy>) {
        let is_full = self.policies.len() >= self.bounds.policies;
        let change = match self.policies.get(&own.id) {
            Some(known) if *known == own => return,
            Some(_) => Change::PolicyReplaced(own.clone()),
            None if is_full => {
                self.stats.left_out += 1;
                if let State::Dumping(dump) = &mut self.state {
                    dump.is_missing = true;
                }
                self.set_missing(true);
                return;
            }
            None => Change::PolicyAdded(own.clone()),
        };
        self.policies.insert(own.id, own);
        self.changes.push(change);
    }

    fn remove_policy(&mut self, id: PolicyId) {
        if self.policies.remove(&id).is_some() {
            self.changes.push(Change::PolicyRemoved(id));
        }
        self.look_for_missing();
    }
}

impl Policy {
    fn is_of(&self, kind: u8) -> bool {
        kind == XFRM_POLICY_TYPE_ANY || self.is_sub == (kind == XFRM_POLICY_TYPE_SUB)
    }
}

/// Whether a flush of a protocol removes associations of another (`xfrm_id_proto_match`).
fn is_flushed(flush: u8, protocol: u8) -> bool {
    let is_ipsec = matches!(protocol, IPPROTO_ESP | IPPROTO_AH | IPPROTO_COMP);
    flush == 0 || flush == protocol || (flush == IPSEC_PROTO_ANY && is_ipsec)
}
