// Longest-prefix match of names over the blob of `lookup::names`: what is where in it is said there.
//
// The CPU asks from the deepest depth on, with the hashes of all prefixes at hand. A work item has no room for
// them, so it goes the other way: it hashes the name once, component by component, and asks at each depth that is
// possible as it comes by; the last answer is the longest match. Entries are compared byte by byte here too.

#define NAMES_MAGIC 0x0073656d616e0001UL
#define NAMES_DEPTH_MAX 31u
#define NAMES_HINTS 5u
#define NAMES_ENTRIES 4u

typedef struct {
    GLOBAL const ulong *words;
    uint lines;
    uint hints;
    uint buckets;
    uint name_line;
} names_table_t;

// Bytes of the type or length that begins with this byte.
FN uint names_number_bytes(uint first)
{
    return first < 253u ? 1u : 1u + (2u << (first - 253u));
}

// Bytes of the component at `name`, of which `room` are there; 0 where it is none.
FN uint names_component(GLOBAL const uchar *name, uint room)
{
    if (room < 2u)
        return 0u;
    const uint kind = names_number_bytes(name[0]);
    if (kind >= room)
        return 0u;
    const uint first = name[kind], number = names_number_bytes(first);
    if (number == 9u || number > room - kind)
        return 0u; // no packet is that long
    uint value = first;
    if (number > 1u) {
        value = 0u;
        for (uint i = 1u; i < number; i++)
            value = value << 8 | name[kind + i];
    }
    return value <= room - kind - number ? kind + number + value : 0u;
}

// A word of at most 7 bytes.
FN ulong names_word(GLOBAL const uchar *bytes, uint count)
{
    ulong word = 0UL;
    for (uint i = 0u; i < count; i++)
        word |= (ulong)bytes[i] << 8u * i;
    return word;
}

// Takes a component into the polynomial.
FN ulong names_absorb(ulong value, ulong point, GLOBAL const uchar *bytes, uint len)
{
    uint at = 0u;
    for (; at + 7u <= len; at += 7u)
        value = multiply_add61(value, point, names_word(bytes + at, 7u));
    const uint rest = len - at;
    return multiply_add61(value, point, names_word(bytes + at, rest) | (ulong)(rest + 1u) << 56);
}

FN uint names_scale(ulong hash, uint count)
{
    return MUL_HI32((uint)(hash >> 29), count);
}

// The depths that the hint of a hash leaves possible.
FN uint names_hint(const names_table_t table, ulong hash)
{
    uint line = names_scale(hash, table.hints);
    for (uint left = table.hints; left != 0u; left--) {
        GLOBAL const ulong *words = table.words + 8UL * (1u + line);
        GLOBAL const uint *halves = (GLOBAL const uint *)words;
        for (uint i = 0u; i < NAMES_HINTS; i++) {
            const uint depths = LOAD(halves + 2u * NAMES_HINTS + i);
            if (depths != 0u && LOAD(words + i) == hash)
                return depths;
        }
        if (LOAD(halves + 15) == 0u)
            return 0u;
        line = line + 1u < table.hints ? line + 1u : 0u;
    }
    return 0u;
}

// Whether the name at a unit of 16 bytes is these bytes.
FN uint names_equal(const names_table_t table, uint unit, GLOBAL const uchar *name, uint len)
{
    const ulong start = 8UL * table.name_line + 2UL * unit;
    if (start + (len + 7u) / 8u > 8UL * table.lines)
        return 0u;
    for (uint at = 0u; at < len; at += 8u) {
        const ulong stored = LOAD(table.words + start + at / 8u);
        const uint rest = len - at;
        const uint count = rest < 8u ? rest : 8u;
        ulong word = names_word(name + at, count < 7u ? count : 7u);
        if (count == 8u)
            word |= (ulong)name[at + 7u] << 56;
        if (word != stored)
            return 0u;
    }
    return 1u;
}

// The next hop of exactly the first `len` bytes of a name, 0 for none.
FN uint names_ask(const names_table_t table, ulong hash, uint depth, GLOBAL const uchar *name, uint len)
{
    uint line = names_scale(hash, table.buckets);
    for (uint left = table.buckets; left != 0u; left--) {
        GLOBAL const ulong *words = table.words + 8UL * (1UL + table.hints + line);
        GLOBAL const uint *halves = (GLOBAL const uint *)words;
        const ulong lens = LOAD(words + 6), depths = LOAD(words + 7);
        for (uint i = 0u; i < NAMES_ENTRIES; i++) {
            const uint next_hop = LOAD(halves + 4u + i);
            if (LOAD(halves + i) == (uint)hash && next_hop != 0u
                && ((uint)(lens >> 16u * i) & 0xffffu) == len
                && ((uint)(depths >> 8u * i) & 0xffu) == depth
                && names_equal(table, LOAD(halves + 8u + i), name, len))
                return next_hop;
        }
        if (depths >> 32 == 0UL)
            return 0u;
        line = line + 1u < table.buckets ? line + 1u : 0u;
    }
    return 0u;
}

// The next hop of the longest prefix of a name, whose components stand in `len` bytes; 0 for no route.
FN uint names_lookup(region_t region, GLOBAL const uchar *name, uint len)
{
    if (region.len < 16u)
        return 0u;
    GLOBAL const ulong *head = (GLOBAL const ulong *)region.words;
    const ulong hints = LOAD(head + 2), buckets = LOAD(head + 3);
    if (LOAD(head) != NAMES_MAGIC || hints == 0UL || buckets == 0UL || (hints | buckets) >> 31
        || (1UL + hints + buckets) * 16UL > region.len)
        return 0u; // no table, no route
    names_table_t table;
    table.words = head;
    table.lines = region.len / 16u;
    table.hints = (uint)hints;
    table.buckets = (uint)buckets;
    table.name_line = 1u + table.hints + table.buckets;
    const ulong seed = LOAD(head + 1);
    const ulong point = mod61(hash_parameter(seed, 0u));
    const ulong a = mod61(hash_parameter(seed, 1u)), b = mod61(hash_parameter(seed, 2u));
    const uint hint_depth = (uint)(LOAD(head + 5) >> 32);
    uint depths = (uint)LOAD(head + 5), answer = (uint)LOAD(head + 4);
    ulong value = 1UL;
    uint at = 0u;
    for (uint depth = 1u; depth <= NAMES_DEPTH_MAX; depth++) {
        const uint component = names_component(name + at, len - at);
        if (component == 0u)
            break;
        value = names_absorb(value, point, name + at, component);
        at += component;
        const uint hinted = depth == hint_depth;
        if (!hinted && !(depths >> depth & 1u))
            continue;
        const ulong hash = multiply_add61(value, a, b);
        if (hinted)
            depths |= names_hint(table, hash);
        if (depths >> depth & 1u) {
            const uint found = names_ask(table, hash, depth, name, at);
            answer = found != 0u ? found : answer;
        }
    }
    return answer;
}
