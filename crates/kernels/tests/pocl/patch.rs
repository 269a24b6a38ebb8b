//! `patch` against the same changes in host memory; and a launch that does nothing.

use chunk::Columns;
use kernels::image::{ImageLayout, PIECE_WORDS, Patches};
use kernels::{Launch, LpmColumns, Spec, files};

use crate::bed::{Bed, GROUP_ITEMS, Memories};
use crate::random::Random;

fn spec(items: u32) -> Spec {
    Spec::new("patch", &[&files::PATCH, &files::EMPTY], LpmColumns::COLUMNS).with_group_items(items)
}

fn launch(groups: usize, items: u32) -> Launch {
    Launch { kernel: "patch", groups: groups.max(1) as u32, items, job: 0 }
}

#[test]
fn changes_of_an_image() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(11);
    let layout = ImageLayout::new(&[(100_000, 0), (30, 5000)]);
    for round in 0..12 {
        let items = GROUP_ITEMS[round % GROUP_ITEMS.len()];
        let mut image = layout.write(1, &[&vec![7; 100_000], &[1; 30]]);
        let memory = bed.memory_of_words(&image);
        let mut patches = Patches::new();
        for _ in 0..random.below(30) {
            let len = [1, 2, 255, 256, 257, 700, 65_536][random.below(7)];
            let at = layout.region(0).offset_words + random.below(100_000 - len);
            if random.below(2) == 0 {
                patches.fill(at, len, random.next() as u32);
            } else {
                let words: Vec<u32> = (0..len).map(|_| random.next() as u32).collect();
                patches.write(at, &words);
            }
        }
        patches.set_len(1, 4000);
        patches.set_version(round as u64 + 2);
        let mut list = Vec::new();
        patches.list(layout.words(), &mut list);
        patches.apply(&mut image);
        assert_eq!(image[..4], [kernels::image::MAGIC, 2, round as u32 + 2, 0]);
        let arena = bed.memory_of_words(&list);
        let memories = Memories { arena, tables: memory, ..bed.memories() };
        // A group a record, and fewer groups than records.
        let groups = if round % 3 == 0 { 3 } else { patches.records() };
        bed.run(&spec(items), memories, &[launch(groups, items)]);
        assert!(bed.read_words(memory, layout.words()) == image, "round {round}");
        bed.free(memory);
        bed.free(arena);
    }
}

/// A list that reaches beyond the image does nothing there.
#[test]
pub(crate) fn changes_beyond_the_image() {
    let Some(mut bed) = Bed::open() else { return };
    let image = vec![3u32; 512];
    let memory = bed.memory_of_words(&image);
    let list = [3, 256, 0, 0, 0, 200, 57, 9, 0, u32::MAX, 2, 9, 0, 255, 1, 8];
    assert!(list[6] as usize <= PIECE_WORDS);
    let arena = bed.memory_of_words(&list);
    let memories = Memories { arena, tables: memory, ..bed.memories() };
    bed.run(&spec(64), memories, &[launch(3, 64)]);
    let mut expected = image;
    expected[255] = 8;
    assert_eq!(bed.read_words(memory, 512), expected);
}

#[test]
fn nothing() {
    let Some(mut bed) = Bed::open() else { return };
    let memories = bed.memories();
    bed.run(&spec(64), memories, &[Launch { kernel: "empty", groups: 3, items: 64, job: 0 }]);
}
