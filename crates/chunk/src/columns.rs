//! Columns: one value a packet, apart from the packet's bytes, so that a whole batch can be worked
//! on at once and a device can take it as it is.
//!
//! Columns are declared with [`columns!`](crate::columns!). From declarations come the Rust slices, the byte layout
//! ([`Layout`](crate::Layout)), the kernel dialect's accessors ([`dialect`]) and the generator of random rows for
//! property tests.
//!
//! ```text
//!  one stage     verdict context │ flags  dst              a column is known by its name: two
//!  another one   verdict context │ dst    rule             declarations that name `dst` share it
//!  joined        verdict context │ flags  dst  rule
//! ```
//!
//! Each stage declares what it needs, and the declarations of all stages are joined at start
//! ([`Layout::join`](crate::Layout::join)). Two columns come first in every declaration: `verdict` and `context`. The
//! engine reads the first and clears both for each chunk.

use crate::arena::{JobHeader, Rows};

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
    // For stages on the CPU: a kernel finds eight words for each row.
    [u64; 8] = "ulong", |next| std::array::from_fn(|_| next());
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

impl std::fmt::Display for ColumnDesc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.dialect, self.width)
    }
}

/// The columns of one declaration, in their order.
pub type Declaration = &'static [ColumnDesc];

/// Columns that come first in every layout: `verdict` and `context`.
pub(crate) const COMMON: Declaration = {
    static COMMON: [ColumnDesc; 2] = [
        ColumnDesc { name: "verdict", width: 4, dialect: "uint" },
        ColumnDesc { name: "context", width: 4, dialect: "uint" },
    ];
    &COMMON
};

/// A column, known by its name: declarations that name the same one mean the same one.
#[derive(Clone, Copy)]
pub struct ColumnId(&'static ColumnDesc);

impl ColumnId {
    /// What becomes of a packet; see [`Verdict`](crate::Verdict). The first column of every layout.
    pub const VERDICT: ColumnId = ColumnId::of(COMMON, 0);
    /// The context key, zero at the start of a chunk. The second column of every layout.
    pub const CONTEXT: ColumnId = ColumnId::of(COMMON, 1);

    /// The column at a place of a declaration.
    ///
    /// # Panics
    /// If there is no such place.
    pub const fn of(columns: Declaration, place: usize) -> Self {
        ColumnId(&columns[place])
    }

    /// Name, width and type.
    pub const fn desc(self) -> &'static ColumnDesc {
        self.0
    }

    /// Its place among `columns`; `None` if it is not there, or is of another type there.
    pub fn place_in(self, columns: &[ColumnDesc]) -> Option<usize> {
        columns.iter().position(|column| column == self.0)
    }
}

impl std::ops::Deref for ColumnId {
    type Target = ColumnDesc;

    fn deref(&self) -> &ColumnDesc {
        self.0
    }
}

impl PartialEq for ColumnId {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ColumnId {}

impl std::fmt::Debug for ColumnId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ColumnId({})", self.name)
    }
}

/// A set of columns: what a stage reads, or what it writes. Made and asked at the start, never for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ColumnSet(
    /// In order of their names, each once.
    Vec<ColumnId>,
);

impl ColumnSet {
    /// No column.
    pub const EMPTY: ColumnSet = ColumnSet(Vec::new());

    /// The set of the columns in `ids`.
    pub fn of(ids: &[ColumnId]) -> Self {
        let mut columns = ids.to_vec();
        columns.sort_unstable_by_key(|id| id.name);
        columns.dedup();
        ColumnSet(columns)
    }

    /// Whether a column of this name is in it.
    pub fn contains(&self, column: &ColumnDesc) -> bool {
        self.0.binary_search_by_key(&column.name, |id| id.name).is_ok()
    }

    /// Columns in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(&[&self.0[..], &other.0].concat())
    }

    /// Columns in this and not in the other.
    #[must_use]
    pub fn without(mut self, other: &Self) -> Self {
        self.0.retain(|id| !other.contains(id));
        self
    }

    /// Columns in both.
    #[must_use]
    pub fn intersection(mut self, other: &Self) -> Self {
        self.0.retain(|id| other.contains(id));
        self
    }

    /// Its columns, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.0.iter().copied()
    }
}

/// A declaration of columns, made by [`columns!`](crate::columns!).
pub trait Columns {
    /// The columns in order; `verdict` is 0 and `context` 1.
    const COLUMNS: Declaration;
    /// The slices of a declaration over some rows.
    type View<'a>;
    /// Borrows every column of `rows`.
    ///
    /// # Panics
    /// If this declaration is not one of those by which `rows` were laid out.
    fn view(rows: &mut Rows) -> Self::View<'_>;
    /// Fills every column but `verdict` with random values.
    fn randomise(rows: &mut Rows, next: &mut dyn FnMut() -> u64);
}

/// Declares columns: see the [module](crate::Columns). A pipeline may have any number of declarations.
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
/// assert_eq!(Toy::DST.name, "dst");
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
            const COLUMNS: $crate::Declaration = {
                // A static has one address in the whole program, by which `view` finds its columns.
                static DECLARED: &[$crate::ColumnDesc] = &[
                    *$crate::ColumnId::VERDICT.desc(),
                    *$crate::ColumnId::CONTEXT.desc(),
                    $($crate::ColumnDesc {
                        name: stringify!($field),
                        width: size_of::<$ty>(),
                        dialect: <$ty as $crate::Element>::DIALECT,
                    },)*
                ];
                DECLARED
            };
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
                    #[doc = concat!("The column `", stringify!($field), "`.")]
                    pub const [<$field:upper>]: $crate::ColumnId = $crate::ColumnId::of(
                        <$name as $crate::Columns>::COLUMNS,
                        Place::$field as usize,
                    );
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
    dialect_of(columns, |_| true)
}

/// The same for those whose name in capitals is `used`; the others keep their places.
pub fn dialect_of(columns: &[ColumnDesc], used: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for (i, column) in columns.iter().enumerate() {
        let (name, word) = (column.name.to_ascii_uppercase(), JobHeader::OFFSETS_WORD + i);
        if !used(&name) {
            continue;
        }
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
            pub h: [u64; 8],
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
        assert_eq!(text.lines().count(), 16);
        assert!(text.contains("#define WORD_VERDICT 8u\n#define COL_CONTEXT("));
        assert!(text.contains("COL_E(arena) ((GLOBAL ulong2_t *)"));
        assert!(ColumnSet::of(&[Every::A, Every::E]).contains(&Every::E));
        assert!(!ColumnSet::of(&[Every::A]).contains(&Every::VERDICT));
    }

    #[test]
    fn sets_know_columns_by_their_names() {
        crate::columns! { struct Same / SameView { pub e: [u64; 2], pub f: u8, } }
        let (one, other) =
            (ColumnSet::of(&[Every::E, Every::A, Every::E]), ColumnSet::of(&[Same::E, Same::F]));
        let names = |set: ColumnSet| set.iter().map(|id| id.name).collect::<Vec<_>>();
        assert_eq!(names(one.union(&other)), ["a", "e", "f"]);
        assert_eq!(names(one.clone().without(&other)), ["a"]);
        assert_eq!(one.clone().intersection(&other), ColumnSet::of(&[Every::E]));
        assert!(one.contains(&Same::E) && !ColumnSet::EMPTY.contains(&Same::E));
        assert_eq!(Same::VERDICT, ColumnId::VERDICT);
        assert_eq!(Same::E.place_in(Every::COLUMNS), Some(6));
        assert_eq!(Same::F.place_in(Every::COLUMNS), None);
    }

    #[test]
    fn two_declarations_share_rows() {
        crate::columns! { struct More / MoreView { pub f: u8, pub e: [u64; 2], pub g: [u64; 2], } }
        let layout = Layout::join(&[Every::COLUMNS, More::COLUMNS], 1).unwrap().with_capacity(40);
        let mut rows = Arena::new(layout).reserve(40).unwrap();
        let v = Every::view(&mut rows);
        v.verdict.fill(1);
        v.context.fill(2);
        v.a.fill(3);
        v.e.fill([4, 5]);
        let v = More::view(&mut rows);
        assert!(v.verdict.iter().all(|x| *x == 1) && v.context.iter().all(|x| *x == 2));
        assert!(v.e.iter().all(|x| *x == [4, 5]));
        v.e.fill([5, 6]);
        v.verdict.fill(6);
        v.f.fill(7);
        v.g.fill([8, 9]);
        let v = Every::view(&mut rows);
        assert!(v.verdict.iter().all(|x| *x == 6) && v.a.iter().all(|x| *x == 3));
        assert!(v.e.iter().all(|x| *x == [5, 6]));
        let place = rows.layout().column(More::G);
        assert_eq!((rows.layout().columns()[place].name, place), ("g", 9));
        let bytes = rows.column_bytes(place);
        assert_eq!(bytes[..16], [8_u64, 9].map(u64::to_ne_bytes).concat());
        let context = rows.layout().column(ColumnId::CONTEXT);
        rows.clear(&[0, context]);
        assert!(Every::view(&mut rows).context.iter().all(|x| *x == 0));
        assert!(More::view(&mut rows).f.iter().all(|x| *x == 7));
    }

    #[test]
    #[should_panic(expected = "this declaration")]
    fn rows_of_another_declaration_are_refused() {
        crate::columns! { struct Other / OtherView { pub z: u64, } }
        let mut rows = Arena::new(Layout::new(Other::COLUMNS, 8)).reserve(8).unwrap();
        Every::view(&mut rows);
    }
}
