// Linear search over the image of `classify::linear`: what is where in it is said there (GSwitch 4.1, Algorithm 1).
//
// Rules are tiled through memory of the group, and each item compares its header with sixteen rules at once: a block
// of the image, in which the same word of sixteen rules stands together. The rules of the ordered blocks have a dense
// *rank*, their place there, so that items which share a row meet by an atomic minimum of 32 bits; the rank leads to
// the match in the same block. The paper packs a priority of 8 bits over an index of 24 instead, and gives each group
// a part of the rules and all headers: its atomics go to device memory, and their contention was what it lost most
// by (Figure 7(c)). Here a group has a part of the headers, which stay with their items, and all rules; it ends with
// the tile in which its last row was matched, as no rule behind is better.
//
// Fresh blocks, which stand in no order, are all read, and compared by their matches.

#define LINEAR_MAGIC 0x6c696e01u
#define LINEAR_TESTS 16u // words before the tests
#define LINEAR_TESTS_MAX 64u
#define LINEAR_LANES 16u
#define LINEAR_MASKED 0u
#define LINEAR_HALVES 1u
#define LINEAR_WIDE 2u
#define LINEAR_TILE 1024u // units of 16 bytes; a block of the most tests has 520

// A table; no blocks where there is none. A unit is four words.
typedef struct {
    GLOBAL const ulong2_t *tests;
    GLOBAL const ulong2_t *blocks;
    uint test_count;
    uint block_units;
    uint words; // of a header
    uint ordered;
    uint all;
} linear_t;

FN linear_t linear_open(const region_t image, uint words_max)
{
    linear_t table;
    table.tests = (GLOBAL const ulong2_t *)(image.words + LINEAR_TESTS);
    table.blocks = (GLOBAL const ulong2_t *)image.words;
    table.test_count = image_word(image, 2UL);
    table.words = image_word(image, 1UL);
    table.ordered = 0u;
    table.all = 0u;
    table.block_units = 0u;
    if (image_word(image, 0UL) != LINEAR_MAGIC || table.test_count - 1u >= LINEAR_TESTS_MAX
        || table.words > words_max)
        return table;
    const uint first = (LINEAR_TESTS + 4u * table.test_count + 15u) / 16u * 16u;
    const uint ordered = image_word(image, 3UL), all = image_word(image, 4UL);
    table.block_units = 8u * (table.test_count + 1u);
    if (!image_has(image, first, (ulong)all * (4u * table.block_units)) || ordered > all)
        return table;
    table.blocks += first / 4u;
    table.ordered = ordered;
    table.all = all;
    return table;
}

// No bit where the test is passed.
FN uint linear_masked(uint x, uint value, uint mask)
{
    return (x & mask) ^ value;
}

FN uint linear_halves(uint x, uint low, uint length)
{
    const uint upper = ((x >> 16) - (low >> 16)) & 0xffffu, lower = (x - low) & 0xffffu;
    return (upper > length >> 16) | (lower > (length & 0xffffu));
}

FN uint linear_wide(uint x, uint low, uint length)
{
    return x - low > length;
}

#define LINEAR_EACH(test)                                                                          \
    for (uint unit = 0u; unit < 4u; unit++) {                                                      \
        const ulong2_t a = columns[unit], b = columns[4u + unit];                                  \
        differ[4u * unit] |= test(x, (uint)a.x, (uint)b.x);                                        \
        differ[4u * unit + 1u] |= test(x, (uint)(a.x >> 32), (uint)(b.x >> 32));                   \
        differ[4u * unit + 2u] |= test(x, (uint)a.y, (uint)b.y);                                   \
        differ[4u * unit + 3u] |= test(x, (uint)(a.y >> 32), (uint)(b.y >> 32));                   \
    }

// Which rules of a block match a header: a bit for each.
FN uint linear_block(const linear_t table, LOCAL_PTR const ulong2_t *block, GLOBAL const uchar *arena,
                     uint columns_word, uint row)
{
    uint differ[LINEAR_LANES];
#pragma unroll
    for (uint lane = 0u; lane < LINEAR_LANES; lane++)
        differ[lane] = 0u;
    for (uint number = 0u; number < table.test_count; number++) {
        const ulong2_t test = LOAD(table.tests + number); // kind, word │ shift, largest value
        const uint kind = (uint)test.x, word = (uint)(test.x >> 32);
        if (word >= table.words)
            return 0u;
        const uint x = head_word(arena, columns_word, row, word) >> ((uint)test.y & 31u) & (uint)(test.y >> 32);
        LOCAL_PTR const ulong2_t *columns = block + 8u * number;
        if (kind == LINEAR_MASKED) {
#pragma unroll
            LINEAR_EACH(linear_masked)
        } else if (kind == LINEAR_HALVES) {
#pragma unroll
            LINEAR_EACH(linear_halves)
        } else {
#pragma unroll
            LINEAR_EACH(linear_wide)
        }
    }
    uint hits = 0u;
#pragma unroll
    for (uint lane = 0u; lane < LINEAR_LANES; lane++)
        hits |= (differ[lane] == 0u ? 1u : 0u) << lane;
    return hits;
}

// The match of a rule of a block; none at an empty place.
FN ulong linear_match(const linear_t table, LOCAL_PTR const ulong2_t *block, uint lane)
{
    LOCAL_PTR const uint *matches = (LOCAL_PTR const uint *)(block + 8u * table.test_count);
    return match_of(matches[lane], matches[LINEAR_LANES + lane]);
}

// Takes the lowest of some bits away, and gives its number.
FN uint linear_next(PRIVATE uint *hits)
{
    const uint lane = POPCOUNT((*hits & (0u - *hits)) - 1u);
    *hits &= *hits - 1u;
    return lane;
}

// Brings blocks from `first` on to the tile, as many as it has room for; how many. Barriers stand around it.
FN uint linear_tile(const linear_t table, LOCAL_PTR ulong2_t *tile, uint first, uint end)
{
    const uint room = LINEAR_TILE / table.block_units;
    const uint count = end - first < room ? end - first : room;
    GLOBAL const ulong2_t *from = table.blocks + (ulong)first * table.block_units;
    for (uint i = ITEM_ID; i < count * table.block_units; i += GROUP_SIZE)
        tile[i] = LOAD(from + i);
    return count;
}

// The best match of the ordered blocks, for that item of a row which found it. Ranks meet in `meeting.priority`,
// which is as it was at the end.
FN ulong linear_ordered(const linear_t table, const share_t share, GLOBAL const uchar *arena,
                        uint columns_word, LOCAL_PTR ulong2_t *tile, const meeting_t meeting)
{
    ulong found = MATCH_NONE;
    uint rank = NO_WORD;
    uint open = share.live;
    uint first = 0u, going = share.rows != 0u && table.ordered != 0u;
    while (going) {
        const uint count = linear_tile(table, tile, first, table.ordered);
        BARRIER();
        for (uint at = share.part; open && rank == NO_WORD && at < count; at += share.parts) {
            LOCAL_PTR const ulong2_t *block = tile + at * table.block_units;
            uint hits = linear_block(table, block, arena, columns_word, share.row);
            while (hits != 0u && rank == NO_WORD) {
                const uint lane = linear_next(&hits);
                found = linear_match(table, block, lane);
                rank = found != MATCH_NONE ? LINEAR_LANES * (first + at) + lane : NO_WORD;
            }
        }
        if (open && rank != NO_WORD)
            ATOMIC_MIN(&meeting.priority[share.place], rank);
        BARRIER();
        first += count;
        if (open && (meeting.priority[share.place] != NO_WORD || first == table.ordered)) {
            open = 0u;
            if (share.part == 0u)
                ATOMIC_ADD(meeting.over, 1u);
        }
        BARRIER();
        going = meeting.over[0] < share.rows;
    }
    found = rank == meeting.priority[share.place] ? found : MATCH_NONE;
    BARRIER();
    meeting.priority[ITEM_ID] = NO_WORD;
    BARRIER();
    return found;
}

// The best match of an item's part of the fresh blocks.
FN ulong linear_fresh(const linear_t table, const share_t share, GLOBAL const uchar *arena,
                      uint columns_word, LOCAL_PTR ulong2_t *tile)
{
    ulong best = MATCH_NONE;
    uint first = table.ordered;
    while (first < table.all) {
        const uint count = linear_tile(table, tile, first, table.all);
        BARRIER();
        for (uint at = share.part; share.live && at < count; at += share.parts) {
            LOCAL_PTR const ulong2_t *block = tile + at * table.block_units;
            uint hits = linear_block(table, block, arena, columns_word, share.row);
            while (hits != 0u)
                best = match_best(best, linear_match(table, block, linear_next(&hits)));
        }
        BARRIER();
        first += count;
    }
    return best;
}

// The best match of a row, for all items that share it. All items of a group come here.
FN ulong linear_search(const region_t image, uint words_max, GLOBAL const uchar *arena, uint columns_word,
                       const share_t share, LOCAL_PTR ulong2_t *tile, const meeting_t meeting)
{
    const linear_t table = linear_open(image, words_max);
    meeting_begin(meeting);
    BARRIER();
    ulong found = linear_ordered(table, share, arena, columns_word, tile, meeting);
    found = match_best(found, linear_fresh(table, share, arena, columns_word, tile));
    meeting_bring(meeting, share, found);
    BARRIER();
    return meeting_end(meeting, share, found);
}
