//! The databases of policies and associations, for control, and what the data path reads of them.
//!
//! ```text
//!  control   add, replace, delete, add_policy, delete_policy, expire ─▶ view() ─▶ Arc<View> ─▶ workers
//! ```
//!
//! A change shows in the next [`View`]. Making one copies the list of associations and builds the lookup of policies if one
//! changed: do several changes, then one view. Counts, sequence numbers and windows live in the associations, which
//! views share.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque, btree_map};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use crypto::esp::AssociationError;
use crypto::{Key, Marks};

use crate::association::{Association, Expiry, Past, Used};
use crate::hash::Keyed;
use crate::parameters::{Direction, Mode, Parameters};
use crate::path;
use crate::peer::Peer;
use crate::policy::{Action, Number, Policies, Policy, PolicyError, Selector, Template, Tuple};
use crate::{Words, words};

/// By what a received packet names its association: receiver (family and address) and index. All are ESP's.
type Place = (u8, Words, u32);

fn place(spi: u32, destination: IpAddr) -> Place {
    let (family, address) = words(destination);
    (family, address, spi)
}

/// Associations that are remembered when they are gone.
const ENDED_MAX: usize = 4096;

/// Peers that are known before those that are gone are looked for.
const PEERS_MIN: usize = 64;

/// Ways of which something is known before those are looked for of which nothing has to be known any more.
const PATHS_MIN: usize = 64;

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// There is an association with this index and receiver.
    #[error("there is an association with SPI {spi:#x} to {destination}")]
    Exists {
        /// The index.
        spi: u32,
        /// The receiver.
        destination: IpAddr,
    },
    /// An association with this index and key, to another receiver, counts otherwise: numbers of 32 or 64 bits, or another window.
    #[error(
        "the association with SPI {spi:#x} to {destination} has this key, but another `esn` or `window`"
    )]
    Shared {
        /// The index.
        spi: u32,
        /// The receiver of the other one.
        destination: IpAddr,
    },
    /// The ends are of two families.
    #[error("source and destination are of two address families")]
    Families,
    /// ESP refuses it.
    #[error("{0}")]
    Esp(AssociationError),
    /// A policy is refused.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There is a policy with this direction, selector and priority.
    #[error("there is such a policy")]
    PolicyExists,
}

/// What the packets of a tunnel interface leave and come by: route-based IPsec, as with the XFRM interfaces of Linux. Routes
/// choose the tunnel. Its policies decide about its packets if it has any; otherwise its associations carry all of them.
#[derive(Debug)]
struct Tunnel {
    incoming: Arc<Policies>,
    outgoing: Arc<Policies>,
    /// Those that send, the newest first.
    associations: Vec<Arc<Association>>,
}

impl Tunnel {
    fn has_policies(&self) -> bool {
        !self.incoming.is_empty() || !self.outgoing.is_empty()
    }
}

/// Why a packet cannot leave by a tunnel interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCarried {
    /// Its policies do not protect it.
    Discard,
    /// No association serves it; with what the policy asks for.
    Missing(Option<Template>),
}

/// An association that was found and not looked at, to be loaded ahead: what finds it says which lines.
#[derive(Debug, Clone)]
pub struct Ahead<A> {
    association: A,
    lines: u64,
}

impl Ahead<Arc<Association>> {
    fn new(association: Arc<Association>) -> Self {
        let lines = association.lines();
        Self { association, lines }
    }

    #[inline]
    fn as_ref(&self) -> Ahead<&Association> {
        Ahead { association: &self.association, lines: self.lines }
    }
}

impl<'v> Ahead<&'v Association> {
    /// The association.
    #[inline]
    pub fn association(&self) -> &'v Association {
        self.association
    }

    /// Starts to load the lines of it that a packet reads and writes, and reads nothing. [`Association::prefetch_numbers`] goes on
    /// when they are there, then [`Association::prefetch_window`].
    ///
    /// A processor may drop a prefetch when many are on their way: so this is for one association among the work of a packet.
    #[inline]
    pub fn prefetch(&self) {
        self.association.prefetch_lines(self.lines);
    }

    /// Has the page table searched for these associations, in a row: a prefetch waits for its search, and only those of
    /// prefetches beside it overlap.
    pub fn prefetch_pages(found: &[Option<Self>]) {
        found.iter().flatten().for_each(|own| own.association.prefetch_ends(own.lines));
    }
}

/// Associations of one number, the newest first.
#[derive(Debug)]
struct Carriers {
    first: Ahead<Arc<Association>>,
    others: Vec<Arc<Association>>,
}

impl Carriers {
    fn iter(&self) -> impl Iterator<Item = &Arc<Association>> {
        std::iter::once(&self.first.association).chain(&self.others)
    }
}

/// What the data path reads.
#[derive(Debug)]
pub struct View {
    inbound: HashMap<Place, Ahead<Arc<Association>>, Keyed>,
    /// Senders and receivers with UDP around ESP.
    peers: HashSet<(u8, Words, Words)>,
    /// By the number that policies have, the newest first; without those of tunnel interfaces.
    outbound: HashMap<u32, Carriers, Keyed>,
    /// By their `if_id`.
    tunnels: HashMap<u32, Tunnel, Keyed>,
    /// Those that send, by where their packets go.
    senders: HashMap<Place, Arc<Association>, Keyed>,
    /// An association sends in UDP.
    pub sends_in_udp: bool,
    /// Policies of packets that were received.
    pub incoming: Arc<Policies>,
    /// Policies of packets that are sent. [`View::set_outgoing`] changes them.
    outgoing: Arc<Policies>,
    /// By their numbers: the newest association of the template, if it is between its ends. What it is found by is in one line.
    protecting: Vec<Option<Ahead<Arc<Association>>>>,
}

impl View {
    /// Whether there are so many associations that packets wait for them: then [`Ahead::prefetch`] is worth its time.
    #[inline]
    pub fn is_large(&self) -> bool {
        const LARGE: usize = 64;
        self.inbound.len().max(self.outbound.len()) > LARGE
    }

    /// Policies of packets that are sent.
    #[inline]
    pub fn outgoing(&self) -> &Arc<Policies> {
        &self.outgoing
    }

    /// Puts other policies of packets that are sent in the place of these.
    pub fn set_outgoing(&mut self, policies: Arc<Policies>) {
        let first = |action: &Action| match action {
            Action::Protect(template) => {
                let first = &self.outbound.get(&template.reqid)?.first;
                is_between(&first.association, template).then(|| first.clone())
            }
            Action::Bypass | Action::Discard => None,
        };
        self.protecting = policies.answers().iter().map(first).collect();
        self.outgoing = policies;
    }

    /// The first of the associations that may protect the packets of an outgoing policy, not looked at: to be loaded ahead.
    #[inline]
    pub fn first_outbound(&self, number: Number) -> Option<Ahead<&Association>> {
        self.protecting.get(number.index())?.as_ref().map(Ahead::as_ref)
    }

    /// The association that protects a packet of an outgoing policy, if it is the first one. `None` says nothing:
    /// [`View::outbound`] does.
    #[inline]
    pub fn carrier(&self, number: Number, tuple: &Tuple) -> Option<&Association> {
        let own = &*self.protecting.get(number.index())?.as_ref()?.association;
        (!own.has_ended() && own.serves(tuple)).then_some(own)
    }

    /// The association of a received packet, likewise.
    #[inline]
    pub fn first_inbound(
        &self,
        family: u8,
        destination: Words,
        spi: u32,
    ) -> Option<Ahead<&Association>> {
        self.inbound.get(&(family, destination, spi)).map(Ahead::as_ref)
    }

    /// The association of a received packet.
    #[inline]
    pub fn inbound(&self, family: u8, destination: Words, spi: u32) -> Option<&Arc<Association>> {
        self.inbound.get(&(family, destination, spi)).map(|own| &own.association)
    }

    /// The association that protects a packet: the newest one of the template that has not ended.
    #[inline]
    pub fn outbound(&self, template: &Template, tuple: &Tuple) -> Option<&Arc<Association>> {
        let all = self.outbound.get(&template.reqid)?;
        all.iter().find(|own| is_carrier(own, template, tuple))
    }

    /// The association that carries a packet out of the tunnel interface with this number.
    ///
    /// # Errors
    /// Why there is none.
    pub fn through(&self, if_id: u32, tuple: &Tuple) -> Result<&Arc<Association>, NotCarried> {
        let tunnel = self.tunnels.get(&if_id).ok_or(NotCarried::Missing(None))?;
        let mut all = tunnel.associations.iter();
        if !tunnel.has_policies() {
            let found = all.find(|own| !own.has_ended() && own.serves(tuple));
            return found.ok_or(NotCarried::Missing(None));
        }
        match tunnel.outgoing.find(tuple) {
            Some(Action::Protect(template)) => {
                let fits = |own: &&Arc<Association>| {
                    own.parameters().reqid == template.reqid && is_carrier(own, &template, tuple)
                };
                all.find(fits).ok_or(NotCarried::Missing(Some(template)))
            }
            // What passes as it is has no way out of a tunnel.
            Some(Action::Bypass | Action::Discard) | None => Err(NotCarried::Discard),
        }
    }

    /// Whether a packet that an association opened may enter by the tunnel interface with this number.
    pub fn enters(&self, if_id: u32, reqid: u32, tuple: &Tuple) -> bool {
        let Some(tunnel) = self.tunnels.get(&if_id).filter(|own| own.has_policies()) else {
            return true;
        };
        matches!(tunnel.incoming.find(tuple), Some(Action::Protect(own)) if own.reqid == reqid)
    }

    /// Whether an association that sends has this index and receiver.
    pub fn sends(&self, family: u8, destination: Words, spi: u32) -> bool {
        self.sender(family, destination, spi).is_some()
    }

    /// The association that sends packets with this index to this receiver, in UDP also to where the peer was.
    pub fn sender(&self, family: u8, destination: Words, spi: u32) -> Option<&Arc<Association>> {
        self.senders.get(&(family, destination, spi))
    }

    /// Whether an association receives UDP from this sender.
    pub fn has_peer(&self, family: u8, source: Words, destination: Words) -> bool {
        self.peers.contains(&(family, source, destination))
    }

    /// Whether there is nothing to do for any packet.
    pub fn is_empty(&self) -> bool {
        self.inbound.is_empty()
            && self.incoming.is_empty()
            && self.outgoing.is_empty()
            && self.tunnels.is_empty()
    }
}

/// Whether an association is between the ends of a template, and may carry a packet.
#[inline]
fn is_carrier(own: &Association, template: &Template, tuple: &Tuple) -> bool {
    is_between(own, template) && !own.has_ended() && own.serves(tuple)
}

/// Whether an association is between the ends of a template.
#[inline]
fn is_between(own: &Association, template: &Template) -> bool {
    let Parameters { source, destination, mode, .. } = *own.parameters();
    template
        .tunnel
        .is_none_or(|(from, to)| mode == Mode::Transport || (from, to) == (source, destination))
}

/// An association and what was said about its limits.
#[derive(Debug)]
struct Known {
    association: Arc<Association>,
    /// Those added later have a higher one.
    number: u64,
    said_soft: bool,
}

/// What is known of an association that is gone. Its keys are wiped.
#[derive(Debug)]
struct Ended {
    spi: u32,
    marks: Marks,
    past: Past,
    used: Used,
}

fn remember(ended: &mut VecDeque<Ended>, gone: &Association) {
    if let Some(past) = gone.past() {
        if ended.len() == ENDED_MAX {
            ended.pop_front();
        }
        let (spi, marks) = (gone.parameters().spi, gone.marks());
        ended.push_back(Ended { spi, marks, past, used: gone.used() });
    }
}

/// Takes a place out of the receivers of its index.
fn forget(receivers: &mut HashMap<u32, Vec<(u8, Words)>>, (family, address, spi): Place) {
    if let Entry::Occupied(mut own) = receivers.entry(spi) {
        own.get_mut().retain(|other| *other != (family, address));
        if own.get().is_empty() {
            own.remove();
        }
    }
}

/// Whether an association with keys `b` must go on where one with keys `a` was.
fn are_alike(a: &Marks, b: &Marks) -> bool {
    a.share_numbers(b) || a.authenticate_alike(b)
}

/// Who sends between two addresses.
#[derive(Debug)]
enum Identifications {
    /// One association over IPv4, which counts by its own numbers.
    One(Weak<Association>),
    /// Several, or any over IPv6, with one counter.
    Several(Weak<AtomicU32>),
}

impl Identifications {
    fn is_used(&self) -> bool {
        match self {
            Self::One(own) => own.strong_count() > 0,
            Self::Several(next) => next.strong_count() > 0,
        }
    }
}

/// Policies and associations, as control has them.
#[derive(Debug, Default)]
pub struct Database {
    associations: HashMap<Place, Known>,
    /// Receivers (family and address) of the associations by their index: few have the same one.
    receivers: HashMap<u32, Vec<(u8, Words)>>,
    /// Those that are gone, the latest behind: the same key may come back.
    ended: VecDeque<Ended>,
    /// In their order.
    policies: Vec<Policy>,
    added: u64,
    /// Where peers are: by both ends, `reqid` and `if_id`.
    peers: HashMap<(IpAddr, IpAddr, u32, u32), Weak<Peer>>,
    /// Path MTUs that associations between these ends have learned: new ones begin with them.
    paths: HashMap<(IpAddr, IpAddr), u64>,
    /// Where identifications of outer headers come from, by both ends and whether UDP is around ESP, which IPv6 does not tell apart.
    identifications: HashMap<(IpAddr, IpAddr, bool), Identifications>,
    /// By which identifications over IPv6 begin.
    seed: Keyed,
    /// Lookups of both directions, for each `if_id` that has policies and for 0, until a policy changes.
    built: Option<BTreeMap<u32, [Arc<Policies>; 2]>>,
}

impl Database {
    /// Empty ones.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with identifications of fragments that begin by this seed, and not by a secret.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self { seed: Keyed::new(seed), ..Self::default() }
    }

    /// Adds an association. `now_ns`: when its time begins; 0: with its first packet.
    ///
    /// # Errors
    /// Why it cannot be; the key is gone then.
    pub fn add(
        &mut self,
        parameters: Parameters,
        key: Key,
        now_ns: u64,
    ) -> Result<Arc<Association>, DatabaseError> {
        let Parameters { spi, destination, .. } = parameters;
        if self.associations.contains_key(&place(spi, destination)) {
            return Err(DatabaseError::Exists { spi, destination });
        }
        self.replace(parameters, key, now_ns)
    }

    /// Adds an association, or puts it in the place of the one with the same index and receiver. Numbers and windows belong to
    /// a key: with the key of that one, or of one of the last 4,096 that are gone and had its index, it goes on where that
    /// one was, also if the receiver is another; so do bytes, packets and time of its limits. One in the place of one with its key is as old as that. With another key it begins anew. If one to another receiver still has index and
    /// key, both take numbers from the same place, and what one accepts the other refuses.
    ///
    /// # Errors
    /// Why it cannot be; the one before stays then.
    pub fn replace(
        &mut self,
        parameters: Parameters,
        key: Key,
        now_ns: u64,
    ) -> Result<Arc<Association>, DatabaseError> {
        let Parameters { spi, source, destination, .. } = parameters;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(DatabaseError::Families);
        }
        let mut made = Association::new(parameters, key, now_ns).map_err(DatabaseError::Esp)?;
        let own = place(spi, destination);
        let elsewhere = match self.elsewhere(made.parameters(), &made.marks()) {
            Some(other) => {
                let past = other.past();
                if past.as_ref().is_some_and(|past| !made.can_share(past)) {
                    let destination = other.parameters().destination;
                    return Err(DatabaseError::Shared { spi, destination });
                }
                past
            }
            None => None,
        };
        self.added += 1;
        // One with other settings keeps its place among the others.
        let mut number = self.added;
        let (past, used) = match self.associations.get(&own) {
            Some(before) if are_alike(&before.association.marks(), &made.marks()) => {
                number = before.number;
                (before.association.past(), Some(before.association.used()))
            }
            before => {
                if let Some(before) = before {
                    remember(&mut self.ended, &before.association);
                }
                let ended = self.past(&made);
                let used = ended.map(|own| own.used);
                (elsewhere.or_else(|| ended.map(|own| own.past.clone())), used)
            }
        };
        if let Some(past) = &past {
            made.follow(past);
        }
        if let Some(used) = used {
            made.count_on(used);
        }
        if let Some(word) = self.path(&made, own) {
            made.path().set(word);
        }
        if made.parameters().udp.is_some() {
            let peer = self.peer(&made);
            made.join(peer, number);
        }
        let association = Arc::new(made);
        self.share_identifications(&association);
        let known = Known { association: association.clone(), number, said_soft: false };
        if self.associations.insert(own, known).is_none() {
            self.receivers.entry(spi).or_default().push((own.0, own.1));
        }
        Ok(association)
    }

    /// What is known of the way of an association that sends, which takes this place.
    fn path(&self, made: &Association, own: Place) -> Option<u64> {
        let Parameters { source, destination, direction, .. } = *made.parameters();
        if direction == Direction::In {
            return None;
        }
        let before = self.associations.get(&own).map(|known| &known.association);
        let before = before.filter(|before| before.parameters().source == source);
        let before = before.map(|before| before.path().word()).filter(|word| *word != 0);
        before.or_else(|| self.paths.get(&(source, destination)).copied())
    }

    /// Shares the path MTUs of all associations, if it is not known which ones have learned theirs.
    pub fn share_path_mtus(&mut self, now_ns: u64) {
        let mut all: Vec<(u32, IpAddr)> = Vec::new();
        for known in self.associations.values().filter(|known| known.association.knows_path()) {
            let Parameters { spi, destination, .. } = *known.association.parameters();
            all.push((spi, destination));
        }
        all.into_iter().for_each(|(spi, to)| self.share_path_mtu(spi, to, now_ns));
    }

    /// An association has learned a path MTU: so have all others between its ends, and those to come.
    pub fn share_path_mtu(&mut self, spi: u32, destination: IpAddr, now_ns: u64) {
        let Some(own) = self.get(spi, destination) else { return };
        let (source, word) = (own.parameters().source, own.path().word());
        // Workers' clocks may be a little ahead.
        let now_ns = now_ns.max((word >> 16) * 1_000_000);
        let Some(mtu) = path::at(word, now_ns) else { return };
        for known in self.associations.values() {
            let other = &known.association;
            let Parameters { direction, source: from, destination: to, .. } = *other.parameters();
            let is_longer = other.path_mtu(now_ns).is_none_or(|known| known > mtu);
            if direction == Direction::Out && (from, to) == (source, destination) && is_longer {
                other.path().set(word);
            }
        }
        if self.paths.len() > PATHS_MIN.max(2 * self.associations.len()) {
            self.paths.retain(|_, word| path::at(*word, now_ns).is_some());
        }
        let known = self.paths.get(&(source, destination));
        if known.and_then(|known| path::at(*known, now_ns)).is_none_or(|known| mtu <= known) {
            self.paths.insert((source, destination), word);
        }
    }

    /// Has an association in tunnel mode take identifications from the counter of its ends: over IPv4 if another one has sent there.
    fn share_identifications(&mut self, made: &Arc<Association>) {
        let Parameters { source, destination, direction, mode, udp, .. } = *made.parameters();
        if direction == Direction::In || mode == Mode::Transport {
            return;
        }
        let is_v4 = made.family() == 4;
        let ends = (source, destination, is_v4 && udp.is_some());
        let next = match self.identifications.get(&ends) {
            Some(Identifications::Several(next)) => next.upgrade(),
            Some(Identifications::One(first)) => first.upgrade().map(|first| {
                // It goes on where it was.
                let next = Arc::new(AtomicU32::new(first.number() as u32));
                first.share_identifications(&next);
                next
            }),
            None => None,
        };
        // Others must not guess them (RFC 7739 §5.1), nor is the beginning that of a counter that is gone.
        let first = || self.seed.hash_one((source, destination, self.added)) as u32;
        let next = next.or_else(|| (!is_v4).then(|| Arc::new(AtomicU32::new(first()))));
        let known = match next {
            Some(next) => {
                made.share_identifications(&next);
                Identifications::Several(Arc::downgrade(&next))
            }
            None => Identifications::One(Arc::downgrade(made)),
        };
        if self.identifications.len() > PATHS_MIN.max(2 * self.associations.len()) {
            self.identifications.retain(|_, own| own.is_used());
        }
        self.identifications.insert(ends, known);
    }

    /// The peer of an association: that of all in UDP with its ends, `reqid` and `if_id`, of both directions.
    fn peer(&mut self, own: &Association) -> Arc<Peer> {
        let parameters = own.parameters();
        let Parameters { spi, source, destination, direction, reqid, if_id, .. } = *parameters;
        let (us, them) = match direction {
            Direction::In => (destination, source),
            Direction::Out => (source, destination),
        };
        let known = self.peers.entry((us, them, reqid, if_id)).or_default();
        let peer = known.upgrade().unwrap_or_default();
        *known = Arc::downgrade(&peer);
        // Whoever puts another port in the place of one knows better.
        let before = self.associations.get(&place(spi, destination));
        if before.is_some_and(|before| before.association.parameters().udp != parameters.udp) {
            peer.forget();
        }
        if self.peers.len() > 2 * self.associations.len() + PEERS_MIN {
            self.peers.retain(|_, peer| peer.strong_count() > 0);
        }
        peer
    }

    /// Takes an association away; `None` if there is no such one.
    pub fn delete(&mut self, spi: u32, destination: IpAddr) -> Option<Arc<Association>> {
        let own = place(spi, destination);
        let gone = self.associations.remove(&own)?.association;
        forget(&mut self.receivers, own);
        remember(&mut self.ended, &gone);
        Some(gone)
    }

    /// The association to another receiver that has this index, direction and key.
    fn elsewhere(&self, parameters: &Parameters, marks: &Marks) -> Option<&Arc<Association>> {
        let Parameters { spi, destination, direction, .. } = *parameters;
        let receivers = self.receivers.get(&spi).into_iter().flatten();
        let all = receivers.filter_map(|own| self.associations.get(&(own.0, own.1, spi)));
        all.map(|known| &known.association).find(|own| {
            let other = own.parameters();
            other.direction == direction
                && other.destination != destination
                && are_alike(&own.marks(), marks)
        })
    }

    /// What is left of an association with the index and the keys of another.
    fn past(&self, own: &Association) -> Option<&Ended> {
        let (spi, direction) = (own.parameters().spi, own.parameters().direction);
        self.find_ended(spi, direction, &own.marks())
    }

    fn find_ended(&self, spi: u32, direction: Direction, marks: &Marks) -> Option<&Ended> {
        self.ended.iter().rev().find(|own| {
            (own.spi, own.past.direction()) == (spi, direction) && are_alike(&own.marks, marks)
        })
    }

    /// Whether an association with this index and these keys would go on where another was, or is.
    pub fn remembers(&self, parameters: &Parameters, marks: &Marks) -> bool {
        let Parameters { spi, destination, direction, .. } = *parameters;
        let is_alike = |own: &Arc<Association>| {
            own.parameters().direction == direction && are_alike(&own.marks(), marks)
        };
        self.get(spi, destination).is_some_and(is_alike)
            || self.elsewhere(parameters, marks).is_some()
            || self.find_ended(spi, direction, marks).is_some()
    }

    /// The index of another association that has used, or may use, numbers that one with these parameters must not use under
    /// its keys; among those that are gone, the last 4,096 are known. One of the other direction counts too: its numbers are the
    /// peer's. One that is gone and had the index does not: its numbers go on.
    pub fn shares_numbers(&self, parameters: &Parameters, marks: &Marks) -> Option<u32> {
        let Parameters { spi, destination, direction, .. } = *parameters;
        let live = self.associations.values().map(|known| &known.association);
        let mut live =
            live.filter(|own| own.marks().share_numbers(marks)).map(|own| own.parameters());
        let is_other = |own: &&Parameters| {
            (own.spi, own.direction, own.destination) != (spi, direction, destination)
        };
        let ended = self.ended.iter().filter(|own| own.marks.share_numbers(marks));
        let mut ended = ended.filter(|own| (own.spi, own.past.direction()) != (spi, direction));
        live.find(is_other).map(|own| own.spi).or_else(|| ended.next().map(|own| own.spi))
    }

    /// The association with this index and receiver.
    pub fn get(&self, spi: u32, destination: IpAddr) -> Option<&Arc<Association>> {
        self.associations.get(&place(spi, destination)).map(|own| &own.association)
    }

    /// All associations, in the order in which they were added.
    pub fn associations(&self) -> Vec<&Arc<Association>> {
        let mut all: Vec<_> = self.associations.values().collect();
        all.sort_unstable_by_key(|own| own.number);
        all.into_iter().map(|own| &own.association).collect()
    }

    /// Takes away what has reached a hard limit, and says which limits were reached since the last call.
    pub fn expire(&mut self, now_ns: u64) -> Vec<Expiry> {
        let mut said = Vec::new();
        self.associations.retain(|place, known| {
            let own = &known.association;
            own.is_over_time(now_ns);
            let (is_soft, is_hard) = own.reached();
            let Parameters { spi, destination, direction, reqid, .. } = *own.parameters();
            let number = known.number;
            let mut say = |is_hard| {
                said.push((number, Expiry { spi, destination, direction, reqid, is_hard }));
            };
            // Both may have been reached since the last call.
            if is_soft && !known.said_soft {
                known.said_soft = true;
                say(false);
            }
            if is_hard {
                say(true);
                forget(&mut self.receivers, *place);
                remember(&mut self.ended, own);
            }
            !is_hard
        });
        said.sort_by_key(|own| own.0);
        said.into_iter().map(|own| own.1).collect()
    }

    /// Adds a policy behind those of its priority.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn add_policy(&mut self, policy: Policy) -> Result<(), DatabaseError> {
        let key = |own: &Policy| (own.direction, own.priority, own.if_id);
        let is_same = |own: &&Policy| key(own) == key(&policy) && own.selector == policy.selector;
        if self.policies.iter().any(|own| is_same(&own)) {
            return Err(DatabaseError::PolicyExists);
        }
        policy.check()?;
        let at = self.policies.partition_point(|own| own.priority <= policy.priority);
        self.policies.insert(at, policy);
        self.built = None;
        Ok(())
    }

    /// Puts a policy in the place of the one with the same direction, selector and priority, or adds it.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn replace_policy(&mut self, policy: Policy) -> Result<(), DatabaseError> {
        let Policy { direction, priority, if_id, .. } = policy;
        let is_same = |own: &&mut Policy| {
            (own.direction, own.priority, own.if_id) == (direction, priority, if_id)
                && own.selector == policy.selector
        };
        match self.policies.iter_mut().find(is_same) {
            Some(own) => {
                own.action = policy.action;
                self.built = None;
                Ok(())
            }
            None => self.add_policy(policy),
        }
    }

    /// Takes the first policy of a direction with this selector away; whether there was one.
    pub fn delete_policy(&mut self, direction: Direction, selector: &Selector) -> bool {
        let is_it = |own: &Policy| own.direction == direction && own.selector == *selector;
        let at = self.policies.iter().position(is_it);
        if let Some(at) = at {
            self.policies.remove(at);
            self.built = None;
        }
        at.is_some()
    }

    /// All policies, in their order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Takes all policies away.
    pub fn clear_policies(&mut self) {
        self.policies.clear();
        self.built = None;
    }

    /// What the data path is to read from now on.
    ///
    /// # Errors
    /// The lookup of policies cannot be built.
    pub fn view(&mut self) -> Result<Arc<View>, DatabaseError> {
        let mut built = match &self.built {
            Some(built) => built.clone(),
            None => {
                let of = |if_id, direction| {
                    let is_own =
                        move |own: &&Policy| (own.if_id, own.direction) == (if_id, direction);
                    Policies::new(self.policies.iter().filter(is_own)).map(Arc::new)
                };
                let mut built = BTreeMap::new();
                for if_id in self.policies.iter().map(|own| own.if_id).chain([0]) {
                    if let btree_map::Entry::Vacant(place) = built.entry(if_id) {
                        place.insert([of(if_id, Direction::In)?, of(if_id, Direction::Out)?]);
                    }
                }
                self.built.insert(built).clone()
            }
        };
        let mut inbound: HashMap<Place, _, Keyed> = HashMap::default();
        let mut senders: HashMap<Place, _, Keyed> = HashMap::default();
        let mut peers = HashSet::new();
        let mut out: Vec<&Known> = Vec::new();
        for (place, known) in &self.associations {
            match known.association.parameters().direction {
                Direction::In => {
                    let own = &known.association;
                    inbound.insert(*place, Ahead::new(own.clone()));
                    if own.parameters().udp.is_some() {
                        let (source, destination) = own.ends();
                        peers.insert((own.family(), source, destination));
                        peers.insert((own.family(), own.source(), destination));
                    }
                }
                Direction::Out => {
                    let own = &known.association;
                    // The peer may have moved, and another association may have this index to where it is now.
                    let is_new = |own: &Place| !self.associations.contains_key(own);
                    let now = Some(self::place(place.2, own.peer().0)).filter(is_new);
                    for at in std::iter::once(*place).chain(now) {
                        senders.insert(at, own.clone());
                    }
                    out.push(known);
                }
            }
        }
        out.sort_unstable_by_key(|own| std::cmp::Reverse(own.number));
        let mut outbound: HashMap<u32, Carriers, Keyed> = HashMap::default();
        let none = Arc::new(Policies::new(std::iter::empty())?);
        let [incoming, outgoing] = built.remove(&0).unwrap_or([none.clone(), none.clone()]);
        let tunnel = |[incoming, outgoing]: [Arc<Policies>; 2]| Tunnel {
            incoming,
            outgoing,
            associations: Vec::new(),
        };
        let mut tunnels: HashMap<u32, Tunnel, Keyed> =
            built.into_iter().map(|(if_id, policies)| (if_id, tunnel(policies))).collect();
        let sends_in_udp = out.iter().any(|own| own.association.parameters().udp.is_some());
        for known in out {
            let Parameters { reqid, if_id, .. } = *known.association.parameters();
            let association = known.association.clone();
            match (if_id, outbound.entry(reqid)) {
                (0, Entry::Occupied(mut all)) => all.get_mut().others.push(association),
                (0, Entry::Vacant(place)) => {
                    let first = Ahead::new(association);
                    place.insert(Carriers { first, others: Vec::new() });
                }
                _ => {
                    let plain = || tunnel([none.clone(), none.clone()]);
                    tunnels.entry(if_id).or_insert_with(plain).associations.push(association);
                }
            }
        }
        let mut view = View {
            inbound,
            peers,
            outbound,
            tunnels,
            senders,
            sends_in_udp,
            incoming,
            outgoing: none,
            protecting: Vec::new(),
        };
        view.set_outgoing(outgoing);
        Ok(Arc::new(view))
    }
}
