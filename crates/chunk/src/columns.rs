//! Columns: one value a packet, apart from the packet's bytes, so that a whole batch can be worked
//! on at once and a device can take it as it is.
//!
//! A pipeline declares its columns once, with [`columns!`](crate::columns!). From that declaration
//! come the Rust slices, the byte layout ([`Layout`](crate::Layout)), the kernel dialect's accessors
//! ([`dialect`]) and the generator of random rows for property tests.
//!
//! Two columns come first in every declaration: `verdict` and `context`. The engine reads them.

use crate::arena::{COMMON_COLUMNS, Rows};

/// A type that a column may hold: plain bytes, valid in every bit pattern.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, and the alignment is at most 16.
pub unsafe trait Element: Copy + Default + 'static {
    /// Its name in the kernel dialect.
    const DIALECT: &'static str;
    /// A value made of the random words that `next` gives.
    fn random(next: &mut dyn FnMut() -> u64) -> Self;
}

macro_rules! element {
    ($($t:ty = $name:literal, |$r:ident| $make:expr;)*) => {$(
        // SAFETY: integers and arrays of them have no padding and no invalid pattern.
        unsafe impl Element for $t {
            const DIALECT: &'static str = $name;
            fn random($r: &mut dyn FnMut() -> u64) -> Self { $make }
        }
    )*};
}

element! {
    u8 = "uchar", |next| next() as u8;
    u16 = "ushort", |next| next() as u16;
    u32 = "uint", |next| next() as u32;
    u64 = "ulong", |next| next();
    [u64; 2] = "ulong2_t", |next| [next(), next()];
}

/// Place of a column in its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnId(pub u8);

/// A set of columns: what a stage reads, or what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ColumnSet(pub u32);

impl ColumnSet {
    /// No column.
    pub const EMPTY: ColumnSet = ColumnSet(0);

    /// The set of the columns in `ids`.
    pub const fn of(ids: &[ColumnId]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < ids.len() {
            bits |= 1 << ids[i].0;
            i += 1;
        }
        ColumnSet(bits)
    }

    /// Whether `id` is in it.
    pub const fn contains(self, id: ColumnId) -> bool {
        self.0 >> id.0 & 1 == 1
    }

    /// Columns in either.
    pub const fn union(self, other: Self) -> Self {
        ColumnSet(self.0 | other.0)
    }

    /// Columns in this and not in the other.
    pub const fn without(self, other: Self) -> Self {
        ColumnSet(self.0 & !other.0)
    }

    /// Columns in both.
    pub const fn intersection(self, other: Self) -> Self {
        ColumnSet(self.0 & other.0)
    }
}

/// What a declaration says of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnDesc {
    /// Its name.
    pub name: &'static str,
    /// Bytes of a value.
    pub width: usize,
    /// Its type in the kernel dialect.
    pub dialect: &'static str,
}

/// Columns of two declarations: all of `first`, and behind them what `second` has beside `verdict` and `context`. For
/// [`Layout::of_both`](crate::Layout::of_both).
///
/// # Panics
/// If these are not `N` columns.
pub const fn joined<const N: usize>(
    first: &[ColumnDesc],
    second: &[ColumnDesc],
) -> [ColumnDesc; N] {
    assert!(first.len() + second.len() == N + COMMON_COLUMNS);
    let mut all = [first[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len() + COMMON_COLUMNS] };
        i += 1;
    }
    all
}

/// Where a column that `second` adds stands among those that [`joined`] made.
pub const fn joined_id(first: &[ColumnDesc], second: ColumnId) -> ColumnId {
    ColumnId(second.0 + (first.len() - COMMON_COLUMNS) as u8)
}

/// A declaration of columns, made by [`columns!`](crate::columns!).
pub trait Columns {
    /// The columns in order; `verdict` is 0 and `context` 1.
    const COLUMNS: &'static [ColumnDesc];
    /// The slices of a declaration over some rows.
    type View<'a>;
    /// Borrows every column of `rows`.
    ///
    /// # Panics
    /// If `rows` were not laid out by this declaration, or by it and another one.
    fn view(rows: &mut Rows) -> Self::View<'_>;
    /// Fills every column but `verdict` with random values.
    fn randomise(rows: &mut Rows, next: &mut dyn FnMut() -> u64);
}

/// Declares the columns of a pipeline: see the [module](crate::Columns).
///
/// ```
/// chunk::columns! {
///     /// Columns of a toy.
///     pub struct Toy / ToyView {
///         /// Destination, host order.
///         pub dst: u32,
///     }
/// }
/// use chunk::{Arena, Columns, Layout};
/// let mut rows = Arena::new(Layout::new(Toy::COLUMNS, 64)).reserve(4).unwrap();
/// Toy::view(&mut rows).dst[3] = 7;
/// assert_eq!(Toy::DST.0, 2);
/// ```
#[macro_export]
macro_rules! columns {
    ($(#[$meta:meta])* $vis:vis struct $name:ident / $view:ident {
        $($(#[$doc:meta])* pub $field:ident : $ty:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        $vis struct $name;

        #[doc = concat!("The slices of [`", stringify!($name), "`], one element a row.")]
        #[allow(dead_code)] // not every user of a declaration reads each column
        #[derive(Debug)]
        $vis struct $view<'a> {
            /// Verdicts; see [`chunk::Verdict`]($crate::Verdict).
            pub verdict: &'a mut [u32],
            /// Context keys: which module of the next stage a row is for.
            pub context: &'a mut [u32],
            $($(#[$doc])* pub $field: &'a mut [$ty],)*
        }

        $crate::columns!(@ids $name; verdict, context, $($field,)*);

        impl $crate::Columns for $name {
            const COLUMNS: &'static [$crate::ColumnDesc] = &[
                $crate::ColumnDesc { name: "verdict", width: 4, dialect: "uint" },
                $crate::ColumnDesc { name: "context", width: 4, dialect: "uint" },
                $($crate::ColumnDesc {
                    name: stringify!($field),
                    width: size_of::<$ty>(),
                    dialect: <$ty as $crate::Element>::DIALECT,
                },)*
            ];
            type View<'a> = $view<'a>;
            #[inline]
            fn view(rows: &mut $crate::Rows) -> $view<'_> {
                let mut split = rows.split(Self::COLUMNS);
                $view {
                    verdict: split.column::<u32>(),
                    context: split.column::<u32>(),
                    $($field: split.column::<$ty>(),)*
                }
            }
            fn randomise(rows: &mut $crate::Rows, next: &mut dyn FnMut() -> u64) {
                let view = Self::view(rows);
                view.context.iter_mut().for_each(|v| *v = $crate::Element::random(next));
                $(view.$field.iter_mut().for_each(|v| *v = $crate::Element::random(next));)*
            }
        }
    };
    (@ids $name:ident; $($field:ident,)*) => {
        #[allow(non_camel_case_types, dead_code, unreachable_pub)]
        const _: () = {
            enum Place { $($field,)* }
            $crate::__paste! {
                impl $name { $(
                    #[doc = concat!("Place of the column `", stringify!($field), "`.")]
                    pub const [<$field:upper>]: $crate::ColumnId =
                        $crate::ColumnId(Place::$field as u8);
                )* }
            }
        };
    };
}

#[doc(hidden)]
pub use pastey::paste as __paste;

/// The kernel dialect's accessors of a declaration: for each column a macro `COL_NAME(arena)` that
/// is the column's pointer in a job, its offset read from the job's header, and `WORD_NAME`, the word of
/// the header that has the offset: columns that are declared one after the other have words side by side.
pub fn dialect(columns: &[ColumnDesc]) -> String {
    let mut text = String::new();
    for (i, column) in columns.iter().enumerate() {
        let (name, word) =
            (column.name.to_ascii_uppercase(), crate::arena::JobHeader::OFFSETS_WORD + i);
        text += &format!(
            "#define COL_{name}(arena) ((GLOBAL {} *)((GLOBAL uchar *)(arena) + ((GLOBAL const uint *)(arena))[{word}]))\n\
             #define WORD_{name} {word}u\n",
            column.dialect,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Layout};

    crate::columns! {
        /// Every element type once.
        struct Every / EveryView {
            pub a: u8,
            pub b: u16,
            pub c: u32,
            pub d: u64,
            pub e: [u64; 2],
        }
    }

    #[test]
    fn columns_do_not_overlap_and_keep_their_values() {
        let arena = Arena::new(Layout::new(Every::COLUMNS, 300));
        let mut first = arena.reserve(100).unwrap();
        let mut second = arena.reserve(200).unwrap();
        assert!(arena.reserve(1).is_none(), "the arena is full");
        let mut x = 0u64;
        let mut next = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            x
        };
        Every::randomise(&mut first, &mut next);
        Every::view(&mut first).verdict.fill(3);
        let (a, e) = {
            let v = Every::view(&mut first);
            (v.a.to_vec(), v.e.to_vec())
        };
        let v = Every::view(&mut second);
        v.a.fill(1);
        v.b.fill(2);
        v.c.fill(3);
        v.d.fill(4);
        v.e.fill([5, 6]);
        v.verdict.fill(7);
        v.context.fill(8);
        let v = Every::view(&mut first);
        assert_eq!((v.a.to_vec(), v.e.to_vec()), (a.clone(), e.clone()));
        assert!(v.verdict.iter().all(|&x| x == 3));
        assert_eq!((v.b.len(), v.c.len(), v.d.len()), (100, 100, 100));
        let mut third = Arena::new(Layout::new(Every::COLUMNS, 150)).reserve(150).unwrap();
        third.copy_from(&mut first);
        assert_eq!(third.len(), 100);
        assert_eq!(
            (Every::view(&mut third).a.to_vec(), Every::view(&mut third).e.to_vec()),
            (a, e)
        );
        let v = Every::view(&mut second);
        assert_eq!((v.a[199], v.b[0], v.c[199], v.d[0], v.e[199]), (1, 2, 3, 4, [5, 6]));
        assert!(v.context.iter().all(|&x| x == 8));
    }

    #[test]
    fn the_dialect_knows_each_column() {
        let text = dialect(Every::COLUMNS);
        assert_eq!(text.lines().count(), 14);
        assert!(text.contains("#define WORD_VERDICT 5u\n#define COL_CONTEXT("));
        assert!(text.contains("COL_E(arena) ((GLOBAL ulong2_t *)"));
        assert!(ColumnSet::of(&[Every::A, Every::E]).contains(Every::E));
        assert!(!ColumnSet::of(&[Every::A]).contains(Every::VERDICT));
    }

    #[test]
    fn two_declarations_share_rows() {
        crate::columns! { struct More / MoreView { pub f: u8, pub g: [u64; 2], } }
        const COUNT: usize = Every::COLUMNS.len() + 2;
        static BOTH: [ColumnDesc; COUNT] = joined(Every::COLUMNS, More::COLUMNS);
        let declared = [Every::COLUMNS, More::COLUMNS];
        let layout = Layout::of_both(&BOTH, declared, 1).with_capacity(40);
        let mut rows = Arena::new(layout).reserve(40).unwrap();
        let v = Every::view(&mut rows);
        v.verdict.fill(1);
        v.context.fill(2);
        v.a.fill(3);
        v.e.fill([4, 5]);
        let v = More::view(&mut rows);
        assert!(v.verdict.iter().all(|x| *x == 1) && v.context.iter().all(|x| *x == 2));
        v.verdict.fill(6);
        v.f.fill(7);
        v.g.fill([8, 9]);
        let v = Every::view(&mut rows);
        assert!(v.verdict.iter().all(|x| *x == 6) && v.a.iter().all(|x| *x == 3));
        assert!(v.e.iter().all(|x| *x == [4, 5]));
        let id = joined_id(Every::COLUMNS, More::G);
        assert_eq!((BOTH[usize::from(id.0)].name, id.0), ("g", 8));
        let bytes = rows.column_bytes(usize::from(id.0));
        assert_eq!(bytes[..16], [8_u64, 9].map(u64::to_ne_bytes).concat());
    }

    #[test]
    #[should_panic(expected = "this declaration")]
    fn rows_of_another_declaration_are_refused() {
        crate::columns! { struct Other / OtherView { pub z: u64, } }
        let mut rows = Arena::new(Layout::new(Other::COLUMNS, 8)).reserve(8).unwrap();
        Every::view(&mut rows);
    }
}
