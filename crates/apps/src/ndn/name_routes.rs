//! Routes for names: of every source, and the best of them in the table.

use std::collections::HashMap;

use lookup::names::{
    DEPTH_MAX, Name, NameFibBuilder, NameHasher, NameLimits, NameList, NameRouteError,
};
use lookup::{Blob, NO_ROUTE, NextHopId, Patch};
use packet::ndn::NameBuf;

use serde::{Deserialize, Serialize};

use super::NdnPatch;

/// The source of a route; the first source in this order wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The control socket.
    Api,
    /// `[[name]]`.
    Static,
    /// A command of a neighbour.
    Registered,
    /// `[[names]]`.
    File,
}

/// The word in tables and answers.
impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::Api => "api",
            Source::Static => "static",
            Source::Registered => "registered",
            Source::File => "file",
        })
    }
}

const SOURCES: [Source; 4] = [Source::Api, Source::Static, Source::Registered, Source::File];

/// The next hop of a prefix by each source; [`NO_ROUTE`] of those who say nothing.
type Ways = [NextHopId; SOURCES.len()];

fn best(ways: &Ways) -> NextHopId {
    ways.iter().copied().find(|way| *way != NO_ROUTE).unwrap_or(NO_ROUTE)
}

/// All routes.
pub(super) struct Routes {
    ways: HashMap<NameBuf, Ways>,
    hops: Hops,
    fib: Option<NameFibBuilder>,
    /// Prefixes that there is room for.
    pub(super) max: usize,
    /// What is to be published.
    pub(super) changed: Vec<NdnPatch>,
    /// What there was before a change of many routes, while one is under way.
    journal: Option<Journal>,
}

/// The way back.
struct Journal {
    /// Each change: the prefix, and what stood there before.
    ways: Vec<(NameBuf, Ways)>,
    hops: Hops,
    /// How much was to be published.
    changed: usize,
}

/// Lists of faces under numbers from 1 on, each kept while it is used.
#[derive(Clone, Default)]
struct Hops {
    lists: Vec<(Vec<u16>, usize)>, // with the routes that use it
    numbers: HashMap<Vec<u16>, NextHopId>,
    free: Vec<NextHopId>,
}

impl Hops {
    /// The number of a list, used once more; a patch where it is new.
    fn take(&mut self, faces: &[u16], changed: &mut Vec<NdnPatch>) -> NextHopId {
        if let Some(number) = self.numbers.get(faces) {
            self.lists[*number as usize - 1].1 += 1;
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.lists.push((Vec::new(), 0));
            self.lists.len() as NextHopId
        });
        self.lists[number as usize - 1] = (faces.to_vec(), 1);
        self.numbers.insert(faces.to_vec(), number);
        changed.push(NdnPatch::Hop(number, faces.to_vec()));
        number
    }

    /// A list is used once less.
    fn release(&mut self, number: NextHopId) {
        if number == NO_ROUTE {
            return;
        }
        let (faces, uses) = &mut self.lists[number as usize - 1];
        *uses -= 1;
        if *uses == 0 {
            self.numbers.remove(faces);
            self.free.push(number);
        }
    }

    fn faces(&self, number: NextHopId) -> &[u16] {
        &self.lists[number as usize - 1].0
    }
}

impl Routes {
    /// None yet, and no table: [`Routes::build`] makes it.
    pub(super) fn new(max: usize) -> Self {
        let (ways, hops) = (HashMap::new(), Hops::default());
        Self { ways, hops, fib: None, max, changed: Vec::new(), journal: None }
    }

    /// The first table, of many routes at once; next hops are left for the first patches.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn build(
        &mut self,
        statics: Vec<(NameBuf, Vec<u16>)>,
        files: Vec<(NameBuf, Vec<u16>)>,
    ) -> Result<Blob, NameRouteError> {
        for (source, routes) in [(Source::Static, statics), (Source::File, files)] {
            for (prefix, faces) in routes {
                let new = self.hops.take(&faces, &mut self.changed);
                let way = &mut self.ways.entry(prefix).or_default()[source as usize];
                self.hops.release(std::mem::replace(way, new));
            }
        }
        self.table()
    }

    /// Makes the table anew, of all routes.
    fn table(&mut self) -> Result<Blob, NameRouteError> {
        let (mut names, mut hops) = (NameList::new(), Vec::new());
        for (prefix, ways) in &self.ways {
            names.push(prefix.name().encodings());
            hops.push(best(ways));
        }
        let limits = NameLimits::of(self.max);
        let (fib, blob) = NameFibBuilder::build(NameHasher::random(), &names, &hops, limits)?;
        self.fib = Some(fib);
        Ok(blob)
    }

    /// Notes from now on what changes.
    pub(super) fn begin(&mut self) {
        let (ways, hops, changed) = (Vec::new(), self.hops.clone(), self.changed.len());
        self.journal = Some(Journal { ways, hops, changed });
    }

    /// What changed since [`Routes::begin`] stays.
    pub(super) fn keep(&mut self) {
        self.journal = None;
    }

    /// Takes back what changed since [`Routes::begin`]; nothing of it may have been published.
    ///
    /// # Errors
    /// There is no memory for the table that is made anew; the one that serves goes on.
    pub(super) fn go_back(&mut self) -> Result<(), NameRouteError> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        self.hops = journal.hops;
        self.changed.truncate(journal.changed);
        if journal.ways.is_empty() {
            return Ok(());
        }
        for (prefix, ways) in journal.ways.into_iter().rev() {
            if best(&ways) == NO_ROUTE {
                self.ways.remove(&prefix);
            } else {
                self.ways.insert(prefix, ways);
            }
        }
        // Anew, for room that a change gave back may not serve the same names again.
        let blob = self.table()?;
        self.changed.push(NdnPatch::Fib(Patch::Replace(blob.words().to_vec())));
        Ok(())
    }

    /// Sets what a source says of a prefix, or that it says nothing. On an error nothing has changed.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn set(
        &mut self,
        prefix: &NameBuf,
        source: Source,
        faces: Option<&[u16]>,
    ) -> Result<(), NameRouteError> {
        let before = self.ways.get(prefix).copied().unwrap_or_default();
        let mut after = before;
        after[source as usize] =
            faces.map_or(NO_ROUTE, |faces| self.hops.take(faces, &mut self.changed));
        if let Err(error) = self.install(prefix, best(&before), best(&after)) {
            self.hops.release(after[source as usize]);
            return Err(error);
        }
        self.hops.release(before[source as usize]);
        if let Some(journal) = &mut self.journal {
            journal.ways.push((prefix.clone(), before));
        }
        if best(&after) == NO_ROUTE {
            self.ways.remove(prefix);
        } else {
            self.ways.insert(prefix.clone(), after);
        }
        Ok(())
    }

    fn install(
        &mut self,
        prefix: &NameBuf,
        before: NextHopId,
        after: NextHopId,
    ) -> Result<(), NameRouteError> {
        let Some(fib) = self.fib.as_mut().filter(|_| before != after) else { return Ok(()) };
        let mut patches = Vec::new();
        let ends = prefix.name().encodings().scan(0, |end, component| {
            *end += component.len() as u32;
            Some(*end)
        });
        let ends: Vec<u32> = ends.collect();
        let name = Name::new(prefix.name().value(), &ends);
        if after == NO_ROUTE {
            fib.remove(name, &mut patches);
        } else {
            fib.insert(name, after, &mut patches)?;
        }
        self.changed.extend(patches.into_iter().map(NdnPatch::Fib));
        Ok(())
    }

    /// Makes what a source says `routes`, for how many prefixes that is a change; of two for one prefix the later applies.
    ///
    /// # Errors
    /// The first that finds no room; those before it are set.
    pub(super) fn sync(
        &mut self,
        source: Source,
        routes: Vec<(NameBuf, Vec<u16>)>,
    ) -> Result<usize, String> {
        let mut changed = 0;
        let wanted: HashMap<NameBuf, Vec<u16>> = routes.into_iter().collect();
        let is_gone = |(prefix, ways): &(&NameBuf, &Ways)| {
            ways[source as usize] != NO_ROUTE && !wanted.contains_key(*prefix)
        };
        let gone: Vec<_> = self.ways.iter().filter(is_gone).map(|(p, _)| p.clone()).collect();
        for (prefix, faces) in
            gone.iter().map(|prefix| (prefix, None)).chain(wanted.iter().map(|(p, f)| (p, Some(f))))
        {
            let now = self.ways.get(prefix).map_or(NO_ROUTE, |ways| ways[source as usize]);
            if faces.is_some_and(|faces| now != NO_ROUTE && self.hops.faces(now) == faces) {
                continue;
            }
            changed += 1;
            self.set(prefix, source, faces.map(Vec::as_slice))
                .map_err(|error| format!("routes for names: {error} (`names` of [ndn])"))?;
        }
        Ok(changed)
    }

    /// The faces that a source gives a prefix.
    pub(super) fn says(&self, prefix: &NameBuf, source: Source) -> Option<&[u16]> {
        let way = self.ways.get(prefix)?[source as usize];
        (way != NO_ROUTE).then(|| self.hops.faces(way))
    }

    /// Whether a source has a route for a prefix.
    pub(super) fn has(&self, prefix: &NameBuf, source: Source) -> bool {
        self.ways.get(prefix).is_some_and(|ways| ways[source as usize] != NO_ROUTE)
    }

    /// Prefixes.
    pub(super) fn len(&self) -> usize {
        self.ways.len()
    }

    /// Every route of every source: its faces, and whether it is in use. In no order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&NameBuf, Source, &[u16], bool)> {
        self.ways.iter().flat_map(move |(prefix, ways)| {
            let said = SOURCES.iter().filter(|source| ways[**source as usize] != NO_ROUTE);
            said.enumerate().map(move |(at, source)| {
                (prefix, *source, self.hops.faces(ways[*source as usize]), at == 0)
            })
        })
    }

    /// The longest prefix of a name, its source and faces.
    pub(super) fn longest(&self, name: &NameBuf) -> Option<(NameBuf, Source, &[u16])> {
        let (mut prefix, mut found) = (NameBuf::new(), None);
        for component in
            std::iter::once(None).chain(name.name().components().map(Some)).take(DEPTH_MAX + 1)
        {
            if let Some(component) = component {
                prefix.push(component.kind, component.value);
            }
            if let Some(ways) = self.ways.get(&prefix) {
                found = Some((prefix.clone(), *ways));
            }
        }
        let (prefix, ways) = found?;
        let source = SOURCES.into_iter().find(|source| ways[*source as usize] != NO_ROUTE)?;
        Some((prefix, source, self.hops.faces(ways[source as usize])))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::ndn::NdnTables;
    use lookup::names::{NameKey, NamePrefixes};
    use lookup::versions::Patchable;
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 7] = ["/", "/a", "/a/b", "/a/b/c", "/b", "/54=%01", "/a/b/c/d/e"];
    const LISTS: [&[u16]; 4] = [&[0], &[1, 0], &[2], &[0, 1, 2]];

    fn name(text: &str) -> NameBuf {
        NameBuf::from_uri(text.as_bytes()).unwrap()
    }

    /// What the published tables say of a name.
    fn looked_up(tables: &NdnTables, name: &NameBuf) -> Vec<u16> {
        let (fib, mut prefixes, mut out) = (tables.fib().unwrap(), NamePrefixes::new(), [0]);
        prefixes.push_components(fib.hasher(), name.name().encodings(), DEPTH_MAX);
        let keys: [NameKey<'_>; 1] = [prefixes.key_of_bytes(0, name.name().value())];
        fib.lookup(&keys, &mut out);
        tables.hop(out[0]).to_vec()
    }

    proptest! {
        /// Whatever is set, taken away and synchronised: the tables say what a plain map says.
        #[test]
        fn tables_follow_the_best_source(
            built in prop::collection::vec((0..7_usize, 0..4_usize), 0..6),
            steps in prop::collection::vec((0..7_usize, 0..4_usize, prop::option::of(0..4_usize), any::<bool>()), 0..40),
        ) {
            let mut plain: BTreeMap<(usize, usize), usize> = BTreeMap::new();
            let route = |(at, list): &(usize, usize)| (name(NAMES[*at]), LISTS[*list].to_vec());
            plain.extend(built.iter().map(|(at, list)| ((*at, 1), *list)));
            let mut routes = Routes::new(64);
            let blob = routes.build(built.iter().map(route).collect(), Vec::new()).unwrap();
            let mut tables = NdnTables::new(blob);
            for (at, source, list, all) in steps {
                if all {
                    let wanted: Vec<_> = list.iter().map(|list| (at, *list)).collect();
                    routes.sync(SOURCES[source], wanted.iter().map(route).collect()).unwrap();
                    plain.retain(|(_, s), _| *s != source);
                    plain.extend(wanted.iter().map(|(at, list)| ((*at, source), *list)));
                } else {
                    routes.set(&name(NAMES[at]), SOURCES[source], list.map(|list| LISTS[list])).unwrap();
                    plain.remove(&(at, source));
                    plain.extend(list.map(|list| ((at, source), list)));
                }
                routes.changed.drain(..).for_each(|patch| tables.apply(&patch));
                for (text, asked) in NAMES.iter().map(|text| (*text, name(text))) {
                    let covers = |at: usize| name(NAMES[at]).name().is_prefix_of(&asked.name());
                    let found = plain.iter().filter(|((at, _), _)| covers(*at));
                    let found = found.min_by_key(|((at, source), _)| {
                        (std::cmp::Reverse(name(NAMES[*at]).name().len()), *source)
                    });
                    let expected = found.map_or(&[][..], |(_, list)| LISTS[*list]);
                    prop_assert_eq!(looked_up(&tables, &asked), expected, "{}", text);
                    let longest = routes.longest(&asked).map(|(_, _, faces)| faces);
                    prop_assert_eq!(longest.unwrap_or_default(), expected);
                }
                prop_assert_eq!(routes.all().count(), plain.len());
                let in_use = plain.values().collect::<std::collections::BTreeSet<_>>().len();
                prop_assert_eq!(routes.hops.numbers.len(), in_use, "a list goes with its last route");
            }
        }
    }

    #[test]
    fn a_full_table_refuses_and_keeps_what_it_has() {
        let mut routes = Routes::new(2);
        routes.build(Vec::new(), Vec::new()).unwrap();
        for text in ["/a", "/b"] {
            routes.set(&name(text), Source::Api, Some(&[1])).unwrap();
        }
        let full = routes.set(&name("/c"), Source::Api, Some(&[2]));
        assert!(full.unwrap_err().to_string().contains("full"));
        assert_eq!((routes.len(), routes.hops.numbers.len()), (2, 1));
        let error = routes.sync(Source::File, vec![(name("/d"), vec![0])]).unwrap_err();
        assert!(error.contains("full: 2 of 2 name prefixes"), "{error}");
    }

    /// What is published after a way back says what it said before, whatever was changed and let go meanwhile.
    #[test]
    fn a_way_back_leads_to_where_it_began() {
        let own: Vec<_> = (0..10).map(|i| (name(&format!("/own/{i}")), vec![i % 3])).collect();
        let mut routes = Routes::new(16);
        let blob = routes.build(vec![(name("/"), vec![7])], own.clone()).unwrap();
        let mut tables = NdnTables::new(blob);
        routes.set(&name("/api"), Source::Api, Some(&[5])).unwrap();
        let publish = |routes: &mut Routes, tables: &mut NdnTables| {
            routes.changed.drain(..).for_each(|patch| tables.apply(&patch));
        };
        publish(&mut routes, &mut tables);
        let said = |tables: &NdnTables| {
            let asked = ["/own/0", "/own/3/x", "/own/9", "/new/1", "/api", "/zzz"];
            asked.map(|text| looked_up(tables, &name(text)))
        };
        let expected = said(&tables);
        assert_eq!(expected, [vec![0], vec![0], vec![0], vec![7], vec![5], vec![7]]);
        routes.begin();
        let new = (0..30).map(|i| (name(&format!("/new/{i}")), vec![20 + i])).collect();
        let error = routes.sync(Source::File, new).unwrap_err();
        assert!(error.contains("name prefixes"), "{error}");
        routes.go_back().unwrap();
        publish(&mut routes, &mut tables);
        assert_eq!(said(&tables), expected);
        assert_eq!((routes.len(), routes.all().count()), (12, 12));
        // And it goes on from there: lists of faces have unique numbers.
        routes.begin();
        routes.sync(Source::File, own[..4].to_vec()).unwrap();
        routes.set(&name("/api"), Source::Api, Some(&[6, 5])).unwrap();
        routes.keep();
        publish(&mut routes, &mut tables);
        let asked = ["/own/1", "/own/3", "/own/9", "/api"];
        let answers = asked.map(|text| looked_up(&tables, &name(text)));
        assert_eq!(answers, [vec![1], vec![0], vec![7], vec![6, 5]]);
    }
}
