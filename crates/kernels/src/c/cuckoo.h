// Exact match in the blob of `lookup::cuckoo`: what is where in it is said there. A blob that is none, or of keys
// of another width, holds nothing.

#define CUCKOO_MAGIC 0x6375636b6f6f0001UL
#define CUCKOO_STASH_LINES 16u
#define CUCKOO_BUCKET_LINE (1u + CUCKOO_STASH_LINES)
#define CUCKOO_WORDS_PER_LINE 16u // of four bytes
#define CUCKOO_MISS 0xffffffffffffffffUL

// A table; no buckets where there is none. A line is four pairs of words.
typedef struct {
    GLOBAL const ulong2_t *lines;
    ulong seed;
    uint buckets;
    uint stashed; // entries in the stash
} cuckoo_t;

FN cuckoo_t cuckoo_open(region_t region, ulong key_words)
{
    cuckoo_t table;
    table.lines = (GLOBAL const ulong2_t *)region.words;
    table.seed = 0UL;
    table.buckets = 0u;
    table.stashed = 0u;
    if (region.len >= CUCKOO_WORDS_PER_LINE) {
        const ulong2_t head = LOAD(table.lines), shape = LOAD(table.lines + 1);
        const ulong used = (CUCKOO_BUCKET_LINE + shape.x) * CUCKOO_WORDS_PER_LINE;
        if (head.x == CUCKOO_MAGIC && head.y == key_words && !(shape.x >> 32) && used <= region.len) {
            table.seed = shape.y;
            table.buckets = (uint)shape.x;
            table.stashed = (uint)LOAD(table.lines + 2).x;
        }
    }
    return table;
}

// The value of a key of 8 bytes in a line, or `otherwise`: keys in the first half, values in the second.
FN ulong cuckoo_line8(cuckoo_t table, uint line, ulong key, ulong otherwise)
{
    GLOBAL const ulong2_t *at = table.lines + 4UL * line;
    const ulong2_t a = LOAD(at), b = LOAD(at + 1), c = LOAD(at + 2), d = LOAD(at + 3);
    otherwise = a.x == key ? c.x : otherwise;
    otherwise = a.y == key ? c.y : otherwise;
    otherwise = b.x == key ? d.x : otherwise;
    return b.y == key ? d.y : otherwise;
}

// The same of 16 bytes: three keys, then three values of 4 bytes.
FN ulong cuckoo_line16(cuckoo_t table, uint line, ulong2_t key, ulong otherwise)
{
    GLOBAL const ulong2_t *at = table.lines + 4UL * line;
    const ulong2_t a = LOAD(at), b = LOAD(at + 1), c = LOAD(at + 2), values = LOAD(at + 3);
    otherwise = a.x == key.x && a.y == key.y ? values.x & 0xffffffffUL : otherwise;
    otherwise = b.x == key.x && b.y == key.y ? values.x >> 32 : otherwise;
    return c.x == key.x && c.y == key.y ? values.y & 0xffffffffUL : otherwise;
}

FN uint cuckoo_stash_lines(cuckoo_t table, uint ways)
{
    const uint lines = (table.stashed + ways - 1u) / ways;
    return lines < CUCKOO_STASH_LINES ? lines : CUCKOO_STASH_LINES;
}

// The value of a key of 8 bytes; CUCKOO_MISS when it is not there. Both lines are asked for at once: a device
// has other rows to hide a line's latency, and a second round would cost all rows of the group.
FN ulong cuckoo_find8(cuckoo_t table, ulong key)
{
    ulong value = CUCKOO_MISS;
    if (table.buckets) {
        const ulong h = fmix64(key ^ table.seed);
        const uint first = CUCKOO_BUCKET_LINE + hash_to_range((uint)(h >> 32), table.buckets);
        const uint second = CUCKOO_BUCKET_LINE + hash_to_range((uint)h, table.buckets);
        value = cuckoo_line8(table, first, key, value);
        value = cuckoo_line8(table, second, key, value);
        const uint stash = value == CUCKOO_MISS ? cuckoo_stash_lines(table, 4u) : 0u;
        for (uint line = 0u; line < stash; line++)
            value = cuckoo_line8(table, 1u + line, key, value);
    }
    return value;
}

// The value of a key of 16 bytes; CUCKOO_MISS when it is not there.
FN ulong cuckoo_find16(cuckoo_t table, ulong2_t key)
{
    ulong value = CUCKOO_MISS;
    if (table.buckets) {
        const ulong h = fmix64(fold_product(key.x ^ table.seed, 0x9e3779b97f4a7c15UL) ^ key.y);
        const uint first = CUCKOO_BUCKET_LINE + hash_to_range((uint)(h >> 32), table.buckets);
        const uint second = CUCKOO_BUCKET_LINE + hash_to_range((uint)h, table.buckets);
        value = cuckoo_line16(table, first, key, value);
        value = cuckoo_line16(table, second, key, value);
        const uint stash = value == CUCKOO_MISS ? cuckoo_stash_lines(table, 3u) : 0u;
        for (uint line = 0u; line < stash; line++)
            value = cuckoo_line16(table, 1u + line, key, value);
    }
    return value;
}
