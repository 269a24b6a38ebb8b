//! Prefixes that neighbours register, by the commands of NFD's management protocol.
//!
//! A face has one route for a prefix. Several faces of one prefix are tried in the order of their costs. A route ends
//! with its ExpirationPeriod, when it is unregistered, and with its face.
//!
//! The answer to a command is a part of the tables, under the command's whole name: a worker answers the Interest with
//! it, and answers the same Interest again for as long as the answer is kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lookup::names::DEPTH_MAX;
use packet::ndn::management::{Command, CommandError, Parameters, answer, response};
use packet::ndn::{self, Body, Interest, NameBuf};

use super::{NdnControl, NdnPatch, Source};

/// Answers that are kept, and for how long.
const ANSWERS: usize = 1024;
const ANSWER_NS: u64 = 10_000_000_000;

/// A face's number in commands is this much more than its own: NFD gives no face a number below.
const FACE_ID: u64 = 256;

/// Routes of one prefix: each costs its place in a list that is published.
const FACES: usize = 64;

/// What was registered.
#[derive(Debug, Clone, Default)]
pub(super) struct Registrations {
    by_prefix: BTreeMap<NameBuf, Vec<Route>>,
    /// The names of answers, each with its end, the oldest first.
    answers: VecDeque<(Vec<u8>, u64)>,
}

/// A registered route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Route {
    cost: u64,
    face: u16,
    expires_ns: Option<u64>,
}

/// A refusal: its code and text.
type Refused = (u16, &'static str);

impl Registrations {
    /// When the next route or answer ends.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let routes = self.by_prefix.values().flatten().filter_map(|route| route.expires_ns);
        routes.chain(self.answers.front().map(|(_, ends_ns)| *ends_ns)).min()
    }

    /// The faces of a prefix, the one with the least cost first; `None` without a route.
    fn faces(&self, prefix: &NameBuf) -> Option<Vec<u16>> {
        let mut routes = self.by_prefix.get(prefix)?.clone();
        routes.sort_by_key(|route| (route.cost, route.face));
        Some(routes.into_iter().map(|route| route.face).collect())
    }
}

impl NdnControl {
    /// Does what the command in an Interest says that came by a face, once, and publishes the answer.
    pub(super) fn command(&mut self, face: u16, packet: &[u8], now_ns: u64) {
        let Ok(ndn::Packet { body: Body::Interest(interest), .. }) =
            ndn::Packet::new_checked(packet)
        else {
            return;
        };
        let name = interest.name();
        if self.registrations.answers.iter().any(|(known, _)| known == name.value()) {
            return;
        }
        let content = match self.execute(face, &interest, now_ns) {
            Ok(content) => content,
            Err((code, text)) => {
                tracing::debug!("{name}: {code} {text}");
                // NFD leaves the parameters out; python-ndn cannot read an answer without them.
                response(code, text, Some(&Parameters::default()))
            }
        };
        // A name that leaves no room for an answer has none, and the Interest is dropped.
        let Some(packet) = answer(&name, &content) else { return };
        if self.registrations.answers.len() == ANSWERS {
            self.forget_answer();
        }
        let ends_ns = now_ns.saturating_add(ANSWER_NS);
        self.registrations.answers.push_back((name.value().to_vec(), ends_ns));
        self.strangers.timer_ns = self.strangers.timer_ns.min(ends_ns);
        let packet: Arc<[u8]> = packet.into();
        self.changed.push(NdnPatch::Answer(name.value().to_vec(), Some(packet)));
    }

    fn forget_answer(&mut self) {
        if let Some((name, _)) = self.registrations.answers.pop_front() {
            self.changed.push(NdnPatch::Answer(name, None));
        }
    }

    /// The content of the answer.
    fn execute(
        &mut self,
        face: u16,
        interest: &Interest<'_>,
        now_ns: u64,
    ) -> Result<Vec<u8>, Refused> {
        let own = self.faces.get(usize::from(face)).and_then(|known| known.published.as_ref());
        let own = own.ok_or((410, "Face not found"))?;
        if !self.policy(own.port).register {
            return Err((403, "registration is not permitted on this port"));
        }
        let command = Command::read(interest).map_err(|error| match error {
            CommandError::Malformed => (400, "Malformed command"),
            CommandError::NotSigned => (403, "the command is not signed"),
            CommandError::WrongDigest => (403, "the digest of the command is wrong"),
        })?;
        let is_register = match (command.module, command.verb) {
            (b"rib", b"register") => true,
            (b"rib", b"unregister") => false,
            _ => return Err((501, "Unsupported command")),
        };
        let parameters = command.parameters;
        let name = parameters.name.ok_or((400, "failed in validating parameters"))?;
        let own_id = u64::from(face) + FACE_ID;
        if parameters.face_id.is_some_and(|id| id != 0 && id != own_id) {
            return Err((403, "a face may register prefixes for itself alone"));
        }
        if name.len() > DEPTH_MAX {
            return Err((414, "Route prefix cannot exceed 31 components"));
        }
        let mut prefix = NameBuf::new();
        name.components().for_each(|component| prefix.push(component.kind, component.value));
        let mut applied = Parameters {
            name: Some(name),
            face_id: Some(own_id),
            origin: Some(parameters.origin.unwrap_or(0)),
            ..Parameters::default()
        };
        if is_register {
            applied.cost = Some(parameters.cost.unwrap_or(0));
            applied.flags = Some(parameters.flags.unwrap_or(1));
            applied.expiration_ms = parameters.expiration_ms;
            let lifetime_ns = parameters.expiration_ms.map(|ms| ms.saturating_mul(1_000_000));
            let expires_ns = lifetime_ns.map(|lifetime_ns| now_ns.saturating_add(lifetime_ns));
            self.register(&prefix, Route { cost: parameters.cost.unwrap_or(0), face, expires_ns })?;
        } else {
            self.unregister(&prefix, |route| route.face == face);
        }
        Ok(response(200, "OK", Some(&applied)))
    }

    fn register(&mut self, prefix: &NameBuf, route: Route) -> Result<(), Refused> {
        let before = self.registrations.by_prefix.get(prefix).cloned();
        let routes = self.registrations.by_prefix.entry(prefix.clone()).or_default();
        routes.retain(|other| other.face != route.face);
        let has_room = routes.len() < FACES;
        routes.push(route);
        if !has_room || !self.publish_registered(prefix) {
            match before {
                Some(before) => self.registrations.by_prefix.insert(prefix.clone(), before),
                None => self.registrations.by_prefix.remove(prefix),
            };
            return Err((503, "no room for another route"));
        }
        if let Some(expires_ns) = route.expires_ns {
            self.strangers.timer_ns = self.strangers.timer_ns.min(expires_ns);
        }
        Ok(())
    }

    fn unregister(&mut self, prefix: &NameBuf, is_gone: impl Fn(&Route) -> bool) {
        let Some(routes) = self.registrations.by_prefix.get_mut(prefix) else { return };
        let before = routes.len();
        routes.retain(|route| !is_gone(route));
        let after = routes.len();
        if after == 0 {
            self.registrations.by_prefix.remove(prefix);
        }
        if after < before {
            self.publish_registered(prefix); // a route less needs no room
        }
    }

    /// Makes the routes of a prefix those that are registered; `false` if there is no room.
    fn publish_registered(&mut self, prefix: &NameBuf) -> bool {
        let faces = self.registrations.faces(prefix);
        match self.routes.set(prefix, Source::Registered, faces.as_deref()) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("{prefix}: not registered: {error} (`names` of [ndn])");
                false
            }
        }
    }

    /// The routes over a face go with it.
    pub(super) fn forget_face(&mut self, face: u16) {
        self.forget(|route| route.face == face);
    }

    fn forget(&mut self, is_gone: impl Fn(&Route) -> bool) {
        let all = self.registrations.by_prefix.iter();
        let hit = all.filter(|(_, routes)| routes.iter().any(&is_gone));
        let prefixes: Vec<_> = hit.map(|(prefix, _)| prefix.clone()).collect();
        prefixes.iter().for_each(|prefix| self.unregister(prefix, &is_gone));
    }

    /// Ends routes and answers that have had their time.
    pub(super) fn expire_registrations(&mut self, now_ns: u64) {
        self.forget(|route| route.expires_ns.is_some_and(|expires_ns| expires_ns <= now_ns));
        while self.registrations.answers.front().is_some_and(|(_, ends_ns)| *ends_ns <= now_ns) {
            self.forget_answer();
        }
    }
}
