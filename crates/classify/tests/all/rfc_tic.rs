//! RFC and TIC: accesses, sizes and limits, TIC's blocks and instructions, broken images.

use classify::rfc::{self, Rfc, RfcBuilder};
use classify::tic::{self, Block, Tic, TicBuilder};
use classify::{
    Classifier, Classify, Condition, Explained, Match, RuleError, RuleRef, RuleSet, Schema,
};
use lookup::Blob;

use crate::common::{Random, header_in, headers};
use crate::suite::{Structure, Visit, check_forms, four_forms, overlapping};

const BLOCKS: [Block; 2] = [Block::Bytes32, Block::Bytes64];

/// Sets of 10,000 rules are too large for this, or not.
const LIMIT_BYTES: u64 = 1 << 26;

/// The last step that finds something has the answer.
fn check_last(explained: &Explained) {
    let last = explained.steps.iter().rfind(|step| step.outcome.found().is_some());
    assert_eq!(last.map_or(Match::NONE, |step| step.outcome.found()), explained.found);
}

impl Structure for RfcBuilder {
    const CASES: u32 = 40;
    const RULES: usize = 120;
    const CHANGES: usize = 8;
    const MANY: (usize, usize) = (30, 6);

    fn schemas() -> Vec<Schema> {
        vec![Schema::five_tuple()]
    }
    fn ways(set: &RuleSet, _random: &mut Random) -> Vec<Result<Self, RuleError>> {
        vec![RfcBuilder::with(set, rfc::Options { limit_bytes: LIMIT_BYTES })]
    }
    fn forms(image: &Blob, visit: Visit<'_>) {
        let view = Rfc::new(image).unwrap();
        four_forms(visit, |form, headers, out| view.classify_by(form, headers, out));
    }
    fn check(&self, _headers: &[u32], _expected: &[Match]) {
        assert!(self.rebuilds());
    }
    fn check_explained(&self, _header: &[u32], explained: &Explained) {
        check_last(explained);
        assert_eq!(explained.accesses(), 13 + u32::from(explained.found.is_some()));
    }
}

impl Structure for TicBuilder {
    const CASES: u32 = 40;
    const RULES: usize = 120;
    const CHANGES: usize = 8;
    const MANY: (usize, usize) = (30, 6);

    fn schemas() -> Vec<Schema> {
        vec![Schema::five_tuple()]
    }
    fn ways(set: &RuleSet, _random: &mut Random) -> Vec<Result<Self, RuleError>> {
        let of = |block| TicBuilder::with(set, tic::Options { limit_bytes: LIMIT_BYTES, block });
        let ways = BLOCKS.map(of);
        // Never more than RFC takes.
        if let Ok(rfc) = RfcBuilder::with(set, rfc::Options { limit_bytes: LIMIT_BYTES }) {
            let rfc = rfc.memory().total();
            let sizes = ways.iter().flatten().map(|tic| tic.memory().total());
            sizes.for_each(|tic| assert!(tic <= rfc, "{} rules: {tic} > {rfc}", set.len()));
        }
        ways.into()
    }
    fn forms(image: &Blob, visit: Visit<'_>) {
        let view = Tic::new(image).unwrap();
        four_forms(visit, |form, headers, out| view.classify_by(form, headers, out));
    }
    fn check(&self, headers: &[u32], expected: &[Match]) {
        assert!(self.rebuilds());
        let counts = tic::measure(self.blob(), headers).unwrap();
        assert_eq!(counts.headers, expected.len() as u64);
        let matched = expected.iter().filter(|found| found.is_some()).count() as u64;
        assert!(counts.ranges >= matched && counts.blocks >= counts.headers);
        assert!(counts.ranges_max * counts.headers >= counts.ranges);
        assert!(counts.blocks_max * counts.headers >= counts.blocks);
        let (report, memory) = (self.report(), self.memory());
        assert!(counts.ranges_max <= report.rules_max && report.rules_max <= report.ranges());
        assert_eq!(report.code_bytes, report.blocks * report.block_bytes);
        let code = memory.parts.iter().find(|(part, _)| *part == "code").map_or(0, |part| part.1);
        assert_eq!((report.code_bytes as usize).next_multiple_of(64), code);
        assert!(report.tree_bytes + report.code_bytes < memory.total() as u64);
    }
    fn check_explained(&self, header: &[u32], explained: &Explained) {
        check_last(explained);
        let blocks = tic::measure(self.blob(), header).unwrap().blocks as u32;
        let accesses = 10 + blocks + u32::from(explained.found.is_some());
        assert_eq!(explained.accesses(), accesses, "{explained:#?}");
    }
}

/// Rule numbers above 64K: the instructions that set their upper half.
#[test]
fn more_than_64k_rules() {
    let mut set = RuleSet::new(Schema::five_tuple());
    let any = Condition::Range { low: 0, high: 65535 };
    // Many rules of few addresses, each of another port; then some that catch what is left.
    for number in 0..70_000_u128 {
        let port = Condition::Range { low: number % 65536, high: number % 65536 };
        let conditions = [
            Condition::Prefix { value: (number % 1000) << 20, len: 12 },
            Condition::Prefix { value: 0, len: 0 },
            any,
            port,
            Condition::Mask { value: if number < 65536 { 6 } else { 17 }, mask: 255 },
        ];
        set.append(&conditions).unwrap();
    }
    for value in 0..16_u128 {
        let mut conditions: Vec<Condition> =
            set.schema().fields().iter().map(Condition::any).collect();
        conditions[1] = Condition::Prefix { value: value << 28, len: 4 };
        conditions[4] = Condition::Mask { value: value << 4, mask: 0xf0 };
        set.append(&conditions).unwrap();
    }
    let random = &mut Random(4);
    let mut headers = Vec::new();
    for _ in 0..400 {
        let top = 65_000 + random.below(5016) as usize;
        let rule = set.rule(if random.one_in(2) { top } else { top - 60_000 });
        headers.extend(header_in(set.schema(), rule.words, random));
    }
    // The first that matches is the best.
    let best = |header: &[u32]| {
        let rule = set.iter().find(|rule| set.schema().matches(rule.words, header));
        rule.map_or(Match::NONE, |rule| rule.place())
    };
    let expected: Vec<Match> = headers.chunks(4).map(best).collect();
    let late = expected.iter().filter(|found| found.id().is_some_and(|id| id >= 65_536));
    assert!(late.count() > 50);
    for block in BLOCKS {
        let options = tic::Options { block, ..tic::Options::default() };
        let tic = TicBuilder::with(&set, options).unwrap();
        assert!(tic.report().bases > 1000);
        check_forms::<TicBuilder>(&tic.tables().unwrap(), &headers, &expected);
    }
}

/// What would pass a limit is refused with its size; the same set fits into that size.
#[test]
fn a_limit_is_kept() {
    let random = &mut Random(9);
    let set = overlapping(200, random);
    let rfc = |limit_bytes| RfcBuilder::with(&set, rfc::Options { limit_bytes });
    let tic = |limit_bytes| {
        TicBuilder::with(&set, tic::Options { limit_bytes, ..tic::Options::default() })
    };
    let (of_rfc, of_tic) =
        (rfc(1 << 30).unwrap().memory().total(), tic(1 << 30).unwrap().memory().total());
    assert!(rfc(of_rfc as u64).is_ok() && tic(of_tic as u64).is_ok());
    let refused = |error: RuleError, limit: u64| match error {
        RuleError::TooLarge { bytes, limit: found, .. } => {
            assert_eq!(found, limit);
            assert!(bytes > limit);
            bytes
        }
        other => panic!("{other}"),
    };
    let last = of_rfc as u64 - 1;
    assert_eq!(refused(rfc(last).unwrap_err(), last), of_rfc as u64);
    for share in 1..10 {
        let limit = of_rfc as u64 * share / 10;
        assert!(refused(rfc(limit).unwrap_err(), limit) <= of_rfc as u64);
        let limit = of_tic as u64 * share / 10;
        assert!(refused(tic(limit).unwrap_err(), limit) <= of_tic as u64);
    }
    let text = rfc(1000).unwrap_err().to_string();
    assert!(text.contains("at most 1000 are allowed"), "{text}");
    // A change that would pass the limit leaves all as it was.
    let mut builder = rfc(of_rfc as u64).unwrap();
    let mut wide = RuleSet::new(Schema::five_tuple());
    for number in 0..40 {
        let conditions = [
            Condition::Prefix { value: number << 19 | 0x4000_0001, len: 32 },
            Condition::Prefix { value: number << 18 | 0x2000_0001, len: 32 },
            Condition::Range { low: number + 100, high: number + 200 },
            Condition::Range { low: number + 300, high: number + 400 },
            Condition::Mask { value: 6, mask: 255 },
        ];
        wide.append(&conditions).unwrap();
    }
    let mut patches = Vec::new();
    let refused = wide.iter().find_map(|rule| {
        patches.clear();
        let words = builder.blob().words().to_vec();
        let rule = RuleRef { id: rule.id + 1000, ..rule };
        let result = builder.insert(rule, &mut patches);
        result.err().map(|error| (error, words))
    });
    let (error, words) = refused.unwrap();
    assert!(matches!(error, RuleError::TooLarge { .. }), "{error}");
    assert!(patches.is_empty() && builder.blob().words() == words);
}

/// Broken images are none, or give some answer; never a panic.
#[test]
fn broken_images_do_no_harm() {
    let random = &mut Random(12);
    let set = overlapping(40, random);
    let headers = headers(&set, 50, random);
    let builders: [Box<dyn Classifier>; 2] =
        [Box::new(RfcBuilder::build(&set).unwrap()), Box::new(TicBuilder::build(&set).unwrap())];
    for builder in builders {
        for _ in 0..300 {
            let mut tables = builder.tables().unwrap();
            let length = builder.blob().words().len();
            let patches: Vec<lookup::Patch> = (0..4)
                .map(|_| {
                    let near = if random.one_in(2) { 128 } else { length as u128 };
                    let offset_words = random.below(near) as usize;
                    let count =
                        1 + random.below(8).min((length - offset_words - 1) as u128) as usize;
                    let value = random.next() as u32 >> random.below(32);
                    lookup::Patch::Fill {
                        offset_words: offset_words.max(1),
                        count: count - 1,
                        value,
                    }
                })
                .collect();
            patches.iter().for_each(|p| lookup::versions::Patchable::apply(&mut tables, p));
            let mut out = vec![Match::NONE; headers.len() / 4];
            if tables.words() == 4 {
                tables.classify(&headers, &mut out);
            }
            if Rfc::new(tables.blob()).is_some() {
                RfcBuilder::forms(tables.blob(), &mut |_, form| form(&headers, &mut out));
            }
            if Tic::new(tables.blob()).is_some() {
                TicBuilder::forms(tables.blob(), &mut |_, form| form(&headers, &mut out));
            }
        }
    }
}
