//! `rte_acl` over the same rules and headers.

use ::classify::{Condition, Match, RuleSet};

use crate::peer::{ACL_VARIANTS, Peer, hash};
use crate::{Report, lpm};

use super::BURST;

/// Memory for the peer's tables, MB. It is taken as it is touched.
const PEER_MEMORY_MB: u32 = 8000;

/// The peer with a set, or why there is none.
pub(super) struct Acl {
    peer: Result<Peer, String>,
    built: Option<(f64, u64)>,
    /// The sum of the answers that it must give.
    sum: u64,
    /// Its lookup functions that are measured: [`AIMED_AT`], then the quickest where that is another one.
    variants: Vec<&'static str>,
}

/// The lookup function that the aims speak of.
const AIMED_AT: &str = "avx2";

impl Acl {
    /// No peer, for sets that it has no keys for.
    pub(super) fn none() -> Self {
        Self { peer: Err(String::new()), built: None, sum: 0, variants: Vec::new() }
    }

    /// Starts the peer and has it build its table.
    pub(super) fn start(set: &RuleSet) -> Self {
        let Some(binary) = lpm::binary("rte_acl_peer") else {
            let why = "not compared with rte_acl: `cargo xtask peers` builds it, with libdpdk-dev";
            return Self { peer: Err(why.into()), ..Self::none() };
        };
        let built = Peer::start(&binary, PEER_MEMORY_MB).and_then(|mut peer| {
            let built = peer.acl_rules((0..set.len()).map(|index| record(set, index)))?;
            Ok((peer, built))
        });
        match built {
            Ok((peer, built)) => Self { peer: Ok(peer), built: Some(built), ..Self::none() },
            Err(why) => {
                Self { peer: Err(format!("not compared with rte_acl: {why}")), ..Self::none() }
            }
        }
    }

    /// Seconds of the build, and bytes of the tables.
    pub(super) fn built(&self) -> Option<(f64, u64)> {
        self.built
    }

    /// Its version, or why there is no peer.
    pub(super) fn note(&self) -> String {
        match &self.peer {
            Ok(peer) => peer.version().to_owned(),
            Err(why) => why.clone(),
        }
    }

    /// Hands the headers over, compares all answers and finds the quickest lookup function. A peer that
    /// fails is none.
    pub(super) fn take_headers(
        &mut self,
        headers: &[u32],
        answers: &[Match],
        prefix: &str,
        report: &mut Report,
    ) {
        let Ok(peer) = &mut self.peer else { return };
        let wanted = || answers.iter().map(|found| found.id().map_or(0, |index| index + 1));
        self.sum = wanted().map(u64::from).sum();
        let mut chosen = || -> std::io::Result<Vec<&'static str>> {
            peer.acl_headers(headers.chunks_exact(4).map(key))?;
            if peer.acl_check()? != hash(wanted()) {
                report.wrong.push(format!("{prefix}: rte_acl answers otherwise"));
            }
            let (mut best, mut variants) = (("scalar", f64::MAX), Vec::new());
            for variant in ACL_VARIANTS {
                if peer.acl_variant(variant).is_err() {
                    continue; // the processor has it not
                }
                peer.acl_round(BURST)?;
                let seconds = peer.acl_round(BURST)?.seconds;
                if seconds < best.1 {
                    best = (variant, seconds);
                }
                if variant == AIMED_AT {
                    variants.push(variant);
                }
            }
            if !variants.contains(&best.0) {
                variants.push(best.0);
            }
            Ok(variants)
        };
        match chosen() {
            Ok(variants) => self.variants = variants,
            Err(why) => self.peer = Err(format!("not compared with rte_acl: {why}")),
        }
    }

    /// Its lookup functions that are measured.
    pub(super) fn variants(&self) -> &[&'static str] {
        if self.peer.is_ok() { &self.variants } else { &[] }
    }

    /// Passes of at least so many seconds together with one of its functions; the mean of one.
    pub(super) fn round(
        &mut self,
        variant: &str,
        seconds: f64,
        prefix: &str,
        report: &mut Report,
    ) -> Result<f64, String> {
        let peer = self.peer.as_mut().map_err(|why| why.clone())?;
        peer.acl_variant(variant).map_err(|e| e.to_string())?;
        let (mut taken, mut passes) = (0.0, 0_u32);
        while taken < seconds {
            let round = peer.acl_round(BURST).map_err(|e| e.to_string())?;
            if round.sum != self.sum {
                report.wrong.push(format!("{prefix}: the sums of all answers differ"));
            }
            taken += round.seconds;
            passes += 1;
        }
        Ok(taken / f64::from(passes))
    }
}

/// A rule as the peer reads it.
fn record(set: &RuleSet, index: usize) -> [u8; 24] {
    let (schema, words) = (set.schema(), set.rule(index).words);
    let mut record = [0; 24];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    for field in 0..schema.fields().len() {
        match (field, schema.condition(words, field)) {
            (0 | 1, Condition::Prefix { value, len }) => {
                put(4 * field, &(value as u32).to_ne_bytes());
                put(16 + field, &[len]);
            }
            (2 | 3, Condition::Range { low, high }) => {
                put(4 * field, &(low as u16).to_ne_bytes());
                put(4 * field + 2, &(high as u16).to_ne_bytes());
            }
            (_, Condition::Mask { value, mask }) => put(18, &[value as u8, mask as u8]),
            _ => {}
        }
    }
    record
}

/// A header as the peer reads it: protocol, addresses, ports, in network order.
fn key(header: &[u32]) -> [u8; 16] {
    let mut key = [0; 16];
    key[0] = (header[3] >> 24) as u8;
    for (at, word) in header[..3].iter().enumerate() {
        key[4 + 4 * at..][..4].copy_from_slice(&word.to_be_bytes());
    }
    key
}
