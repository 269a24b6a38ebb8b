// The walk over the tables of the crate `automata` for regular expressions: `regex::tables` in its sources says what is where.
//
// One item walks over one row with one table. An access that the image's length does not cover ends the walk.

#define DFA_MAGIC 0x72656766u
#define DFA_HEAD 12u // words
#define DFA_LATE 1u

typedef struct {
    GLOBAL const uint *classes; // of the bytes, four to a word
    GLOBAL const uint *table;
    GLOBAL const uint *lists;
    uint count;      // classes
    uint words;      // of the table
    uint list_words;
    uint anywhere;
    uint ends;
    uint dead;
    uint late;
    uint mark;
} dfa_t;

// Table `number` of the image; one of no words where there is none.
FN dfa_t dfa_table(region_t region, uint number)
{
    dfa_t dfa;
    dfa.classes = region.words;
    dfa.table = region.words;
    dfa.lists = region.words;
    dfa.count = 0u;
    dfa.words = 0u;
    dfa.list_words = 0u;
    dfa.anywhere = 0u;
    dfa.ends = 0u;
    dfa.dead = 0u;
    dfa.late = 0u;
    dfa.mark = 0u;
    if (region.len < 4u || LOAD(region.words) != DFA_MAGIC || LOAD(region.words + 1) != 1u
        || number >= LOAD(region.words + 2) || 4ul + DFA_HEAD * (number + 1ul) > region.len)
        return dfa;
    GLOBAL const uint *head = region.words + 4u + DFA_HEAD * number;
    const uint count = LOAD(head), states = LOAD(head + 1), list_words = LOAD(head + 7);
    const uint classes = LOAD(head + 4), table = LOAD(head + 5), lists = LOAD(head + 6);
    const ulong len = region.len, words = (ulong)count * states;
    if (4ul * classes + 64ul > len || words > len || 4ul * table + words > len || 4ul * lists + list_words > len)
        return dfa;
    dfa.classes = region.words + 4ul * classes;
    dfa.table = region.words + 4ul * table;
    dfa.lists = region.words + 4ul * lists;
    dfa.count = count;
    dfa.words = (uint)words;
    dfa.list_words = list_words;
    dfa.anywhere = LOAD(head + 3);
    dfa.ends = LOAD(head + 8);
    dfa.dead = LOAD(head + 9);
    dfa.late = LOAD(head + 10) & DFA_LATE;
    dfa.mark = LOAD(head + 11);
    return dfa;
}

// Walks over the `len` bytes at `at` of the payload, from a state as the host has it (a word of the state of
// `automata::Regexes`). Gives the state behind them, and how many matches there are. With `writes`, they go to row `row` of
// the records of area `area`, by end and then by pattern.
FN ulong dfa_walk(region_t region, uint number, GLOBAL const uchar *payload, uint at, uint len, ulong from,
                  GLOBAL uchar *arena, uint area, uint row, uint writes, PRIVATE uint *matches)
{
    const dfa_t dfa = dfa_table(region, number);
    *matches = 0u;
    if (dfa.words == 0u)
        return from;
    uint state = (uint)from;
    // Another table's state, or no state at all, is one of which nothing is known.
    if (from >> 32 != dfa.mark || state >= dfa.words || state % dfa.count != 0u)
        state = dfa.anywhere;
    uint found = 0u, count = 0u;
    for (uint i = 0u; i < len && state != dfa.dead; i += count) {
        ulong2_t block = walk_block(payload, at, len, i, &count);
        for (uint k = 0u; k < count; k++) {
            const uint byte = walk_next(&block);
            const ulong place = (ulong)state + (LOAD(dfa.classes + byte / 4u) >> (8u * (byte & 3u)) & 0xffu);
            state = place < dfa.words ? LOAD(dfa.table + place) : dfa.dead;
            if (state < dfa.ends) {
                const uint list = state / dfa.count;
                if (dfa.list_words < 2u || list > dfa.list_words - 2u)
                    continue;
                const uint first = LOAD(dfa.lists + list), last = LOAD(dfa.lists + list + 1u);
                for (uint p = first; p < last && p < dfa.list_words; p++) {
                    if (writes)
                        walk_match(arena, area, row, found, i + k + 1u - dfa.late, LOAD(dfa.lists + p));
                    found++;
                }
            }
        }
    }
    *matches = found;
    return (ulong)dfa.mark << 32 | state;
}
