//! Events of associations in Suricata's EVE JSON format, for the file or socket of `events` of `[flow]`.
//!
//! | event | when |
//! | --- | --- |
//! | `up` | an association was added |
//! | `soft`, `hard` | a limit was reached; a hard one ends it |
//! | `deleted` | it was taken away |
//! | `moved` | authentic packets of the peer come from elsewhere |
//! | `missing` | a packet is to be protected and has no association; once a second for a policy's `reqid` at most |
//! | `unknown_spi` | ESP came for the router with an index that no association has |
//! | `replayed`, `forged` | a packet of an association was refused: by the window, or because it is not genuine |
//!
//! Of the last three (RFC 4301 §4.4.2.1, RFC 4303 §3.4.2 to §3.4.4: events to be audited), there is one a second at most for an
//! index and a sender, 8 in all for indexes that nobody has and 8 for the others; every packet is counted under its drop reason.
//!
//! Live runs only. Which associations are new and which are gone is seen by what was there before, so it does not matter who
//! has changed them.
//!
//! Threads: control's. What the writer cannot take is dropped and counted by it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use flowlog::eve::AssociationEvent;
use ipsec::{Association, Database, Direction, Expiry};

use super::current::{Refused, Wanted};
use crate::flow::events::EventLines;

/// What control has said, and where to.
#[derive(Default)]
pub(super) struct Events {
    /// None until a stage has found it, and without `events`.
    pub(super) lines: Option<EventLines>,
    known: HashMap<(u32, IpAddr), Arc<Association>>,
}

fn event(name: &'static str, own: &Association) -> AssociationEvent {
    let parameters = own.parameters();
    let [bytes, packets, ..] = own.counts();
    AssociationEvent {
        event: name,
        is_out: parameters.direction == Direction::Out,
        spi: Some(parameters.spi),
        reqid: Some(parameters.reqid),
        number: None,
        source: parameters.source,
        destination: parameters.destination,
        counts: Some((packets, bytes)),
        moved: None,
        at_ns: 0,
    }
}

impl Events {
    fn write(&self, own: AssociationEvent, at_ns: u64) {
        if let Some(lines) = &self.lines {
            lines.association(&AssociationEvent { at_ns, ..own });
        }
    }

    /// Says what is new and what is gone.
    pub(super) fn look(&mut self, database: &Database, at_ns: u64) {
        if self.lines.is_none() {
            return;
        }
        let mut before = std::mem::take(&mut self.known);
        for own in database.associations() {
            let parameters = own.parameters();
            let place = (parameters.spi, parameters.destination);
            if before.remove(&place).is_none() {
                self.write(event("up", own), at_ns);
            }
            self.known.insert(place, own.clone());
        }
        let mut gone: Vec<_> = before.into_iter().collect();
        gone.sort_unstable_by_key(|own| own.0);
        for (_, own) in gone {
            self.write(event("deleted", &own), at_ns);
        }
    }

    /// A limit was reached.
    pub(super) fn expired(&mut self, expiry: &Expiry, at_ns: u64) {
        let place = (expiry.spi, expiry.destination);
        let Some(own) = self.known.get(&place).cloned() else { return };
        self.write(event(if expiry.is_hard { "hard" } else { "soft" }, &own), at_ns);
        if expiry.is_hard {
            self.known.remove(&place);
        }
    }

    /// A peer has moved.
    pub(super) fn moved(&self, place: (u32, IpAddr), to: (IpAddr, u16), at_ns: u64) {
        if let Some(own) = self.known.get(&place) {
            self.write(AssociationEvent { moved: Some(to), ..event("moved", own) }, at_ns);
        }
    }

    /// A packet was refused.
    pub(super) fn refused(&self, own: &Refused, at_ns: u64) {
        let known = self.known.get(&(own.spi, own.destination)).map(|own| event("", own));
        self.write(
            AssociationEvent {
                event: own.why.name(),
                is_out: false,
                spi: Some(own.spi),
                reqid: known.as_ref().and_then(|own| own.reqid),
                number: Some(own.number),
                source: own.source,
                destination: own.destination,
                counts: known.and_then(|own| own.counts),
                moved: None,
                at_ns,
            },
            at_ns,
        );
    }

    /// A packet has no association.
    pub(super) fn missing(&self, Wanted { tuple, template, .. }: &Wanted, at_ns: u64) {
        let (source, destination) = super::linux::ends(tuple);
        let own = AssociationEvent {
            event: "missing",
            is_out: true,
            spi: None,
            reqid: Some(template.reqid),
            number: None,
            source,
            destination,
            counts: None,
            moved: None,
            at_ns,
        };
        self.write(own, at_ns);
    }
}
