//! All tables of the program as one version, whatever applications there are.
//!
//! A pipeline may join stages of several applications, and a packet must see one version of everything they read. So
//! there is one pair of copies, one list of changes and one image on a device. Each application adds its own
//! [`TablePart`] and gets a [`PartId`], by which its stages find the part and its control makes patches.
//!
//! ```text
//!  Fib ─────────┐ add               ┌─▶ Reader<Tables> ─▶ tables.part(id) ─▶ stages over their own part
//!  SwitchTables ┼────▶ Tables ─▶ Writer
//!  …            ┘  PartId::patch ──▶└─▶ Changes ─▶ TablesImages ─▶ a device: regions numbered part by part
//! ```
//!
//! Thread rule: that of [`lookup::versions`].

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use device::tables::{Change, TableSource};
use engine::Versions;
use lookup::Patch;
use lookup::versions::{Changes, Patchable, Pin, Reader};

/// What the program must know of the tables of one application, beside their type: a device's view of them.
pub trait TablePart: 'static {
    /// The tables.
    type Tables: Patchable<Patch: Debug + Send + Sync + 'static>
        + Clone
        + Debug
        + Send
        + Sync
        + 'static;

    /// How many regions of a device's image they have.
    const REGIONS: usize;

    /// Whether they hold keys, which a device does not keep longer than the version that has them.
    const IS_SECRET: bool = false;

    /// Memory of one copy, bytes.
    fn len_bytes(tables: &Self::Tables) -> usize;

    /// The regions for a device, [`TablePart::REGIONS`] of them. A region that no kernel is to read is empty.
    fn regions(tables: &Self::Tables) -> Vec<Cow<'_, [u32]>>;

    /// Hands what a patch changes in the regions to `change`, with the region's number in this part; `false` where the
    /// changes do not say it and a device must copy the regions anew.
    fn changes(patch: &PatchOf<Self>, change: &mut dyn FnMut(usize, Change<'_>)) -> bool;
}

/// A change of a part's tables.
pub type PatchOf<P> = <<P as TablePart>::Tables as Patchable>::Patch;

/// A part of [`Tables`]: where stages and control find it.
#[derive(Debug)]
pub struct PartId<P> {
    index: usize,
    first_region: usize,
    part: PhantomData<fn() -> P>,
}

// Not derived: `P` need not be `Copy`.
impl<P> Clone for PartId<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for PartId<P> {}

impl<P: TablePart> PartId<P> {
    /// Numbers of its regions in a device's image.
    pub fn regions(self) -> Range<usize> {
        self.first_region..self.first_region + P::REGIONS
    }

    /// Changes of the part, as changes of all tables.
    pub fn patch(self, patches: Vec<PatchOf<P>>) -> TablesPatch {
        TablesPatch(Patches::Part {
            index: self.index,
            first_region: self.first_region,
            patches: Box::new(patches),
            changes: changes_of::<P>,
        })
    }
}

/// Changes of one part, in order; or a part that comes or goes.
pub struct TablesPatch(Patches);

enum Patches {
    Part {
        index: usize,
        first_region: usize,
        /// A `Vec` of the part's patches.
        patches: Box<dyn Any + Send + Sync>,
        changes: ChangesOf,
    },
    /// What is at a place from now on.
    Place(usize, Arrival),
}

/// A part that comes to both copies of the tables. The second one takes it, so that a log of changes keeps none of it: it may have
/// keys.
struct Arrival(Mutex<(Option<Box<dyn AnyPart>>, bool)>);

impl Arrival {
    fn new(part: Box<dyn AnyPart>) -> Self {
        Self(Mutex::new((Some(part), false)))
    }

    fn part(&self) -> Option<Box<dyn AnyPart>> {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut own.1, true) {
            own.0.take()
        } else {
            own.0.as_ref().map(|part| part.copy())
        }
    }
}

/// Hands out what patches change, by region of their part.
type ChangesOf = fn(&dyn Any, &mut dyn FnMut(usize, Change<'_>)) -> bool;

impl Debug for TablesPatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Patches::Part { index, .. } | Patches::Place(index, _)) = &self.0;
        f.debug_struct("TablesPatch").field("part", index).finish_non_exhaustive()
    }
}

fn changes_of<P: TablePart>(patches: &dyn Any, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
    let Some(patches) = patches.downcast_ref::<Vec<PatchOf<P>>>() else { return false };
    let mut is_whole = true;
    for patch in patches {
        // Every patch is handed out, also behind one that is not whole.
        is_whole &= P::changes(patch, change);
    }
    is_whole
}

/// A part without its type.
trait AnyPart: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn copy(&self) -> Box<dyn AnyPart>;
    fn apply(&mut self, patches: &dyn Any);
    fn len_bytes(&self) -> usize;
    fn regions(&self) -> Vec<Cow<'_, [u32]>>;
    fn count_regions(&self) -> usize;
    fn is_secret(&self) -> bool {
        false
    }
}

/// The tables of a part.
struct Held<P: TablePart>(P::Tables);

impl<P: TablePart> Debug for Held<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<P: TablePart> AnyPart for Held<P> {
    fn as_any(&self) -> &dyn Any {
        &self.0
    }

    fn copy(&self) -> Box<dyn AnyPart> {
        Box::new(Self(self.0.clone()))
    }

    fn apply(&mut self, patches: &dyn Any) {
        let patches = patches.downcast_ref::<Vec<PatchOf<P>>>().expect("patches of another part");
        patches.iter().for_each(|patch| self.0.apply(patch));
    }

    fn len_bytes(&self) -> usize {
        P::len_bytes(&self.0)
    }

    fn regions(&self) -> Vec<Cow<'_, [u32]>> {
        P::regions(&self.0)
    }

    fn count_regions(&self) -> usize {
        P::REGIONS
    }

    fn is_secret(&self) -> bool {
        P::IS_SECRET
    }
}

/// A place whose part is gone, or that a part of other tables has.
#[derive(Clone, Debug)]
struct Vacant {
    regions: usize,
    is_free: bool,
}

impl AnyPart for Vacant {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn copy(&self) -> Box<dyn AnyPart> {
        Box::new(self.clone())
    }

    /// The part has gone with what it still had to change.
    fn apply(&mut self, _: &dyn Any) {}

    fn len_bytes(&self) -> usize {
        0
    }

    fn regions(&self) -> Vec<Cow<'_, [u32]>> {
        vec![Cow::Borrowed(&[]); self.regions]
    }

    fn count_regions(&self) -> usize {
        self.regions
    }
}

/// One version of all tables.
#[derive(Debug, Default)]
pub struct Tables {
    parts: Vec<Box<dyn AnyPart>>,
}

impl Clone for Tables {
    fn clone(&self) -> Self {
        Self { parts: self.parts.iter().map(|part| part.copy()).collect() }
    }
}

impl Tables {
    /// Adds a part, before the first version or to [tables of what is new](Tables::beside). Its regions follow those of
    /// the parts before it; of one that is gone, it takes place and regions.
    pub fn add<P: TablePart>(&mut self, tables: P::Tables) -> PartId<P> {
        let part = Box::new(Held::<P>(tables));
        let is_free = |own: &dyn AnyPart| {
            let vacant = own.as_any().downcast_ref::<Vacant>();
            vacant.is_some_and(|own| own.is_free && own.regions == P::REGIONS)
        };
        let index = self.parts.iter().position(|own| is_free(&**own)).unwrap_or(self.parts.len());
        let before = self.parts[..index].iter();
        let first_region = before.map(|part| part.count_regions()).sum();
        match self.parts.get_mut(index) {
            Some(place) => *place = part,
            None => self.parts.push(part),
        }
        PartId { index, first_region, part: PhantomData }
    }

    /// Tables to add parts to while others are in use: [`Tables::added`] makes them changes of those.
    pub fn beside(&self) -> Self {
        let place = |part: &dyn AnyPart| {
            let vacant = part.as_any().downcast_ref::<Vacant>();
            let is_free = vacant.is_some_and(|own| own.is_free);
            Box::new(Vacant { regions: part.count_regions(), is_free }) as Box<dyn AnyPart>
        };
        Self { parts: self.parts.iter().map(|part| place(&**part)).collect() }
    }

    /// The parts that were added to tables beside others, as changes of those.
    pub fn added(self) -> Vec<TablesPatch> {
        let all = self.parts.into_iter().enumerate();
        let new = all.filter(|(_, part)| !part.as_any().is::<Vacant>());
        new.map(|(index, part)| TablesPatch(Patches::Place(index, Arrival::new(part)))).collect()
    }

    /// The places of its parts.
    pub(crate) fn places(&self) -> Vec<usize> {
        let is_held = |at: &usize| !self.parts[*at].as_any().is::<Vacant>();
        (0..self.parts.len()).filter(is_held).collect()
    }

    /// The change that takes the part at a place away: the place and its regions are another one's later.
    pub(crate) fn removal(&self, place: usize) -> TablesPatch {
        let regions = self.parts[place].count_regions();
        TablesPatch(Patches::Place(
            place,
            Arrival::new(Box::new(Vacant { regions, is_free: true })),
        ))
    }

    /// A part.
    ///
    /// # Panics
    /// If `id` is of other tables.
    #[inline]
    pub fn part<P: TablePart>(&self, id: PartId<P>) -> &P::Tables {
        self.parts[id.index].as_any().downcast_ref().expect("a part of other tables")
    }

    /// The tables of the first part of a kind: for a stage that works in pipelines of another application.
    #[inline]
    pub fn find<P: TablePart>(&self) -> Option<&P::Tables> {
        self.parts.iter().find_map(|part| part.as_any().downcast_ref())
    }

    /// Memory of one version, bytes.
    pub fn len_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len_bytes()).sum()
    }
}

impl Patchable for Tables {
    type Patch = TablesPatch;

    fn apply(&mut self, patch: &TablesPatch) {
        match &patch.0 {
            Patches::Part { index, patches, .. } => self.parts[*index].apply(&**patches),
            Patches::Place(index, arrival) => {
                let part = arrival.part().expect("a change is applied to two copies");
                match self.parts.get_mut(*index) {
                    Some(place) => *place = part,
                    None => self.parts.push(part),
                }
            }
        }
    }
}

/// One worker's way to the newest version of tables.
#[derive(Debug)]
pub struct Newest<T>(pub Reader<T>);

impl<T: Send + Sync + 'static> Versions for Newest<T> {
    type Tables = T;
    type Pin = Pin<T>;

    #[inline]
    fn pin(&mut self) -> Pin<T> {
        self.0.pin()
    }

    #[inline]
    fn number(pin: &Pin<T>) -> u64 {
        pin.version()
    }
}

/// All tables as a device copies them and follows their changes: the regions of the parts, in their order.
#[derive(Debug)]
pub struct TablesImages(pub Changes<TablesPatch>);

impl TableSource<Tables> for TablesImages {
    fn regions<'a>(&self, tables: &'a Tables) -> Vec<Cow<'a, [u32]>> {
        let mut regions = Vec::new();
        for part in &tables.parts {
            let first = regions.len();
            regions.extend(part.regions());
            debug_assert_eq!(regions.len(), first + part.count_regions(), "{part:?}");
        }
        regions
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let Some(versions) = self.0.between(from, to) else { return false };
        let mut is_whole = true;
        for patch in versions.iter().flat_map(|patches| patches.iter()) {
            // Kernels that read a new part come with devices that copy it whole.
            let Patches::Part { first_region, patches, changes, .. } = &patch.0 else { continue };
            let mut each = |region, what: Change<'_>| change(first_region + region, what);
            is_whole &= changes(&**patches, &mut each);
        }
        is_whole
    }

    fn secrets(&self, tables: &Tables) -> Vec<usize> {
        let (mut all, mut first) = (Vec::new(), 0);
        for part in &tables.parts {
            let regions = first..first + part.count_regions();
            first = regions.end;
            all.extend(regions.filter(|_| part.is_secret()));
        }
        all
    }
}

/// Tables without the regions of some part, which are empty: for a device that does not take it.
pub struct Without {
    /// All tables.
    pub source: Box<dyn TableSource<Tables>>,
    /// Numbers of the regions that are left out.
    pub regions: Range<usize>,
}

impl TableSource<Tables> for Without {
    fn regions<'a>(&self, tables: &'a Tables) -> Vec<Cow<'a, [u32]>> {
        let mut regions = self.source.regions(tables);
        for (number, region) in regions.iter_mut().enumerate() {
            if self.regions.contains(&number) {
                *region = Cow::Borrowed(&[]);
            }
        }
        regions
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        self.source.changes(from, to, &mut |region, what| {
            if !self.regions.contains(&region) {
                change(region, what);
            }
        })
    }

    fn secrets(&self, tables: &Tables) -> Vec<usize> {
        let mut all = self.source.secrets(tables);
        all.retain(|region| !self.regions.contains(region));
        all
    }
}

/// One part by itself as a device copies it and follows its changes; for tests and measurements of one application.
pub struct PartImages<P: TablePart> {
    changes: Changes<PatchOf<P>>,
    first_region: usize,
}

impl<P: TablePart> PartImages<P> {
    /// Its regions are numbered from `first_region`; those before are empty.
    pub fn new(changes: Changes<PatchOf<P>>, first_region: usize) -> Self {
        Self { changes, first_region }
    }
}

impl<P: TablePart> TableSource<P::Tables> for PartImages<P> {
    fn regions<'a>(&self, tables: &'a P::Tables) -> Vec<Cow<'a, [u32]>> {
        let before = std::iter::repeat_n(Cow::Borrowed(&[][..]), self.first_region);
        before.chain(P::regions(tables)).collect()
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let Some(versions) = self.changes.between(from, to) else { return false };
        let mut each = |region, what: Change<'_>| change(self.first_region + region, what);
        let mut is_whole = true;
        for patch in versions.iter().flat_map(|patches| patches.iter()) {
            is_whole &= P::changes(patch, &mut each);
        }
        is_whole
    }

    fn secrets(&self, _: &P::Tables) -> Vec<usize> {
        let regions = self.first_region..self.first_region + P::REGIONS;
        regions.filter(|_| P::IS_SECRET).collect()
    }
}

/// The changes that a patch makes to a region, in the words of the device.
pub fn each_change(patch: &Patch, region: usize, change: &mut dyn FnMut(usize, Change<'_>)) {
    match patch {
        Patch::Write { offset_words: at, words } => {
            change(region, Change::Write { at: *at, words })
        }
        Patch::Writes { .. } => {
            patch.writes().for_each(|(at, words)| change(region, Change::Write { at, words }));
        }
        Patch::Fill { offset_words: at, count, value } => {
            change(region, Change::Fill { at: *at, count: *count, value: *value });
        }
        Patch::Grow { len_words } => change(region, Change::Grow(*len_words)),
        Patch::Replace(words) => change(region, Change::Replace(words)),
    }
}

#[cfg(test)]
mod tests {
    use lookup::versions::versions;

    use super::*;

    /// Tables of `N` regions, one word each.
    #[derive(Clone, Debug)]
    struct Words<const N: usize>(Vec<u32>);

    impl<const N: usize> Patchable for Words<N> {
        type Patch = (usize, u32);

        fn apply(&mut self, (region, value): &(usize, u32)) {
            self.0[*region] = *value;
        }
    }

    struct Part<const N: usize>;

    impl<const N: usize> TablePart for Part<N> {
        type Tables = Words<N>;

        const REGIONS: usize = N;

        fn len_bytes(_: &Words<N>) -> usize {
            4 * N
        }

        fn regions(tables: &Words<N>) -> Vec<Cow<'_, [u32]>> {
            tables.0.chunks(1).map(Cow::Borrowed).collect()
        }

        /// A value of 0 stands for what cannot be said.
        fn changes(
            (region, value): &(usize, u32),
            change: &mut dyn FnMut(usize, Change<'_>),
        ) -> bool {
            change(*region, Change::Write { at: 0, words: &[*value] });
            *value != 0
        }
    }

    #[test]
    fn parts_are_found_patched_and_numbered() {
        let mut tables = Tables::default();
        let one = tables.add::<Part<1>>(Words(vec![10]));
        let two = tables.add::<Part<2>>(Words(vec![20, 21]));
        let other = tables.add::<Part<1>>(Words(vec![30]));
        assert_eq!((one.regions(), two.regions(), other.regions()), (0..1, 1..3, 3..4));
        assert_eq!(tables.len_bytes(), 16);
        let copy = tables.clone();
        let (mut writer, reader) = versions(tables);
        let images = TablesImages(writer.changes());
        let source = Box::new(TablesImages(writer.changes()));
        let without = Without { source, regions: two.regions() };
        let from = reader.pin().version();
        // Two parts of one type are two parts.
        writer.publish(vec![other.patch(vec![(0, 31)]), two.patch(vec![(1, 22), (0, 19)])]);
        let pin = reader.pin();
        assert_eq!(
            (pin.part(one).0[0], &pin.part(two).0[..], pin.part(other).0[0]),
            (10, &[19, 22][..], 31)
        );
        assert_eq!(copy.part(other).0[0], 30);

        let mut seen = Vec::new();
        let mut note = |region: usize, what: Change<'_>| seen.push((region, format!("{what:?}")));
        assert!(images.changes(from, pin.version(), &mut note));
        let regions: Vec<_> = seen.drain(..).map(|(region, _)| region).collect();
        assert_eq!(regions, [3, 2, 1]);
        let mut note = |region: usize, _: Change<'_>| seen.push((region, String::new()));
        assert!(without.changes(from, pin.version(), &mut note));
        assert_eq!(seen.iter().map(|(region, _)| *region).collect::<Vec<_>>(), [3]);
        let words = |source: &dyn TableSource<Tables>| {
            source.regions(&pin).iter().map(|region| region.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(words(&images), [[10].to_vec(), vec![19], vec![22], vec![31]]);
        assert_eq!(words(&without), [[10].to_vec(), vec![], vec![], vec![31]]);
    }

    #[test]
    fn what_changes_do_not_say_is_to_be_copied_anew() {
        let mut tables = Tables::default();
        let one = tables.add::<Part<1>>(Words(vec![10]));
        let two = tables.add::<Part<1>>(Words(vec![20]));
        let (mut writer, reader) = versions(tables);
        let images = TablesImages(writer.changes());
        let from = reader.pin().version();
        writer.publish(vec![one.patch(vec![(0, 0)]), two.patch(vec![(0, 7)])]);
        let to = reader.pin().version();
        let mut seen = 0;
        assert!(!images.changes(from, to, &mut |_, _| seen += 1));
        assert_eq!(seen, 2, "later changes are handed out all the same");
        assert!(!images.changes(from, to + 1, &mut |_, _| {}), "of a version that there is not");
    }

    #[test]
    #[should_panic(expected = "of other tables")]
    fn a_part_of_other_tables_is_none_of_these() {
        let mut tables = Tables::default();
        tables.add::<Part<1>>(Words(vec![1]));
        let mut others = Tables::default();
        let id = others.add::<Part<2>>(Words(vec![1, 2]));
        tables.part(id);
    }
}
