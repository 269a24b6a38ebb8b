//! Linear search: vectors of every kind.

use classify::Match;
use classify::linear::{Linear, LinearBuilder, Vectors};
use lookup::Blob;

use crate::suite::{Structure, Visit};

impl Structure for LinearBuilder {
    const RULES: usize = 150;
    const MANY: (usize, usize) = (700, 400);

    fn forms(image: &Blob, visit: Visit<'_>) {
        let linear = Linear::new(image).unwrap();
        for vectors in [Vectors::Portable, Vectors::Avx2, Vectors::Avx512] {
            if vectors.is_there() {
                visit(&format!("{vectors:?}"), &|headers, out: &mut [Match]| {
                    linear.classify_with(vectors, headers, out);
                });
            }
        }
    }
}
