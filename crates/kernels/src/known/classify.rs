//! Linear, tuple and Bloom search: small sets, laid out by hand, for headers of every width.

use chunk::hash::{parameter, to_range};

use super::{Known, Sparse, bytes_of, cuts, trees};
use crate::Launch;
use crate::classifiers::{Classifier, FOUND, Structure};
use crate::image::ImageLayout;
use crate::job::JobBytes;

pub(crate) fn of_4_words(_: u32) -> Vec<Known> {
    let trees = [
        trees::rfc(),
        trees::tic(),
        cuts::cuts().known(Structure::Cuts, 4),
        cuts::masks(2).known(Structure::Cuts, 2),
    ];
    searches(4, &[2, 4]).into_iter().chain(trees).collect()
}

pub(crate) fn of_12_words(_: u32) -> Vec<Known> {
    let mut all = searches(10, &[9, 10]);
    all.push(cuts::masks(9).known(Structure::Cuts, 9));
    all
}

pub(crate) fn of_32_words(_: u32) -> Vec<Known> {
    let mut all = searches(32, &[16, 32]);
    all.push(cuts::masks(16).known(Structure::Cuts, 16));
    all
}

fn searches(words: usize, of_tuples: &[usize]) -> Vec<Known> {
    let mut all = vec![linear(words).known(Structure::Linear, words)];
    for words in of_tuples {
        all.push(tuple(*words, 0).known(Structure::Tuple, *words));
        all.push(tuple(*words, 2).known(Structure::Tuple, *words));
    }
    all
}

/// Headers, what each must find, and the image of the rules.
#[derive(Clone, Debug)]
pub struct Case {
    /// Words of each header.
    pub headers: Vec<Vec<u32>>,
    /// Priority above id; [`NONE`] for none.
    pub answers: Vec<u64>,
    /// The rules, as a structure's image.
    pub image: Vec<u32>,
}

impl Case {
    /// The same for the kernel of its structure alone.
    pub(super) fn known(&self, structure: Structure, words: usize) -> Known {
        let classifier = Classifier::of(structure, words).expect("a kernel");
        known(&classifier, &self.headers, &self.answers, &self.image)
    }
}

/// No rule.
pub const NONE: u64 = u64::MAX;

/// The fewest work items of a group.
pub const GROUP_ITEMS_MIN: usize = 16;

/// A job of these headers, in an image of one region. There are groups enough for the smallest, so that items of
/// larger ones share rows.
pub(super) fn known(
    classifier: &Classifier,
    headers: &[Vec<u32>],
    answers: &[u64],
    words: &[u32],
) -> Known {
    let mut before = JobBytes::new(classifier.columns, headers.len());
    for (number, column) in classifier.heads().enumerate() {
        let range = before.column_range(column, headers.len());
        classifier.fill(number, &headers.concat(), &mut before.bytes_mut()[range]);
    }
    let mut after = before.clone();
    for (row, answer) in answers.iter().enumerate() {
        before.put(FOUND, row, 0xdead_beef_u64);
        after.put(FOUND, row, *answer);
    }
    let layout = ImageLayout::new(&[(words.len(), 0)]);
    let image = bytes_of(&layout.write(1, &[words]));
    let tables = Sparse { bytes: image.len(), parts: vec![(0, image)] };
    let info = classifier.file.kernel(classifier.kernel);
    let kernels = info.map_or(&[][..], |info| std::slice::from_ref(&info.name));
    let spec = crate::Spec::of_file(classifier.file);
    let groups = headers.len().div_ceil(GROUP_ITEMS_MIN) as u32;
    let launches =
        kernels.iter().map(|kernel| Launch { kernel, groups, items: 0, job: 0 }).collect();
    let empty = Known::new("empty", &[], kernels, &[]);
    Known { spec, launches, tables, ..empty }.job(&before, &after)
}

/// Sixteen rules: for each test two words, then the match.
type Block = [([[u32; 2]; 3], u64); 16];

/// Tests of bits of the first word, of both halves of a middle one, and of 16 bits within the last. Two blocks in order,
/// one that is fresh; an empty place in each.
fn linear_blocks() -> [Block; 3] {
    let rule = |number: u32, found: u64| {
        let masked = if number.is_multiple_of(4) { [0, 0] } else { [number << 8, 0xff00] };
        let length = ((number % 5) << 16) + 100 * number;
        ([masked, [number << 16 | 10, length], [40 * number, 30 + number]], found)
    };
    let empty = ([[1, 0], [0xffff_ffff, 0], [0xffff, 0]], NONE);
    let mut number = 0;
    std::array::from_fn(|block| {
        std::array::from_fn(|lane| {
            number += 1;
            // The fresh ones are better than some before them, and in no order.
            let place = if block == 2 { 7 * number % 50 } else { number };
            if lane == 5 { empty } else { rule(number % 20, u64::from(place) << 32 | 77) }
        })
    })
}

/// Rules of linear search over headers of `words` words.
pub fn linear(words: usize) -> Case {
    let places = [0, words / 2, words - 1];
    let blocks = linear_blocks();
    let mut image = vec![0x6c69_6e01, words as u32, 3, 2, 3];
    image.resize(16, 0);
    for (test, (kind, shift, max)) in
        [(0, 0, u32::MAX), (1, 0, u32::MAX), (2, 8, 0xffff)].into_iter().enumerate()
    {
        image.extend([kind, places[test] as u32, shift, max]);
    }
    image.resize(32, 0);
    for block in &blocks {
        for test in 0..3 {
            image.extend(block.iter().map(|rule| rule.0[test][0]));
            image.extend(block.iter().map(|rule| rule.0[test][1]));
        }
        image.extend(block.iter().map(|rule| rule.1 as u32));
        image.extend(block.iter().map(|rule| (rule.1 >> 32) as u32));
    }
    let matches = |[masked, halves, wide]: [[u32; 2]; 3], [x, y, z]: [u32; 3]| {
        let inside = |x: u32, low: u32, length: u32| (low..=low + length).contains(&x);
        let [low, length] = halves;
        x & masked[1] == masked[0]
            && inside(y >> 16, low >> 16, length >> 16)
            && inside(y & 0xffff, low & 0xffff, length & 0xffff)
            && inside(z >> 8 & 0xffff, wide[0], wide[1])
    };
    let (mut headers, mut answers) = (Vec::new(), Vec::new());
    for at in 0..60 {
        let number = at % 20;
        let over = [0, 1, 60][at as usize / 20];
        let values =
            [number << 8 | 1, (number << 16) + 10 + over, 0xab00_00cd | (40 * number + over) << 8];
        let mut header = vec![0x5555_5555; words];
        places.iter().zip(values).for_each(|(place, value)| header[*place] = value);
        headers.push(header);
        let all = blocks.iter().flatten().filter(|rule| matches(rule.0, values));
        answers.push(all.map(|rule| rule.1).min().unwrap_or(NONE));
    }
    Case { headers, answers, image }
}

/// A class: its mask, its slots in a subtable, and its rules, a value and a match each.
struct Class {
    mask: Vec<u32>,
    depth: u32,
    rules: Vec<(Vec<u32>, u64)>,
}

/// One class that a group copies, one that stays in device memory, one behind which nobody has to look.
fn tuple_classes(words: usize) -> [Class; 3] {
    let mask = |first: u32, last: u32| {
        let mut mask = vec![0; words];
        (mask[0], mask[words - 1]) = (first, last);
        mask
    };
    let value = |first: u32, last: u32| mask(first, last);
    let of = |number: u32, priority: u64| (value(number << 16, 7 * number), priority << 32 | 5);
    [
        Class {
            mask: mask(0xffff_0000, u32::MAX),
            depth: 20,
            rules: (0..30).map(|number| of(number, 1 + 3 * u64::from(number))).collect(),
        },
        Class {
            mask: mask(0x00f0_0000, 0),
            depth: 3,
            rules: vec![(value(0, 0), 2 << 32), (value(0x0010_0000, 0), 40 << 32 | 6)],
        },
        Class { mask: mask(0, 0), depth: 2, rules: vec![(value(0, 0), 90 << 32 | 9)] },
    ]
}

const SLOTS: [[u32; 2]; 3] =
    [[0x9e37_79b1, 0x1234_5678], [0x85eb_ca77, 0x0bad_cafe], [0xc2b2_ae3d, 0x7777_1111]];
const FILTERS: [[u32; 2]; 2] = [[0x27d4_eb2f, 0x1357_9bdf], [0x1656_67b1, 0x2468_ace0]];
/// 32 less the logarithm of a filter's bits: 2,048.
const SHIFT: u32 = 21;

fn tuple_hash(masked: &[u32]) -> u32 {
    let of = |at: usize| parameter(9, at as u32);
    let products = masked.iter().enumerate().map(|(at, x)| of(at).wrapping_mul(u64::from(*x)));
    (products.fold(of(masked.len()), u64::wrapping_add) >> 32) as u32
}

fn of_function([a, b]: [u32; 2], x: u32) -> u32 {
    a.wrapping_mul(x).wrapping_add(b)
}

/// Slots and entries of a class, and its filter.
fn tuple_tables(class: &Class, tag_mask: u32) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let width = class.mask.len();
    let mut slots = vec![0; 3 * class.depth as usize];
    let (mut entries, mut filter) = (Vec::new(), vec![0; 1 << (27 - SHIFT)]);
    let mut add = |value: &[u32], found: u64| {
        entries.extend_from_slice(value);
        entries.extend([found as u32, (found >> 32) as u32]);
        entries.resize(entries.len().next_multiple_of(4), 0);
    };
    add(&vec![0; width], NONE);
    for (number, (value, found)) in (1..).zip(&class.rules) {
        let x = tuple_hash(value);
        let places = (0..3).map(|table| {
            let slot = to_range(of_function(SLOTS[table as usize], x), class.depth);
            (table * class.depth + slot) as usize
        });
        let empty = places.into_iter().find(|place| slots[*place] == 0);
        slots[empty.expect("one of three slots is empty")] = x & tag_mask | number;
        add(value, *found);
        let bit = of_function(FILTERS[0], x) >> SHIFT;
        filter[bit as usize / 32] |= 1 << (bit % 32) | 1 << (of_function(FILTERS[1], x) >> 27);
    }
    (slots, entries, filter)
}

/// Rules of tuple search over headers of `words` words, with filters of so many functions.
pub fn tuple(words: usize, functions: u32) -> Case {
    let classes = tuple_classes(words);
    let stride = (words + 8).next_multiple_of(4);
    let records = (32 + 2 * (words + 1)).next_multiple_of(16);
    let bounds = (records + classes.len() * stride).next_multiple_of(16);
    let counts = [classes.len() as u32, records as u32, bounds as u32, functions];
    let mut image = vec![0x7475_7001, words as u32, 0];
    image.extend(counts);
    image.resize(16, 0);
    image.extend(SLOTS.iter().chain(&FILTERS).flatten());
    image.resize(32, 0);
    for at in 0..=words as u32 {
        let parameter = parameter(9, at);
        image.extend([parameter as u32, (parameter >> 32) as u32]);
    }
    image.resize(bounds, 0);
    image.extend([1, 2, 90]);
    image.resize(image.len().next_multiple_of(16), 0);
    let tag_mask = !63;
    for (number, class) in classes.iter().enumerate() {
        let (slots, entries, filter) = tuple_tables(class, tag_mask);
        let mut record = class.mask.clone();
        let first = image.len();
        image.extend(slots);
        image.resize(image.len().next_multiple_of(16), 0);
        let at = image.len();
        image.extend(entries);
        image.resize(image.len().next_multiple_of(16), 0);
        let count = class.rules.len() as u32 + 1;
        let numbers =
            [first as u32, class.depth, tag_mask, at as u32, image.len() as u32, SHIFT, count];
        record.extend(numbers);
        image[records + number * stride..][..record.len()].copy_from_slice(&record);
        if functions > 0 {
            image.extend(filter);
        }
    }
    let (mut headers, mut answers) = (Vec::new(), Vec::new());
    for at in 0..64_u32 {
        let mut header = vec![0x3333_3333; words];
        header[0] = (at % 32) << 16 | at;
        header[words - 1] = 7 * (at % 32) + at / 60;
        let all = classes.iter().flat_map(|class| {
            let masked: Vec<u32> = header.iter().zip(&class.mask).map(|(x, m)| x & m).collect();
            class.rules.iter().filter(move |rule| rule.0 == masked).map(|rule| rule.1)
        });
        answers.push(all.min().unwrap_or(NONE));
        headers.push(header);
    }
    Case { headers, answers, image }
}
