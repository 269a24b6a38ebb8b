// Poptrie and the multibit trie with buckets, over the blobs of the crate `lookup`: what is where in them is
// said there. As in lpm.h, an access that the table's length does not cover gives LPM_BAD.

#define POPTRIE_MAGIC 0x00180624u
#define MTRIE6_MAGIC 0x006d7436u
#define TRIES_DIRECT 16u           // words before the array of both
#define TRIES_HEAP (16u + (1u << 18)) // words before what is behind it

FN uint tries_word(region_t table, ulong at)
{
    return at < table.len ? LOAD(table.words + at) : LPM_BAD;
}

// Poptrie (Asai, Ohara 2015): two accesses, rarely three.
FN uint poptrie_lookup(region_t table, uint key)
{
    if (table.len < TRIES_HEAP || LOAD(table.words) != POPTRIE_MAGIC)
        return 0u; // no table, no route
    const uint wide = LOAD(table.words + 2);
    uint answer = LOAD(table.words + TRIES_DIRECT + (key >> 14));
    if (answer >> 31) {
        const ulong record = TRIES_HEAP + 2UL * (answer & 0x7fffffffu);
        if (record + 2UL > table.len)
            return LPM_BAD;
        // How many of the bits up to the address's own are set.
        const uint cell = key >> 8 & 63u;
        const uint low = LOAD(table.words + record), high = LOAD(table.words + record + 1);
        const uint mask = 0xffffffffu >> (31u - (cell & 31u));
        const uint number = cell < 32u ? POPCOUNT(low & mask) : POPCOUNT(low) + POPCOUNT(high & mask);
        uint group;
        if (wide) {
            answer = tries_word(table, record + 1UL + number);
            group = answer >> 31;
            if (answer == LPM_BAD)
                return LPM_BAD;
        } else {
            const uint place = 3u + number; // in half words: behind four of bits, counted from 1
            const uint word = tries_word(table, record + place / 2u);
            if (word == LPM_BAD)
                return LPM_BAD;
            answer = word >> (16u * (place & 1u)) & 0xffffu;
            group = answer >> 15;
        }
        if (group) {
            const ulong page = answer & (wide ? 0x7fffffffu : 0x7fffu);
            answer = tries_word(table, TRIES_HEAP + page * 256UL + (key & 0xffu));
        }
    }
    return answer ? answer : LOAD(table.words + 1);
}

// Bits `at` to `at + 31` of an address, leftmost first; `at` is 0 to 127.
FN uint address_bits(ulong2_t address, uint at)
{
    const ulong first = at < 64u ? address.x : address.y;
    const ulong second = at < 64u ? address.y : 0UL;
    const uint by = at & 63u;
    return (uint)((first << by | second >> 1 >> (63u - by)) >> 32);
}

// Whether the first `64 - shift` bits are the same.
FN uint same_bits(ulong a, ulong b, uint shift)
{
    return shift >= 64u || (a ^ b) >> shift == 0UL;
}

// A multibit trie (Srinivasan, Varghese 1999) with buckets that burst (Heinz, Zobel, Williams 2002).
FN uint mtrie6_lookup(region_t table, ulong2_t address)
{
    if (table.len < TRIES_HEAP || LOAD(table.words) != MTRIE6_MAGIC)
        return 0u; // no table, no route
    uint cell = LOAD(table.words + TRIES_DIRECT + (uint)(address.x >> 46));
    uint at = 18u;
    // A node: each takes a bit at least, so that this ends.
    while (cell >> 31 && (cell >> 30 & 1u) == 0u && at < 128u) {
        const uint bits = (cell >> 25 & 15u) + 1u;
        const ulong first = TRIES_HEAP + 16UL * (cell & 0x1ffffffu);
        cell = tries_word(table, first + (address_bits(address, at) >> (32u - bits)));
        if (cell == LPM_BAD)
            return LPM_BAD;
        at += bits;
    }
    if (cell >> 31) {
        const ulong first = TRIES_HEAP + 16UL * (cell & 0x1ffffffu);
        if ((cell >> 30 & 1u) == 0u || first + 16UL > table.len)
            return LPM_BAD;
        GLOBAL const uint *line = table.words + first;
        uint answer = LOAD(line + 14);
        if (cell >> 29 & 1u) {
            const uint shifts = LOAD(line + 10);
            for (uint i = 2u; i-- != 0u;) {
                const ulong high = LOAD(line + 4u * i) | (ulong)LOAD(line + 4u * i + 1u) << 32;
                const ulong low = LOAD(line + 4u * i + 2u) | (ulong)LOAD(line + 4u * i + 3u) << 32;
                if (same_bits(high, address.x, shifts >> (16u * i) & 0xffu)
                    && same_bits(low, address.y, shifts >> (16u * i + 8u) & 0xffu))
                    answer = LOAD(line + 8u + i);
            }
        } else {
            const uint bits = (uint)(address.x >> 14);
            for (uint i = 6u; i-- != 0u;) {
                const uint shift = LOAD(line + 6u + i / 4u) >> (8u * (i & 3u)) & 31u;
                if ((LOAD(line + i) ^ bits) >> shift == 0u)
                    answer = LOAD(line + 8u + i);
            }
        }
        cell = answer;
    }
    return cell ? cell : LOAD(table.words + 1);
}
