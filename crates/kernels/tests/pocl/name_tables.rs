//! Tables of random names.

use lookup::Blob;
use lookup::names::{NameFibBuilder, NameHasher, NameLimits, NameList, ReferenceNames};

use crate::random::Random;

pub(crate) fn component(value: &[u8]) -> Vec<u8> {
    let mut encoded = vec![8];
    match value.len() {
        len @ 0..=252 => encoded.push(len as u8),
        len => {
            encoded.push(253);
            encoded.extend((len as u16).to_be_bytes());
        }
    }
    encoded.extend_from_slice(value);
    encoded
}

pub(crate) type Components = Vec<Vec<u8>>;

pub(crate) fn list(names: &[Components]) -> NameList {
    let mut list = NameList::new();
    names.iter().for_each(|name| list.push(name.iter().map(Vec::as_slice)));
    list
}

/// Few different components, some of them long.
pub(crate) fn random_name(random: &mut Random) -> Components {
    let depth = random.below(7);
    let part = |random: &mut Random| match random.below(8) {
        0 => component(&vec![b'x'; 5 + random.below(30)]),
        1 => component(&vec![b'y'; 250 + random.below(20)]),
        _ => component(&[b'a' + random.below(3) as u8]),
    };
    (0..depth).map(|_| part(random)).collect()
}

pub(crate) fn build(routes: &[Components], seed: u64) -> (Blob, ReferenceNames) {
    let hops: Vec<u32> = (1..=routes.len() as u32).collect();
    let mut map = ReferenceNames::default();
    for (name, hop) in routes.iter().zip(&hops) {
        map.insert(name.iter().map(Vec::as_slice), *hop);
    }
    let limits = NameLimits { prefixes: routes.len().max(1), name_bytes: 1 << 24 };
    let blob =
        NameFibBuilder::build(NameHasher::new(seed), &list(routes), &hops, limits).unwrap().1;
    (blob, map)
}
