// Longest-prefix match over the blobs of the crate `lookup`: what is where in them is said there.
// An access that the table's length does not cover gives LPM_BAD, which is the number of no next hop.

#define LPM_BAD 0xffffffffu

// DIR-24-8 (Gupta, Lin, McKeown 1998; PacketShader 6.2.1): one access, rarely two.
FN uint dir24_8_lookup(region_t table, uint key)
{
    const uint cells = 16u, groups = cells + (1u << 24);
    if (table.len < cells || LOAD(table.words) != 0x00240801u)
        return 0u; // no table, no route
    const uint first = cells + (key >> 8);
    uint cell = first < table.len ? LOAD(table.words + first) : LPM_BAD;
    if (cell >> 31) {
        const ulong last = groups + ((ulong)(cell & 0x7fffffffu) << 8 | (key & 0xffu));
        if (last >= table.len)
            return LPM_BAD;
        cell = LOAD(table.words + last);
    }
    return cell ? cell : LOAD(table.words + 1);
}

#define BSPL_MAGIC 0x6273706c0001UL
#define BSPL_CELLS_LINE 1u
#define BSPL_CELL_LINES 16384u
#define BSPL_WORDS_PER_LINE 16u // of four bytes

// From the upper half of a hash to 0..count.
FN uint bspl_scale(ulong hash, uint count)
{
    return MUL_HI32((uint)(hash >> 32), count);
}

// Binary search on prefix lengths (Waldvogel, Varghese, Turner, Plattner 1997; PacketShader 6.2.2).
//
// One flat loop that reads one line a turn, for narrow and wide lengths alike, so that the searches of a
// warp stay together. A line is four pairs of words, all read at once: one latency.
//
//     narrow (length below 64)  key 0, key 1 | key 2, rope 0 | rope 1, rope 2 | best 0 and 1, best 2 and overflow
//     wide                      key 0 (two)  | key 1 (two)   | rope 0, rope 1 | best 0 and 1, lengths and overflow
FN uint bspl_lookup(region_t table, ulong2_t address)
{
    if (table.len < BSPL_WORDS_PER_LINE)
        return 0u;
    GLOBAL const ulong2_t *lines = (GLOBAL const ulong2_t *)table.words; // four to a line
    const ulong2_t head = LOAD(lines), counts = LOAD(lines + 1);
    const ulong seed = LOAD(lines + 2).x;
    const ulong used = BSPL_CELLS_LINE + BSPL_CELL_LINES + counts.x + counts.y;
    if (head.x != BSPL_MAGIC || counts.x == 0UL || counts.y == 0UL || (counts.x | counts.y) >> 32
        || used * BSPL_WORDS_PER_LINE > table.len)
        return 0u; // no table, no route

    const ulong2_t cell = LOAD(lines + 4u * BSPL_CELLS_LINE + (uint)(address.x >> 48));
    const uint part = (uint)(address.x >> 43) & 31u;
    ulong rope = cell.y >> (32u + part) & 1UL ? cell.x : 0UL; // lengths to try, the next one lowest
    uint answer = (uint)cell.y;

    uint len = 0u;      // of the probe on its way; 0: the next one starts
    uint bucket = 0u;   // where it looks
    uint left = 0u;     // buckets that it may still look at
    ulong high = 0UL, low = 0UL; // its key
    // A hit leads to greater lengths only, so no search probes more often than there are lengths.
    uint probes = 128u;
    while (len != 0u || ((rope & 0xffUL) != 0UL && probes != 0u)) {
        const uint fresh = len == 0u;
        len = fresh ? (uint)rope & 0xffu : len;
        const uint wide = len >= 64u;
        const uint buckets = (uint)(wide ? counts.y : counts.x);
        if (fresh) {
            rope >>= 8;
            probes -= 1u;
            left = buckets;
            const uint below = (128u - len) & 63u; // of a narrow length: 64 - len
            if (wide) {
                high = address.x;
                low = address.y & (len == 64u ? 0UL : ~0UL << below);
                bucket = bspl_scale(((high ^ high >> 32) + len) * seed
                        ^ (low ^ low >> 32) * (rotate_left64(seed, 24u) | 1UL), buckets);
            } else {
                high = (address.x >> (below - 1u) | 1UL) << (below - 1u);
                low = 0UL;
                bucket = bspl_scale((high ^ high >> 32) * seed, buckets);
            }
        }
        GLOBAL const ulong2_t *line = lines
            + 4UL * (BSPL_CELLS_LINE + BSPL_CELL_LINES + (wide ? counts.x : 0UL) + bucket);
        const ulong2_t a = LOAD(line), b = LOAD(line + 1), c = LOAD(line + 2), d = LOAD(line + 3);
        const uint lens = (uint)d.y;
        const uint hit0 = a.x == high && (!wide || (a.y == low && (lens & 0xffu) == len));
        const uint hit1 = wide ? b.x == high && b.y == low && (lens >> 8 & 0xffu) == len : a.y == high;
        const uint hit2 = !wide && b.x == high;
        const uint hit = hit0 | hit1 | hit2;
        const ulong rope0 = wide ? c.x : b.y, rope1 = wide ? c.y : c.x;
        const uint best = hit2 ? lens : (uint)(hit1 ? d.x >> 32 : d.x);
        rope = hit ? (hit2 ? c.y : (hit1 ? rope1 : rope0)) : rope;
        answer = hit && best ? best : answer;
        left -= 1u;
        bucket = bucket + 1u < buckets ? bucket + 1u : 0u;
        // The entry may stand in a later bucket, where this one was full.
        len = hit || d.y >> 32 == 0UL || left == 0u ? 0u : len;
    }
    return answer ? answer : (uint)head.y;
}
