//! What is shown of the part: names, faces, neighbours, totals.

use std::net::IpAddr;

use control::neighbour::NeighbourRow;
use controlplane::interfaces::mac_text;
use engine::Counter;
use packet::ndn::{MULTICAST_MAC, NameBuf};

use super::super::name_routes::Source;
use super::super::rows::{FaceRow, NameRow, NdnTotals};
use super::super::{NdnCounters, NdnOptions};
use super::{FaceTotals, Known, NdnControl, Neighbour};

impl NdnControl {
    /// All routes by prefix, those in use first.
    pub(super) fn name_rows(&self) -> Vec<NameRow> {
        let mut all: Vec<_> = self.routes.all().collect();
        all.sort_unstable_by_key(|(prefix, source, ..)| (*prefix, *source));
        all.into_iter()
            .map(|(prefix, source, faces, is_best)| self.name_row(prefix, source, faces, is_best))
            .collect()
    }

    /// The route that Interests for a name take.
    pub(super) fn name_get(&self, name: &NameBuf) -> Option<NameRow> {
        let (prefix, source, faces) = self.routes.longest(name)?;
        Some(self.name_row(&prefix, source, faces, true))
    }

    pub(super) fn name_row(
        &self,
        prefix: &NameBuf,
        source: Source,
        faces: &[u16],
        active: bool,
    ) -> NameRow {
        let name = |number: &u16| self.faces[usize::from(*number)].name.clone();
        NameRow {
            prefix: prefix.to_string(),
            faces: faces.iter().map(name).collect(),
            source,
            active,
        }
    }

    /// All faces in the order of the file's first.
    pub(super) fn face_rows(&self) -> Vec<FaceRow> {
        let now = self.faces_since_start();
        let counted = |at: usize| {
            let of = |all: &[FaceTotals]| all.get(at).copied().unwrap_or_default();
            let (now, then) = (of(&now), of(&self.base.1));
            std::array::from_fn::<u64, 4, _>(|i| now[i] - then[i])
        };
        let row = |(number, known): (usize, &Known)| {
            let face = known.published.as_ref()?;
            let [in_interests, in_data, out_interests, out_data] = counted(number);
            let ends =
                face.udp.map(|ends| [0, 1].map(|i| (ends.addresses[i], ends.ports[i]).into()));
            let is_group = face.neighbour_mac == Some(MULTICAST_MAC.0);
            let row = FaceRow {
                name: face.name.clone(),
                kind: if known.demand.is_some() {
                    "on-demand"
                } else if ends.is_some() {
                    "udp"
                } else if is_group {
                    "group"
                } else {
                    "ethernet"
                }
                .into(),
                port: self.interfaces.name(face.port).to_owned(),
                ends,
                mac: face.neighbour_mac.map(mac_text),
                state: match face.neighbour_mac {
                    _ if !face.up => "down",
                    None => "unresolved",
                    Some(_) => "up",
                }
                .into(),
                in_interests,
                in_data,
                out_interests,
                out_data,
            };
            Some(row)
        };
        self.faces.iter().enumerate().filter_map(row).collect()
    }

    /// The neighbours that faces may use.
    pub(super) fn neighbour_rows(&self) -> Vec<NeighbourRow> {
        let mut all: Vec<_> = self.neighbours.iter().collect();
        all.sort_unstable_by_key(|(key, _)| **key);
        let row = |((port, address), neighbour): (&(u16, IpAddr), &Neighbour)| NeighbourRow {
            address: *address,
            port: self.interfaces.name(*port).to_owned(),
            mac: neighbour.mac().map(mac_text),
            state: match (neighbour.fixed, neighbour.seen) {
                (Some(_), _) => "static",
                (_, Some((_, state))) => state,
                _ => "incomplete",
            }
            .to_owned(),
            age_s: None,
        };
        all.into_iter().map(row).collect()
    }

    /// What passed each face since the start; none before there are stages.
    pub(super) fn faces_since_start(&self) -> Vec<FaceTotals> {
        let count = if self.options.is_empty() { 0 } else { self.faces.len() as u16 };
        (0..count).map(|face| self.face_totals(face)).collect()
    }

    /// What passed the faces of one number since the start.
    pub(super) fn face_totals(&self, face: u16) -> FaceTotals {
        let mut totals = FaceTotals::default();
        for c in self.options.iter().filter_map(|worker| worker.counters.face(face)) {
            let all = [&c.in_interests, &c.in_data, &c.out_interests, &c.out_data];
            totals.iter_mut().zip(all).for_each(|(sum, counter)| *sum += counter.get());
        }
        totals
    }

    /// What it knows and did since the start.
    pub(super) fn since_start(&self) -> NdnTotals {
        let sum = |counter: fn(&NdnCounters) -> &Counter| {
            self.options.iter().map(|worker| counter(&worker.counters).get()).sum::<u64>()
        };
        // Of the workers that there are: captures may be for one of them alone.
        let limits = |limit: fn(&NdnOptions) -> u32| {
            self.options.iter().map(|own| u64::from(limit(own))).sum::<u64>()
        };
        let faces = self.faces_since_start();
        NdnTotals {
            names: self.routes.len() as u64,
            names_max: self.routes.max as u64,
            faces: self.face_names().count() as u64 + self.strangers.count as u64,
            on_demand: self.strangers.count as u64,
            pending_max: limits(|own| own.pit.entries),
            pending: sum(|c| &c.pending),
            expired: sum(|c| &c.expired),
            stored: sum(|c| &c.stored),
            stored_max: limits(|own| own.store.packets),
            stored_bytes: sum(|c| &c.stored_bytes),
            store_hits: sum(|c| &c.store_hits),
            store_misses: sum(|c| &c.store_misses),
            store_evicted: sum(|c| &c.store_evicted),
            nacks: sum(|c| &c.nacks),
            copies_lost: sum(|c| &c.copies_lost),
            interests: faces.iter().map(|face| face[2]).sum(),
            data: faces.iter().map(|face| face[3]).sum(),
        }
    }

    /// The same, since the counters were cleared.
    pub(super) fn totals(&self) -> NdnTotals {
        let (now, then) = (self.since_start(), self.base.0);
        NdnTotals {
            expired: now.expired - then.expired,
            store_hits: now.store_hits - then.store_hits,
            store_misses: now.store_misses - then.store_misses,
            store_evicted: now.store_evicted - then.store_evicted,
            nacks: now.nacks - then.nacks,
            copies_lost: now.copies_lost - then.copies_lost,
            interests: now.interests - then.interests,
            data: now.data - then.data,
            ..now
        }
    }
}
