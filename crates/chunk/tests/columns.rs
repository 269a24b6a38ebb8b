//! Columns of any declarations, joined: against a plain map from names to values.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Mutex;

use chunk::{Arena, ColumnDesc, Declaration, Layout, LayoutError, Rows};
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

/// Types that a column may have: width and name in the dialect.
const TYPES: [(usize, &str); 5] =
    [(1, "uchar"), (2, "ushort"), (4, "uint"), (8, "ulong"), (16, "ulong2_t")];

const NAMES: [&str; 14] = [
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
    "i",
    "j",
    "long_name",
    "long_game",
    "verdict",
    "context",
];

/// A value of any type, as two words.
type Value = [u64; 2];

/// Values of all columns, by name.
type Plain = HashMap<&'static str, Vec<Value>>;

/// Items for as long as the process lives. The list knows them all, so that nothing counts as leaked.
fn kept<T: Send + Sync>(items: Vec<T>) -> &'static [T] {
    static ALL: Mutex<Vec<&'static (dyn Any + Send + Sync)>> = Mutex::new(Vec::new());
    let items: &'static Vec<T> = Box::leak(Box::new(items));
    ALL.lock().unwrap().push(items);
    items
}

fn desc(name: &'static str, kind: usize) -> ColumnDesc {
    let kind = if matches!(name, "verdict" | "context") { 2 } else { kind };
    let (width, dialect) = TYPES[kind];
    ColumnDesc { name, width, dialect }
}

/// Declarations whose columns of one name are of one type. They overlap more often than not.
fn declarations() -> impl Strategy<Value = Vec<Declaration>> {
    let one = subsequence(NAMES.to_vec(), 0..=NAMES.len()).prop_shuffle();
    let kinds = prop::collection::vec(0..TYPES.len(), NAMES.len());
    (prop::collection::vec(one, 0..7), kinds).prop_map(|(all, kinds)| {
        let kind = |name: &str| kinds[NAMES.iter().position(|other| *other == name).unwrap()];
        let declared = |names: Vec<&'static str>| -> Declaration {
            kept(names.into_iter().map(|name| desc(name, kind(name))).collect())
        };
        all.into_iter().map(declared).collect()
    })
}

/// What one declaration shows of some rows, each value changed by `change`, which is given its name.
fn visit(
    rows: &mut Rows,
    declared: Declaration,
    mut change: impl FnMut(&'static str, Value) -> Value,
) -> Vec<(&'static str, Vec<Value>)> {
    let mut split = rows.split(declared);
    let mut seen = Vec::new();
    for ColumnDesc { name, width, .. } in declared {
        macro_rules! words {
            ($t:ty) => {{
                let mut values = Vec::new();
                for value in split.column::<$t>() {
                    *value = change(name, [u64::from(*value), 0])[0] as $t;
                    values.push([u64::from(*value), 0]);
                }
                values
            }};
        }
        let values = match width {
            1 => words!(u8),
            2 => words!(u16),
            4 => words!(u32),
            8 => words!(u64),
            _ => {
                let mut values = Vec::new();
                for value in split.column::<Value>() {
                    *value = change(name, *value);
                    values.push(*value);
                }
                values
            }
        };
        seen.push((*name, values));
    }
    seen
}

/// Every declaration shows what the plain map has; what nobody has written is zero.
fn check(rows: &mut Rows, declared: &[Declaration], plain: &Plain) {
    for columns in declared {
        for (name, values) in visit(rows, columns, |_, value| value) {
            assert_eq!(values.len(), rows.len());
            match plain.get(name) {
                Some(wanted) => assert_eq!(&values, wanted, "{name}"),
                None => assert!(values.iter().all(|value| *value == [0, 0]), "{name}"),
            }
        }
    }
}

/// Fills the columns of one declaration with random values.
fn fill(rows: &mut Rows, columns: Declaration, plain: &mut Plain, seed: &mut u64) {
    let random = |_: &str, _: Value| {
        [(); 2].map(|()| {
            *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *seed ^ *seed >> 31
        })
    };
    for (name, values) in visit(rows, columns, random) {
        plain.insert(name, values);
    }
}

/// Columns begin behind the header, at multiples of 64, and no two share a byte.
fn check_places(layout: &Layout) {
    let columns = layout.columns().iter().enumerate();
    let mut places: Vec<(usize, usize)> = columns
        .map(|(i, column)| (layout.offset(i), layout.offset(i) + column.width * layout.capacity()))
        .collect();
    places.sort_unstable();
    let mut free_from = layout.header_bytes();
    for (start, end) in places {
        assert!(start >= free_from && start.is_multiple_of(64));
        free_from = end;
    }
    assert!(free_from <= layout.bytes());
}

/// The same content at another address.
fn elsewhere(columns: Declaration) -> Declaration {
    kept(columns.to_vec())
}

proptest! {
    #[test]
    fn all_declarations_see_the_same_values(
        declared in declarations(),
        parts in (1usize..200, 0usize..100, 1usize..200),
        slack in 0usize..70,
        other in 0usize..300,
        order in prop::collection::vec((any::<Index>(), any::<bool>(), any::<bool>()), 0..8),
        mut seed in any::<u64>(),
    ) {
        let (one, between, two) = parts;
        let layout = Layout::join(&declared, one + between + two + slack).unwrap();
        check_places(&layout);
        let mut names: Vec<_> = layout.columns().iter().map(|column| column.name).collect();
        prop_assert_eq!(&names[..2], ["verdict", "context"]);
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), layout.columns().len(), "each column once");

        let arena = Arena::new(layout.clone());
        let mut rows = [one, between, two].map(|n| arena.reserve(n).unwrap());
        let mut plain = [(); 3].map(|()| Plain::new());
        for (which, is_last, is_elsewhere) in order.into_iter().filter(|_| !declared.is_empty()) {
            let columns = declared[which.index(declared.len())];
            let columns = if is_elsewhere { elsewhere(columns) } else { columns };
            let part = if is_last { 2 } else { 0 };
            fill(&mut rows[part], columns, &mut plain[part], &mut seed);
            for (rows, plain) in rows.iter_mut().zip(&plain) {
                check(rows, &declared, plain);
            }
        }

        // Rows of another arena, of another capacity.
        let mut copy = Arena::new(layout.with_capacity(one + other)).reserve(one + other).unwrap();
        check_places(copy.layout());
        copy.copy_from(&mut rows[0]);
        check(&mut copy, &declared, &plain[0]);

        // Some columns back to zero.
        let cleared: Vec<usize> =
            (0..layout.columns().len()).filter(|column| seed >> column & 1 == 1).collect();
        rows[2].clear(&cleared);
        for column in cleared {
            plain[2].remove(layout.columns()[column].name);
        }
        for (rows, plain) in rows.iter_mut().zip(&plain) {
            check(rows, &declared, plain);
        }
    }

    /// The order in which declarations are joined changes where columns lie, not which there are.
    #[test]
    fn any_order_has_the_same_columns(
        (declared, shuffled) in declarations().prop_flat_map(|declared| {
            (Just(declared.clone()), Just(declared).prop_shuffle())
        }),
    ) {
        let columns = |declared: &[Declaration]| {
            let mut columns = Layout::join(declared, 3).unwrap().columns().to_vec();
            columns.sort_by_key(|column| column.name);
            columns
        };
        prop_assert_eq!(columns(&declared), columns(&shuffled));
    }

    #[test]
    fn clashing_types_are_an_error(
        declared in declarations(),
        (name, kind) in (0..NAMES.len(), 0..TYPES.len()),
        at in any::<Index>(),
    ) {
        let name = NAMES[name];
        let (width, dialect) = TYPES[kind];
        let added = ColumnDesc { name, width, dialect };
        let is_common = matches!(name, "verdict" | "context");
        let known = declared.iter().copied().flatten().find(|column| column.name == name);
        let known = known.copied().or(is_common.then_some(desc(name, 2)));
        let mut all = declared;
        all.insert(at.index(all.len() + 1), kept(vec![added]));
        match (Layout::join(&all, 1), known) {
            (Ok(_), known) => prop_assert!(known.is_none_or(|known| known == added)),
            (Err(LayoutError::Clash { first, second }), Some(known)) => {
                let (one, other) = (*first.0, *second.0);
                prop_assert!(one != other && [one, other].contains(&added));
                prop_assert!([one, other].contains(&known));
                prop_assert!(first.1.is_none_or(|first| all[first].contains(&one)));
                prop_assert!(all[second.1].contains(&other));
            }
            (Err(error), _) => prop_assert!(false, "{}", error),
        }
    }
}

/// More columns than a byte could number.
#[test]
fn three_hundred_columns_in_one_layout() {
    let names = kept((0..300).map(|i| format!("c{i}")).collect());
    let one = kept((0..300).map(|i| desc(&names[i], i % TYPES.len())).collect());
    let layout = Layout::join(&[one], 7).unwrap();
    assert_eq!((layout.columns().len(), layout.header_bytes()), (302, 1280));
    check_places(&layout);
    let mut rows = Arena::new(layout).reserve(7).unwrap();
    let (mut plain, mut seed) = (Plain::new(), 3);
    fill(&mut rows, one, &mut plain, &mut seed);
    check(&mut rows, &[one], &plain);
}

proptest! {
    /// Rows that are moved, and those that close up, have what they had in every column.
    #[test]
    fn moved_rows_keep_their_values(declared in declarations(), n in 1usize..60, mask in any::<u64>()) {
        let layout = Layout::join(&declared, 64).unwrap();
        let (mut own, mut moved) =
            (Arena::new(layout.clone()).reserve(64).unwrap(), Arena::new(layout).reserve(64).unwrap());
        own.set_len(n);
        let columns = own.layout().columns().len();
        let value = |column: usize, row: usize, byte: usize| (column * 7 + row * 31 + byte * 3) as u8;
        let bytes = |rows: &[usize], column: usize, width: usize| -> Vec<u8> {
            let of_row = |row: &usize| {
                let row = *row;
                (0..width).map(move |byte| value(column, row, byte))
            };
            rows.iter().flat_map(of_row).collect()
        };
        let (to_move, to_keep): (Vec<usize>, Vec<usize>) = (0..n).partition(|row| mask >> row & 1 == 1);
        let all: Vec<usize> = (0..n).collect();
        for column in 0..columns {
            let width = own.layout().columns()[column].width;
            own.column_bytes_mut(column).copy_from_slice(&bytes(&all, column, width));
        }
        let rows: Vec<u16> = to_move.iter().map(|row| *row as u16).collect();
        own.move_rows(&rows, &mut moved);
        prop_assert_eq!((own.len(), moved.len()), (to_keep.len(), to_move.len()));
        for column in 0..columns {
            let width = own.layout().columns()[column].width;
            prop_assert_eq!(own.column_bytes(column), bytes(&to_keep, column, width));
            prop_assert_eq!(moved.column_bytes(column), bytes(&to_move, column, width));
        }
    }
}
