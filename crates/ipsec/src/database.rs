//! The databases of policies and associations, for control, and what the data path reads of them.
//!
//! ```text
//!  control   add, replace, delete, add_policy, delete_policy, expire ─▶ view() ─▶ Arc<View> ─▶ workers
//! ```
//!
//! A change shows in the next [`View`]. Making one copies the list of associations and builds the lookup of policies if one
//! changed: do several changes, then one view. Counts, sequence numbers and windows live in the associations, which
//! views share.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use crypto::esp::AssociationError;
use crypto::{Key, Marks};

use crate::association::{Association, Direction, Expiry, Mode, Parameters, Past};
use crate::hash::Keyed;
use crate::policy::{Policies, Policy, PolicyError, Selector, Template, Tuple};
use crate::{Words, words};

/// By what a received packet names its association: receiver (family and address) and index. All are ESP's.
type Place = (u8, Words, u32);

fn place(spi: u32, destination: IpAddr) -> Place {
    let (family, address) = words(destination);
    (family, address, spi)
}

/// Associations that are remembered when they are gone.
const ENDED_MAX: usize = 4096;

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

/// What the data path reads.
#[derive(Debug)]
pub struct View {
    inbound: HashMap<Place, Arc<Association>, Keyed>,
    /// Senders and receivers with UDP around ESP.
    peers: HashSet<(u8, Words, Words)>,
    /// By the number that policies have, the newest first.
    outbound: HashMap<u32, Vec<Arc<Association>>, Keyed>,
    /// Policies of packets that were received.
    pub incoming: Arc<Policies>,
    /// Policies of packets that are sent.
    pub outgoing: Arc<Policies>,
}

impl View {
    /// The association of a received packet.
    #[inline]
    pub fn inbound(&self, family: u8, destination: Words, spi: u32) -> Option<&Arc<Association>> {
        self.inbound.get(&(family, destination, spi))
    }

    /// The association that protects a packet: the newest one of the template that has not ended.
    #[inline]
    pub fn outbound(&self, template: &Template, tuple: &Tuple) -> Option<&Arc<Association>> {
        let all = self.outbound.get(&template.reqid)?;
        all.iter().find(|own| {
            let Parameters { source, destination, mode, .. } = *own.parameters();
            let fits = template.tunnel.is_none_or(|(from, to)| {
                mode == Mode::Transport || (from, to) == (source, destination)
            });
            fits && !own.has_ended() && own.serves(tuple)
        })
    }

    /// Associations to a peer: those that answer an association in.
    pub fn answers<'a>(
        &'a self,
        inbound: &'a Association,
    ) -> impl Iterator<Item = &'a Arc<Association>> {
        let Parameters { reqid, source, destination, .. } = *inbound.parameters();
        let all = self.outbound.get(&reqid).map_or(&[][..], |own| own);
        all.iter().filter(move |own| {
            let out = own.parameters();
            (out.source, out.destination) == (destination, source)
        })
    }

    /// Whether an association receives UDP from this sender.
    pub fn has_peer(&self, family: u8, source: Words, destination: Words) -> bool {
        self.peers.contains(&(family, source, destination))
    }

    /// Whether there is nothing to do for any packet.
    pub fn is_empty(&self) -> bool {
        self.inbound.is_empty() && self.incoming.is_empty() && self.outgoing.is_empty()
    }
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
}

fn remember(ended: &mut VecDeque<Ended>, gone: &Association) {
    if let Some(past) = gone.past() {
        if ended.len() == ENDED_MAX {
            ended.pop_front();
        }
        let (spi, marks) = (gone.parameters().spi, gone.marks());
        ended.push_back(Ended { spi, marks, past });
    }
}

/// Whether an association with keys `b` must go on where one with keys `a` was.
fn are_alike(a: &Marks, b: &Marks) -> bool {
    a.share_numbers(b) || a.authenticate_alike(b)
}

/// Policies and associations, as control has them.
#[derive(Debug, Default)]
pub struct Database {
    associations: HashMap<Place, Known>,
    /// Those that are gone, the latest behind: the same key may come back.
    ended: VecDeque<Ended>,
    /// In their order.
    policies: Vec<Policy>,
    added: u64,
    /// Lookups of both directions, until a policy changes.
    built: Option<[Arc<Policies>; 2]>,
}

impl Database {
    /// Empty ones.
    pub fn new() -> Self {
        Self::default()
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
    /// one was, also if the receiver is another. With another key it begins anew. If one to another receiver still has index and
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
        let past = match self.associations.get(&own).map(|known| &known.association) {
            Some(before) if are_alike(&before.marks(), &made.marks()) => before.past(),
            before => {
                if let Some(before) = before {
                    remember(&mut self.ended, before);
                }
                elsewhere.or_else(|| self.past(&made))
            }
        };
        if let Some(past) = &past {
            made.follow(past);
        }
        let association = Arc::new(made);
        self.added += 1;
        let (number, said_soft) = (self.added, false);
        let known = Known { association: association.clone(), number, said_soft };
        self.associations.insert(place(spi, destination), known);
        Ok(association)
    }

    /// Takes an association away; `None` if there is no such one.
    pub fn delete(&mut self, spi: u32, destination: IpAddr) -> Option<Arc<Association>> {
        let gone = self.associations.remove(&place(spi, destination))?.association;
        remember(&mut self.ended, &gone);
        Some(gone)
    }

    /// The association to another receiver that has this index, direction and key.
    fn elsewhere(&self, parameters: &Parameters, marks: &Marks) -> Option<&Arc<Association>> {
        let Parameters { spi, destination, direction, .. } = *parameters;
        self.associations.values().map(|known| &known.association).find(|own| {
            let other = own.parameters();
            (other.spi, other.direction) == (spi, direction)
                && other.destination != destination
                && are_alike(&own.marks(), marks)
        })
    }

    /// What is left of an association with the index and the keys of another.
    fn past(&self, own: &Association) -> Option<Past> {
        let (spi, direction) = (own.parameters().spi, own.parameters().direction);
        self.find_ended(spi, direction, &own.marks()).map(|ended| ended.past.clone())
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
        self.associations.retain(|_, known| {
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
        let key = |own: &Policy| (own.direction, own.priority);
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
        let Policy { direction, priority, .. } = policy;
        let is_same = |own: &&mut Policy| {
            (own.direction, own.priority) == (direction, priority)
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
        let [incoming, outgoing] = match &self.built {
            Some(built) => built.clone(),
            None => {
                let of = |direction| self.policies.iter().filter(move |p| p.direction == direction);
                let built = [Direction::In, Direction::Out].map(|own| Policies::new(of(own)));
                let [incoming, outgoing] = built;
                let built = [Arc::new(incoming?), Arc::new(outgoing?)];
                self.built.insert(built).clone()
            }
        };
        let mut inbound: HashMap<_, _, Keyed> = HashMap::default();
        let mut peers = HashSet::new();
        let mut out: Vec<&Known> = Vec::new();
        for (place, known) in &self.associations {
            match known.association.parameters().direction {
                Direction::In => {
                    let own = &known.association;
                    inbound.insert(*place, own.clone());
                    if own.parameters().udp.is_some() {
                        let (source, destination) = own.ends();
                        peers.insert((own.family(), source, destination));
                        peers.insert((own.family(), own.source(), destination));
                    }
                }
                Direction::Out => out.push(known),
            }
        }
        out.sort_unstable_by_key(|own| std::cmp::Reverse(own.number));
        let mut outbound: HashMap<u32, Vec<Arc<Association>>, Keyed> = HashMap::default();
        for known in out {
            let reqid = known.association.parameters().reqid;
            outbound.entry(reqid).or_default().push(known.association.clone());
        }
        Ok(Arc::new(View { inbound, peers, outbound, incoming, outgoing }))
    }
}
