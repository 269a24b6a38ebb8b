//! Cut trees: copies of rules, levels of nodes, the bound of leaves. And what `auto` is tried with.

use classify::auto::AutoBuilder;
use classify::cuts::{Copies, Cuts, CutsBuilder};
use classify::{
    Classifier, Condition, Explained, Field, Kind, RuleError, RuleRef, RuleSet, Schema,
};
use lookup::Blob;

use crate::common::{Random, headers, rules};
use crate::suite::{Bed, Structure, Visit, four_forms};

impl Structure for CutsBuilder {
    const CASES: u32 = 120;
    const RULES: usize = 250;
    const CHANGES: usize = 150;
    const HEADERS: usize = 1500;

    fn schemas() -> Vec<Schema> {
        let words = |bits: &[u8]| {
            let fields = bits.iter().enumerate().map(|(at, bits)| {
                Field::new(
                    format!("f{at}"),
                    *bits,
                    if at % 3 == 1 { Kind::Prefix } else { Kind::Mask },
                )
            });
            Schema::new(fields.collect()).unwrap()
        };
        vec![
            Schema::five_tuple(),
            (*classify::filter::schema_v4()).clone(),
            // Values and masks over one word up to sixteen.
            Schema::twelve_fields(),
            words(&[7]),
            words(&[32, 32]),
            words(&[32, 32, 16]),
            words(&[32, 32, 32, 32, 32]),
            words(&[128, 128, 48]),
            words(&[128, 128, 128, 32]),
        ]
    }
    fn ways(set: &RuleSet, _random: &mut Random) -> Vec<Result<Self, RuleError>> {
        [Copies::Fewest, Copies::Few, Copies::Many].map(|c| CutsBuilder::with(set, c)).into()
    }
    fn forms(image: &Blob, visit: Visit<'_>) {
        let view = Cuts::new(image).unwrap();
        visit("without vectors", &|headers, out| view.classify_portable(headers, out));
        four_forms(visit, |form, headers, out| view.classify_by(form, headers, out));
    }
    fn check_explained(&self, _header: &[u32], explained: &Explained) {
        assert_eq!(explained.steps.len(), Cuts::new(self.blob()).unwrap().trees());
    }
}

/// Rules that look at three words of five, in many masks: as a flow table's.
#[test]
fn flows_of_many_masks() {
    let random = &mut Random(17);
    let fields = (0..5).map(|at| Field::new(format!("word {at}"), 32, Kind::Mask));
    let schema = Schema::new(fields.collect()).unwrap();
    let mut set = RuleSet::new(schema.clone());
    let any = Condition::Mask { value: 0, mask: 0 };
    let flow = |random: &mut Random| {
        let mut prefix = |least: u128| {
            let mask = u128::from(
                !(u32::MAX.checked_shr((least + random.below(33 - least)) as u32).unwrap_or(0)),
            );
            Condition::Mask { value: random.below(1 << 32) & mask, mask }
        };
        let kind = Condition::Mask { value: 0x0800 << 16, mask: 0xffff_0000 };
        [kind, any, prefix(6), any, prefix(1)]
    };
    for id in 0..3_000_u32 {
        let words = schema.conditions(&flow(random)).unwrap();
        set.push(RuleRef { words: &words, priority: random.below(600) as u32, id }).unwrap();
    }
    let headers = headers(&set, 700, random);
    let mut bed = Bed::<CutsBuilder>::new(&set);
    bed.check(&headers);
    // Others come, also such that look at words of which no rule has asked, and one for all headers.
    for id in 3_000..4_000_u32 {
        let mut conditions = flow(random);
        if id % 50 == 0 {
            conditions[1] = Condition::Mask { value: 5, mask: 7 };
        }
        if id == 3_333 {
            conditions = [any; 5];
        }
        let words = schema.conditions(&conditions).unwrap();
        bed.add(RuleRef { words: &words, priority: random.below(600) as u32, id }).unwrap();
        if id % 2 == 0 {
            bed.remove(random);
        }
    }
    bed.check(&headers);
}

/// Any of the others, which have forms of their own.
impl Structure for AutoBuilder {
    const RULES: usize = 150;
    const CHANGES: usize = 40;
    const SHARED: usize = 1100;
}

/// Grows from nothing to many rules of a real set and back, so that nodes are cut anew and everything is built anew;
/// at last as large as a set that has a second level of nodes.
#[test]
fn a_real_set_grows_and_shrinks() {
    let Some(real) = rules("neurocuts/fw1_10k") else { return };
    let random = &mut Random(9);
    let headers = headers(&real, 300, random);
    let mut bed = Bed::<CutsBuilder>::new(&RuleSet::new(real.schema().clone()));
    for index in 0..3000 {
        bed.add(real.rule((index * 7919) % real.len())).unwrap();
        if index % 500 == 0 {
            bed.check(&headers);
        }
    }
    bed.check(&headers);
    while bed.ids.len() > 10 {
        bed.remove(random);
        if bed.ids.len().is_multiple_of(500) {
            bed.check(&headers);
        }
    }
    bed.check(&headers);
}

/// Sets large enough for a second level of nodes.
#[test]
fn two_levels() {
    let random = &mut Random(3);
    let schema = Schema::five_tuple();
    let mut set = RuleSet::new(schema.clone());
    let any = Condition::Range { low: 0, high: 65535 };
    for id in 0..40_000_u32 {
        let mut prefix = |least: u128| {
            let len = (least + random.below(33 - least)) as u8;
            Condition::Prefix { value: random.below(1 << 32) >> (32 - len) << (32 - len), len }
        };
        let (src, dst) = (prefix(14), prefix(8));
        let dport = Condition::Range { low: random.below(9000), high: 9000 + random.below(9000) };
        let proto = Condition::Mask { value: 6, mask: 255 };
        let words = schema.conditions(&[src, dst, any, dport, proto]).unwrap();
        set.push(RuleRef { words: &words, priority: random.below(9) as u32, id }).unwrap();
    }
    let headers = headers(&set, 800, random);
    let mut bed = Bed::<CutsBuilder>::new(&set);
    bed.check(&headers);
    for id in (0..40_000).step_by(37) {
        bed.take(id);
        if id % 2 == 0 {
            bed.add(RuleRef { id: id + 100_000, ..set.rule(id as usize) }).unwrap();
        }
    }
    bed.check(&headers);
}

/// Rules that overlap and no bit tells apart: more than a leaf can have are refused, and nothing has changed.
#[test]
fn leaves_have_a_bound() {
    let schema = Schema::five_tuple();
    let mut bed = Bed::<CutsBuilder>::new(&RuleSet::new(schema.clone()));
    let any: Vec<Condition> = schema.fields().iter().map(Condition::any).collect();
    let mut refused = None;
    for id in 0..3000_u32 {
        // Each covers a port more on one side and one less on the other.
        let (low, high) = (u128::from(id) + 1, 60_000 + u128::from(id));
        let mut conditions = any.clone();
        conditions[3] = Condition::Range { low, high };
        let words = schema.conditions(&conditions).unwrap();
        if let Err(error) = bed.add(RuleRef { words: &words, priority: 1, id }) {
            refused = Some(error);
            break;
        }
    }
    assert!(matches!(refused, Some(RuleError::Full { .. })), "{refused:?}");
    assert!(bed.ids.len() >= 2000, "{}", bed.ids.len());
    let header = |port: u128| schema.header(&[1, 2, 3, port, 6]);
    let headers: Vec<u32> = [0, 1, 2, 2000, 59_999, 60_500, 65_535].map(header).concat();
    bed.check(&headers);
}
