// Linear search over the image of `classify::linear`: what is where in it is said there (GSwitch 4.1, Algorithm 1).
//
// Rules are tiled through memory of the group, and each item compares its header with half a block of the
// image at once: eight of the sixteen rules whose words stand together. The rules of the ordered blocks have a dense
// *rank*, their place there, so that items which share a row meet by an atomic minimum of 32 bits. The paper packs a
// priority of 8 bits over an index of 24 instead, and gives each group a part of the rules and all headers: its
// atomics go to device memory, and their contention was what it lost most by (Figure 7(c)). Here a group has a part of
// the headers, which stay with their items, and all rules; it passes the rest over when its last row was matched, as no
// rule behind is better.
//
// Fresh blocks, which stand in no order, are all read, and compared by their matches.

#define LINEAR_MAGIC 0x6c696e01u
#define LINEAR_TESTS 16u // words before the tests
#define LINEAR_TESTS_MAX 64u
#define LINEAR_LANES 16u   // rules of a block
#define LINEAR_TOGETHER 8u // of them, those that an item compares at once
#define LINEAR_MASKED 0u
#define LINEAR_HALVES 1u
#define LINEAR_WIDE 2u
#define LINEAR_TILE 1024u // units of 16 bytes; a block of the most tests has 520

// A table; no blocks where there is none. A unit is four words.
typedef struct {
    GLOBAL const ulong2_t *tests;
    GLOBAL const ulong2_t *blocks;
    uint test_count;
    uint ordered;
    uint all;
} linear_t;

FN uint linear_block_units(const linear_t table)
{
    return 8u * (table.test_count + 1u);
}

FN linear_t linear_open(const region_t image, uint words_max)
{
    linear_t table;
    table.tests = (GLOBAL const ulong2_t *)(image.words + LINEAR_TESTS);
    table.blocks = (GLOBAL const ulong2_t *)image.words;
    table.test_count = image_word(image, 2UL);
    table.ordered = 0u;
    table.all = 0u;
    const uint words = image_word(image, 1UL);
    if (image_word(image, 0UL) != LINEAR_MAGIC || table.test_count - 1u >= LINEAR_TESTS_MAX
        || words > words_max)
        return table;
    const uint first = (LINEAR_TESTS + 4u * table.test_count + 15u) / 16u * 16u;
    const uint ordered = image_word(image, 3UL), all = image_word(image, 4UL);
    if (!image_has(image, first, (ulong)all * (4u * linear_block_units(table))) || ordered > all)
        return table;
    for (uint number = 0u; number < table.test_count; number++)
        if (LOAD(image.words + LINEAR_TESTS + 4u * number + 1u) >= words)
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
    for (uint unit = 0u; unit < LINEAR_TOGETHER / 4u; unit++) {                                    \
        const ulong2_t a = columns[unit], b = columns[LINEAR_LANES / 4u + unit];                   \
        differ[4u * unit] |= test(x, (uint)a.x, (uint)b.x);                                        \
        differ[4u * unit + 1u] |= test(x, (uint)(a.x >> 32), (uint)(b.x >> 32));                   \
        differ[4u * unit + 2u] |= test(x, (uint)a.y, (uint)b.y);                                   \
        differ[4u * unit + 3u] |= test(x, (uint)(a.y >> 32), (uint)(b.y >> 32));                   \
    }

// Which rules of a part of a block match a header: a bit for each of eight. All sixteen at once would take more
// registers than leave a multiprocessor full.
FN uint linear_hits(const linear_t table, LOCAL_PTR const ulong2_t *part, GLOBAL const uchar *arena,
                    uint columns_word, uint row)
{
    uint differ[LINEAR_TOGETHER];
#pragma unroll
    for (uint lane = 0u; lane < LINEAR_TOGETHER; lane++)
        differ[lane] = 0u;
    for (uint number = 0u; number < table.test_count; number++) {
        const ulong2_t test = LOAD(table.tests + number); // kind, word │ shift, largest value
        const uint kind = (uint)test.x, word = (uint)(test.x >> 32);
        const uint x = head_word(arena, columns_word, row, word) >> ((uint)test.y & 31u) & (uint)(test.y >> 32);
        LOCAL_PTR const ulong2_t *columns = part + 8u * number;
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
    for (uint lane = 0u; lane < LINEAR_TOGETHER; lane++)
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
    const uint room = LINEAR_TILE / linear_block_units(table);
    const uint count = end - first < room ? end - first : room;
    GLOBAL const ulong2_t *from = table.blocks + (ulong)first * linear_block_units(table);
    for (uint i = ITEM_ID; i < count * linear_block_units(table); i += GROUP_SIZE)
        tile[i] = LOAD(from + i);
    return count;
}

// The best match of a row, for all items that share it. All items of a group come here.
//
// First come the ordered blocks, of which an item looks at its part until it has a match; ranks meet in
// `meeting.priority`, and when all rows have one the rest is passed over. Then come the fresh blocks.
FN ulong linear_search(const region_t image, uint words_max, GLOBAL const uchar *arena, uint columns_word,
                       const share_t share, LOCAL_PTR ulong2_t *tile, const meeting_t meeting)
{
    const linear_t table = linear_open(image, words_max);
    meeting_begin(meeting);
    BARRIER();
    ulong best = MATCH_NONE;
    uint open = share.live; // the row has no rank yet
    uint first = 0u, going = share.rows != 0u && table.all != 0u;
    while (going) {
        const uint in_order = first < table.ordered;
        const uint count = linear_tile(table, tile, first, in_order ? table.ordered : table.all);
        BARRIER();
        uint is_wanted = in_order ? open : share.live;
        for (uint at = share.part; is_wanted && at < count; at += share.parts) {
            LOCAL_PTR const ulong2_t *block = tile + at * linear_block_units(table);
            uint hits = 0u;
#pragma unroll 1
            for (uint lane = 0u; lane < LINEAR_LANES; lane += LINEAR_TOGETHER)
                hits |= linear_hits(table, block + lane / 4u, arena, columns_word, share.row) << lane;
            while (hits != 0u) {
                const uint lane = linear_next(&hits);
                const ulong match = linear_match(table, block, lane);
                best = match_best(best, match);
                if (in_order && is_wanted && match != MATCH_NONE) {
                    ATOMIC_MIN(&meeting.priority[share.place], LINEAR_LANES * (first + at) + lane);
                    is_wanted = 0u;
                }
            }
        }
        BARRIER();
        first += count;
        if (open && (meeting.priority[share.place] != NO_WORD || first == table.ordered)) {
            open = 0u;
            if (share.part == 0u)
                ATOMIC_ADD(meeting.over, 1u);
        }
        BARRIER();
        if (in_order && meeting.over[0] == share.rows)
            first = table.ordered;
        going = first < table.all;
    }
    meeting.priority[ITEM_ID] = NO_WORD;
    BARRIER();
    meeting_bring(meeting, share, best);
    BARRIER();
    return meeting_end(meeting, share, best);
}
