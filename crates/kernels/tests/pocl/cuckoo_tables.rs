//! Tables of random keys, and images with them.

use kernels::image::ImageLayout;
use lookup::Blob;
use lookup::cuckoo::{CuckooBuilder, Limits};

use crate::random::Random;

/// The table in a region, those before it empty.
pub(crate) fn image(region: usize, blob: &Blob) -> Vec<u32> {
    let mut lengths = vec![(0, 0); region];
    lengths.push((blob.words().len(), 0));
    let mut regions: Vec<&[u32]> = vec![&[]; region];
    regions.push(blob.words());
    ImageLayout::new(&lengths).write(1, &regions)
}

/// Tables of random entries, some of them so full that the stash is in use.
pub(crate) fn tables(random: &mut Random) -> (Blob, Vec<u64>, Blob, Vec<[u64; 2]>) {
    let n = [0, 1, 50, 900, 5000][random.below(5)];
    let limits = Limits { entries: 6000, reserve: [1, n][random.below(2)] };
    // Half of the keys are small and crowd together, as addresses of one vendor do.
    let keys8: Vec<u64> =
        (0..n).map(|i| if i % 2 == 0 { i as u64 } else { random.next() }).collect();
    let keys16: Vec<[u64; 2]> = keys8.iter().map(|key| [key % 77, *key]).collect();
    let (mut builder8, mut blob8) = CuckooBuilder::with_seed(limits, random.next()).unwrap();
    let (mut builder16, mut blob16) = CuckooBuilder::with_seed(limits, random.next()).unwrap();
    let mut patches = [Vec::new(), Vec::new()];
    // Every other table is left as soon as its stash has entries; the keys after that are misses.
    let crowded = random.below(2) == 0;
    for (value, key) in keys8.iter().enumerate() {
        if !(crowded && builder8.stashed() >= 5) {
            builder8.insert(*key, value as u64 * 3, &mut patches[0]).unwrap();
        }
        if !(crowded && builder16.stashed() >= 4) {
            builder16.insert([key % 77, *key], value as u32 * 5, &mut patches[1]).unwrap();
        }
    }
    // Nobody calls `step`, so what waits for a larger table waits in the stash.
    blob8.apply(&patches[0]);
    blob16.apply(&patches[1]);
    (blob8, keys8, blob16, keys16)
}
