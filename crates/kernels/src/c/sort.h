// Stable least-significant-digit radix sort of rows by keys of 64 bits, four bits a pass: count, scan, scatter.
// Places follow from sums alone; the counts of a tile are the only atomics, and their order is nothing.
//
// A tile is SORT_TILE rows: each item of a group has SORT_RUN neighbours, which keeps the sort stable
// without help from the warp.
//
// Its memory, in words, R being the rows rounded up to 16:
//     0 rows, the result │ R rows, other │ 2R keys (two words each) │ 4R keys, other │ 6R counts, digit by tile
// job: the digit's lowest bit; SORT_FROM_OTHER where keys and rows stand in the other half.

#define SORT_DIGITS 16u
#define SORT_RUN 8u
#define SORT_TILE (GROUP_ITEMS * SORT_RUN)
#define SORT_FROM_OTHER 0x100u

typedef struct {
    GLOBAL uint *rows;
    GLOBAL uint *other_rows;
    GLOBAL ulong *keys;
    GLOBAL ulong *other_keys;
    GLOBAL uint *counts;
    uint len;
    uint tiles;
} sort_t;

FN sort_t sort_state(GLOBAL const uchar *arena, GLOBAL uchar *state, uint job)
{
    sort_t sort;
    GLOBAL uint *words = (GLOBAL uint *)state;
    sort.len = job_rows(arena);
    sort.tiles = (sort.len + SORT_TILE - 1u) / SORT_TILE;
    const ulong room = ((ulong)sort.len + 15u) / 16u * 16u;
    const uint other = job & SORT_FROM_OTHER ? 1u : 0u;
    sort.rows = words + (other ? room : 0u);
    sort.other_rows = words + (other ? 0u : room);
    sort.keys = (GLOBAL ulong *)(words + (other ? 4u * room : 2u * room));
    sort.other_keys = (GLOBAL ulong *)(words + (other ? 2u * room : 4u * room));
    sort.counts = words + 6u * room;
    return sort;
}

FN uint sort_digit(ulong key, uint job)
{
    return (uint)(key >> (job & 0xffu)) & (SORT_DIGITS - 1u);
}

// A row and its key, as the row is numbered in the launch.
FN void sort_put(sort_t sort, uint number, uint row, ulong key)
{
    sort.rows[number] = row;
    sort.keys[number] = key;
}

// How often each digit is in each tile. `counts` has SORT_DIGITS words.
FN void sort_count_tile(sort_t sort, uint job, LOCAL_PTR uint *counts)
{
    for (uint digit = ITEM_ID; digit < SORT_DIGITS; digit += GROUP_ITEMS)
        counts[digit] = 0u;
    BARRIER();
    for (uint i = 0u; i < SORT_RUN; i++) { // in any order: neighbouring items read neighbours
        const uint at = GROUP_ID * SORT_TILE + i * GROUP_ITEMS + ITEM_ID;
        if (at < sort.len)
            ATOMIC_ADD(&counts[sort_digit(sort.keys[at], job)], 1u);
    }
    BARRIER();
    if (GROUP_ID < sort.tiles)
        for (uint digit = ITEM_ID; digit < SORT_DIGITS; digit += GROUP_ITEMS)
            sort.counts[digit * sort.tiles + GROUP_ID] = counts[digit];
}

// `places` has SORT_DIGITS * GROUP_ITEMS words, digit by item; `sums` has GROUP_ITEMS.
FN void sort_scatter_tile(sort_t sort, uint job, LOCAL_PTR uint *places, LOCAL_PTR uint *sums)
{
    const uint start = GROUP_ID * SORT_TILE + ITEM_ID * SORT_RUN;
    for (uint digit = 0u; digit < SORT_DIGITS; digit++)
        places[digit * GROUP_ITEMS + ITEM_ID] = 0u;
    for (uint at = start; at < start + SORT_RUN && at < sort.len; at++)
        places[sort_digit(sort.keys[at], job) * GROUP_ITEMS + ITEM_ID] += 1u;
    BARRIER();
    // Sums over the whole array, of which each item takes SORT_DIGITS in a row.
    uint sum = 0u;
    for (uint i = 0u; i < SORT_DIGITS; i++)
        sum += places[ITEM_ID * SORT_DIGITS + i];
    uint before = group_sum_before(sums, sum);
    for (uint i = 0u; i < SORT_DIGITS; i++) {
        const uint count = places[ITEM_ID * SORT_DIGITS + i];
        places[ITEM_ID * SORT_DIGITS + i] = before;
        before += count;
    }
    BARRIER();
    // Where the digit starts in the whole, less where it starts in the tile.
    if (ITEM_ID == 0u)
        for (uint digit = 0u; digit < SORT_DIGITS; digit++)
            sums[digit] = GROUP_ID < sort.tiles
                ? sort.counts[digit * sort.tiles + GROUP_ID] - places[digit * GROUP_ITEMS]
                : 0u;
    BARRIER();
    for (uint at = start; at < start + SORT_RUN && at < sort.len; at++) {
        const ulong key = sort.keys[at];
        const uint digit = sort_digit(key, job);
        const uint place = sums[digit] + places[digit * GROUP_ITEMS + ITEM_ID]++;
        sort.other_keys[place] = key;
        sort.other_rows[place] = sort.rows[at];
    }
}
