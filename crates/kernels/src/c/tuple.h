// Tuple and Bloom search over the image of `classify::tuple`: what is where in it is said there (GSwitch 4.2 and 4.3,
// Algorithms 4 and 5).
//
// The paper gives each group one class, whose whole table it copies to memory of the group (hence at most 256 rules a
// class), and all headers. Here a group has a part of the headers and goes through all classes, in the order of
// their best rules: so an item that has found something better than all classes behind is done, headers are read once,
// and no atomics go to device memory. What a group copies is what nearly every header reads at random: of a class
// its filter, or where there is none its *slots*, a word each. Rules stay in device memory, where a header reads the one
// whose tag it has. So the image needs no other form on a device, and a class may have more than 256 rules:
//
//     words of filter or slots       where they are read
//     up to TUPLE_NEAR               in device memory, from the nearest cache: a line or less
//     up to TUPLE_STAGED             in memory of the group: about 850 rules by their slots, several classes at once
//     more                           in device memory; a header reads one word of the filter, or three slots
//
// Splitting a larger class into tables of 256 rules, as the paper does, would make a header read three slots in
// each of them.

#define TUPLE_MAGIC 0x74757001u
#define TUPLE_FUNCTIONS 16u  // a and b of three slots, then of four filters
#define TUPLE_PARAMETERS 32u // of the hash, two words each
#define TUPLE_SUBTABLES 3u
#define TUPLE_FILTERS_MAX 4u

#define TUPLE_TILE 4096u // words
#define TUPLE_STAGED 1024u
#define TUPLE_NEAR 32u
#define TUPLE_TOGETHER 128u // classes of a tile at most

// A tuple space; no classes where there is none.
typedef struct {
    region_t image;
    GLOBAL const uint *records;
    GLOBAL const uint *bounds;
    uint classes;
    uint murmur3;
    uint filters; // functions of a filter
    uint a[TUPLE_SUBTABLES + TUPLE_FILTERS_MAX];
    uint b[TUPLE_SUBTABLES + TUPLE_FILTERS_MAX];
} tuple_t;

// What a record says behind the mask.
typedef struct {
    uint slots;
    uint depth;
    uint tag_mask;
    uint entries;
    uint filter;
    uint shift;
} record_t;

FN uint tuple_record_words(uint width)
{
    return (width + 11u) / 4u * 4u;
}

FN uint tuple_entry_words(uint width)
{
    return (width + 5u) / 4u * 4u;
}

FN tuple_t tuple_open(const region_t image, const uint width)
{
    tuple_t space;
    space.image = image;
    space.classes = 0u;
    space.murmur3 = image_word(image, 2UL);
    space.filters = image_word(image, 6UL);
    space.records = image.words;
    space.bounds = image.words;
#pragma unroll
    for (uint i = 0u; i < TUPLE_SUBTABLES + TUPLE_FILTERS_MAX; i++) {
        space.a[i] = image_word(image, TUPLE_FUNCTIONS + 2u * i);
        space.b[i] = image_word(image, TUPLE_FUNCTIONS + 2u * i + 1u);
    }
    const uint classes = image_word(image, 3UL);
    const uint records = image_word(image, 4UL), bounds = image_word(image, 5UL);
    if (image_word(image, 0UL) == TUPLE_MAGIC && image_word(image, 1UL) == width
        && image_has(image, TUPLE_PARAMETERS, 2u * (width + 1u))
        && image_has(image, records, (ulong)classes * tuple_record_words(width))
        && image_has(image, bounds, classes) && records % 4u == 0u) {
        space.records = image.words + records;
        space.bounds = image.words + bounds;
        space.classes = classes;
    }
    return space;
}

// Four words at once, which stand at a multiple of 16 bytes: a class's mask and record, of headers of four words.
FN ulong2_t tuple_quad(GLOBAL const uint *words)
{
    return LOAD((GLOBAL const ulong2_t *)words);
}

FN record_t tuple_record(const tuple_t space, const uint width, uint number)
{
    GLOBAL const uint *words = space.records + (ulong)number * tuple_record_words(width) + width;
    record_t record;
    if (width == 4u) {
        const ulong2_t first = tuple_quad(words), second = tuple_quad(words + 4);
        record.slots = (uint)first.x;
        record.depth = (uint)(first.x >> 32);
        record.tag_mask = (uint)first.y;
        record.entries = (uint)(first.y >> 32);
        record.filter = (uint)second.x;
        record.shift = (uint)(second.x >> 32) & 31u;
        return record;
    }
    record.slots = LOAD(words);
    record.depth = LOAD(words + 1);
    record.tag_mask = LOAD(words + 2);
    record.entries = LOAD(words + 3);
    record.filter = LOAD(words + 4);
    record.shift = LOAD(words + 5) & 31u;
    return record;
}

// What a header reads of a class first: the words of its filter, or of its slots.
typedef struct {
    uint first;
    uint count;
    uint is_whole;  // it is within the image
    uint is_staged; // the group copies it
} front_t;

FN front_t tuple_front(const tuple_t space, const record_t record)
{
    front_t front;
    front.first = space.filters ? record.filter : record.slots;
    const uint filter = record.shift < 27u ? 1u << (27u - record.shift) : 1u;
    const ulong slots = (ulong)TUPLE_SUBTABLES * record.depth;
    const ulong count = space.filters ? filter : slots;
    front.is_whole = count != 0UL && image_has(space.image, front.first, count)
        && image_has(space.image, record.slots, slots) && record.depth != 0u;
    front.count = front.is_whole ? (uint)count : 0u;
    front.is_staged = front.count > TUPLE_NEAR && front.count <= TUPLE_STAGED;
    return front;
}

// Brings the fronts of classes from `first` on to the tile; the class behind the last. Barriers stand around it.
FN uint tuple_tile(const tuple_t space, const uint width, uint first, LOCAL_PTR uint *tile)
{
    uint used = 0u, number = first, more = 1u;
    while (more) {
        const front_t front = tuple_front(space, tuple_record(space, width, number));
        const uint count = front.is_staged ? front.count : 0u;
        more = used + count <= TUPLE_TILE;
        if (more) {
            for (uint i = ITEM_ID; i < count; i += GROUP_SIZE)
                tile[used + i] = LOAD(space.image.words + front.first + i);
            used += count;
            number++;
            more = number < space.classes && number - first < TUPLE_TOGETHER;
        }
    }
    return number;
}

// The hash of a header under a mask. A class takes a few dozen instructions, so loads count: of a header of four
// words, what all items read alike comes in loads of 16 bytes.
FN uint tuple_hash(const tuple_t space, const uint width, PRIVATE const uint *head,
                   GLOBAL const uint *mask, LOCAL_PTR const ulong2_t *parameters)
{
    LOCAL_PTR const ulong *parameter = (LOCAL_PTR const ulong *)parameters;
    if (space.murmur3) {
        uint h = (uint)parameter[0];
#pragma unroll
        for (uint i = 0u; i < width; i++)
            h = murmur3_add(h, head[i] & LOAD(mask + i));
        return murmur3_end(h, 4u * width);
    }
    ulong sum = parameter[width];
    if (width == 4u) {
        const ulong2_t quad = tuple_quad(mask), first = parameters[0], second = parameters[1];
        sum = multiply_shift_add(sum, first.x, head[0] & (uint)quad.x);
        sum = multiply_shift_add(sum, first.y, head[1] & (uint)(quad.x >> 32));
        sum = multiply_shift_add(sum, second.x, head[2] & (uint)quad.y);
        sum = multiply_shift_add(sum, second.y, head[3] & (uint)(quad.y >> 32));
    } else {
#pragma unroll
        for (uint i = 0u; i < width; i++)
            sum = multiply_shift_add(sum, parameter[i], head[i] & LOAD(mask + i));
    }
    return multiply_shift_end(sum);
}

// Where a header's hash is in a filter: the word, and the bits there that must be set.
FN uint tuple_filter_bits(const tuple_t space, uint x, uint shift, PRIVATE uint *bits)
{
    const uint first = (space.a[TUPLE_SUBTABLES] * x + space.b[TUPLE_SUBTABLES]) >> shift;
    *bits = 1u << (first & 31u);
#pragma unroll
    for (uint i = 1u; i < TUPLE_FILTERS_MAX; i++)
        if (i < space.filters)
            *bits |= 1u << ((space.a[TUPLE_SUBTABLES + i] * x + space.b[TUPLE_SUBTABLES + i]) >> 27);
    return first >> 5;
}

// The match of an entry, if the header is its.
FN ulong tuple_entry(const tuple_t space, const uint width, PRIVATE const uint *head,
                     GLOBAL const uint *mask, const record_t record, uint number)
{
    const ulong first = record.entries + (ulong)number * tuple_entry_words(width);
    if (!image_has(space.image, first, width + 2u))
        return MATCH_NONE;
    GLOBAL const uint *entry = space.image.words + first;
    uint differ = 0u;
#pragma unroll
    for (uint i = 0u; i < width; i++)
        differ |= (head[i] & LOAD(mask + i)) ^ LOAD(entry + i);
    return differ ? MATCH_NONE : match_of(LOAD(entry + width), LOAD(entry + width + 1u));
}

// What a class holds for a header. `tile` has the class's front, where it is staged.
FN ulong tuple_ask(const tuple_t space, const uint width, PRIVATE const uint *head, uint number,
                   LOCAL_PTR const ulong2_t *parameters, LOCAL_PTR const uint *tile, const front_t front,
                   const record_t record)
{
    GLOBAL const uint *mask = space.records + (ulong)number * tuple_record_words(width);
    GLOBAL const uint *far = space.image.words;
    const uint x = tuple_hash(space, width, head, mask, parameters);
    const uint has_filter = space.filters != 0u;
    if (has_filter) {
        uint bits;
        uint word = tuple_filter_bits(space, x, record.shift, &bits);
        word = word < front.count ? word : 0u;
        if (bits & ~(front.is_staged ? tile[word] : LOAD(far + record.filter + word)))
            return MATCH_NONE;
    }
    const uint is_near = front.is_staged && !has_filter;
    ulong best = MATCH_NONE;
#pragma unroll
    for (uint table = 0u; table < TUPLE_SUBTABLES; table++) {
        const uint at = table * record.depth
            + hash_to_range(space.a[table] * x + space.b[table], record.depth);
        const uint slot = is_near ? tile[at] : LOAD(far + record.slots + at);
        if (((slot ^ x) & record.tag_mask) == 0u)
            best = match_best(
                best, tuple_entry(space, width, head, mask, record, slot & ~record.tag_mask));
    }
    return best;
}

// The best match of a row, for all items that share it, of headers of `width` words. All items of a group come here.
FN ulong tuple_search(const region_t image, const uint width, PRIVATE const uint *head, const share_t share,
                      LOCAL_PTR uint *tile, LOCAL_PTR ulong2_t *parameters, const meeting_t meeting)
{
    const tuple_t space = tuple_open(image, width);
    meeting_begin(meeting);
    for (uint i = ITEM_ID; i <= width; i += GROUP_SIZE)
        ((LOCAL_PTR ulong *)parameters)[i] = match_of(
            image_word(image, TUPLE_PARAMETERS + 2u * i), image_word(image, TUPLE_PARAMETERS + 2u * i + 1u));
    BARRIER();
    ulong best = MATCH_NONE;
    uint limit = NO_WORD; // the best priority of the row so far
    uint open = share.live;
    uint first = 0u, going = share.rows != 0u && space.classes != 0u;
    while (going) {
        const uint end = tuple_tile(space, width, first, tile);
        BARRIER();
        uint used = 0u;
        for (uint number = first; number < end; number++) {
            const record_t record = tuple_record(space, width, number);
            const front_t front = tuple_front(space, record);
            const uint bound = LOAD(space.bounds + number);
            const uint is_mine = (number & (share.parts - 1u)) == share.part;
            if (open && is_mine && front.is_whole && limit >= bound && match_priority(best) >= bound)
                best = match_best(best, tuple_ask(space, width, head, number, parameters, tile + used,
                                                  front, record));
            used += front.is_staged ? front.count : 0u;
        }
        meeting_bring(meeting, share, best);
        BARRIER();
        limit = meeting_priority(meeting, share);
        first = end;
        // No class behind holds a better rule.
        if (open && (first == space.classes || limit < LOAD(space.bounds + first))) {
            open = 0u;
            if (share.part == 0u)
                ATOMIC_ADD(meeting.over, 1u);
        }
        BARRIER();
        going = meeting.over[0] < share.rows;
    }
    return meeting_end(meeting, share, best);
}
