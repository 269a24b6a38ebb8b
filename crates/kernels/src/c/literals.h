// The walk of Aho and Corasick over the image of the crate `automata`: `layout` in its sources says what is where.
//
// One item walks over one row. Both machines take a byte together, so that their matches come in one order. An access
// that the image's length does not cover gives 0, which is the root.

#define LITERALS_MAGIC 0x6175746fu
#define LITERALS_HEAD 20u // words
#define LITERALS_RECORD 0xffffffu
#define LITERALS_ENDS 0x80000000u
#define LITERALS_BITMAP 255u
#define LITERALS_FEW 3u
#define LITERALS_LINKS_MAX 65536u

typedef struct {
    GLOBAL const uint *words;
    uint classes;  // 0: no machine
    uint start;
    uint of_bytes; // where the classes of the bytes are, in words
    uint defaults; // in words
    uint records;  // in quads
    uint quads;
    uint lists;    // in words
    uint list_words;
} literals_t;

FN literals_t literals_machine(region_t table, uint number)
{
    literals_t machine;
    machine.words = table.words;
    machine.classes = 0u;
    machine.start = 0u;
    machine.of_bytes = 0u;
    machine.defaults = 0u;
    machine.records = 0u;
    machine.quads = 0u;
    machine.lists = 0u;
    machine.list_words = 0u;
    if (table.len < LITERALS_HEAD || LOAD(table.words) != LITERALS_MAGIC || LOAD(table.words + 1) != 1u)
        return machine;
    GLOBAL const uint *head = table.words + 4u + 8u * number;
    const uint classes = LOAD(head), of_bytes = LOAD(head + 2), defaults = LOAD(head + 3), records = LOAD(head + 4);
    const uint quads = LOAD(head + 5), lists = LOAD(head + 6), list_words = LOAD(head + 7);
    const ulong len = table.len;
    if (classes > 256u || 4ul * of_bytes + 64ul > len || 4ul * defaults + (classes + 1u) * classes > len
        || 4ul * ((ulong)records + quads) > len || 4ul * lists + list_words > len)
        return machine;
    machine.classes = classes;
    machine.start = LOAD(head + 1);
    machine.of_bytes = 4u * of_bytes;
    machine.defaults = 4u * defaults;
    machine.records = records;
    machine.quads = quads;
    machine.lists = 4u * lists;
    machine.list_words = list_words;
    return machine;
}

// A quad of the records: head and mask, link and next.
FN ulong2_t literals_quad(PRIVATE const literals_t *machine, uint at)
{
    return at < machine->quads ? LOAD((GLOBAL const ulong2_t *)machine->words + machine->records + at)
                               : ulong2_of(0ul, 0ul);
}

// Word `i` behind the quad `at` of the records.
FN uint literals_word(PRIVATE const literals_t *machine, uint at, uint i)
{
    const ulong word = 4ul * (at + 1ul) + i;
    return word < 4ul * machine->quads ? LOAD(machine->words + 4ul * machine->records + word) : 0u;
}

FN uint literals_class(PRIVATE const literals_t *machine, uint byte)
{
    return LOAD(machine->words + machine->of_bytes + byte / 4u) >> (8u * (byte & 3u)) & 0xffu;
}

// The class of the last byte before a state: the row of the defaults.
FN uint literals_row(PRIVATE const literals_t *machine, uint state)
{
    const uint at = state & LITERALS_RECORD;
    if (at == 0u || at == machine->start)
        return machine->classes;
    return (uint)literals_quad(machine, at).y >> 24;
}

// The state behind a byte of class `class_of`; `row` is the class of the byte before.
FN uint literals_step(PRIVATE const literals_t *machine, uint state, uint row, uint class_of)
{
    uint at = state & LITERALS_RECORD, to = 0u, is_found = 0u;
    for (uint links = 0u; links < LITERALS_LINKS_MAX && is_found == 0u && (at != 0u || links == 0u); links++) {
        const ulong2_t quad = literals_quad(machine, at);
        const uint head = (uint)quad.x, mask = (uint)(quad.x >> 32), next = (uint)(quad.y >> 32);
        const uint children = head >> 16 & 0xffu;
        if ((mask >> (class_of & 31u) & 1u) == 0u) {
            is_found = 0u;
        } else if (children == 1u) {
            is_found = head >> 24 == class_of;
            to = next;
        } else if (children == LITERALS_BITMAP) {
            const uint bits = literals_word(machine, at, 2u * (class_of >> 5)), bit = 1u << (class_of & 31u);
            is_found = (bits & bit) != 0u;
            if (is_found != 0u)
                to = literals_word(machine, at, literals_word(machine, at, 2u * (class_of >> 5) + 1u)
                                                    + POPCOUNT(bits & (bit - 1u)));
        } else {
            // The first byte of `next` that is the class: the lowest one that is zero in the difference.
            const uint other = next ^ class_of * 0x01010101u, zero = (other - 0x01010101u) & ~other & 0x80808080u;
            const uint child = POPCOUNT((zero & (0u - zero)) - 1u) >> 3;
            is_found = zero != 0u && child < children;
            if (is_found != 0u)
                to = literals_word(machine, at, child);
        }
        at = (uint)quad.y & LITERALS_RECORD;
    }
    if (is_found != 0u)
        return to;
    const uint place = row * machine->classes + class_of;
    return place < (machine->classes + 1u) * machine->classes ? LOAD(machine->words + machine->defaults + place) : 0u;
}

// Where the patterns that end at a state are, and how many.
FN GLOBAL const uint *literals_ends(PRIVATE const literals_t *machine, uint state, PRIVATE uint *count)
{
    const uint at = (state & LITERALS_RECORD) - 1u;
    *count = 0u;
    if ((state & LITERALS_ENDS) == 0u || at >= machine->quads)
        return machine->words;
    GLOBAL const uint *quad = machine->words + 4ul * ((ulong)machine->records + at);
    const uint many = LOAD(quad), start = LOAD(quad + 1);
    if (many > LITERALS_FEW && (start > machine->list_words || many > machine->list_words - start))
        return machine->words;
    *count = many;
    return many > LITERALS_FEW ? machine->words + machine->lists + start : quad + 1;
}

// Walks over the `len` bytes at `at` of the payload, from a state as the host has it (`automata::State::to_bits`). Gives
// the state behind them, and how many matches there are. With `writes`, they go to row `row` of the records of area
// `area`, by end and then by pattern.
FN ulong literals_walk(region_t table, GLOBAL const uchar *payload, uint at, uint len, ulong from, GLOBAL uchar *arena,
                       uint area, uint row, uint writes, PRIVATE uint *matches)
{
    const literals_t exact = literals_machine(table, 0u), folded = literals_machine(table, 1u);
    const ulong mark = table.len < LITERALS_HEAD ? 0ul : (ulong)LOAD(table.words + 3) << 48;
    // The state of another automaton is one of which nothing is known.
    const ulong known = from >> 48 << 48 == mark ? from : 0ul;
    uint state_a = (uint)known & LITERALS_RECORD, state_b = (uint)(known >> 24) & LITERALS_RECORD;
    uint row_a = literals_row(&exact, state_a), row_b = literals_row(&folded, state_b);
    uint found = 0u, count = 0u;
    for (uint i = 0u; i < len; i += count) {
        ulong2_t block = walk_block(payload, at, len, i, &count);
        for (uint k = 0u; k < count; k++) {
            const uint byte = walk_next(&block);
            if (exact.classes != 0u) {
                const uint class_of = literals_class(&exact, byte);
                state_a = literals_step(&exact, state_a, row_a, class_of);
                row_a = class_of;
            }
            if (folded.classes != 0u) {
                const uint class_of = literals_class(&folded, byte);
                state_b = literals_step(&folded, state_b, row_b, class_of);
                row_b = class_of;
            }
            if ((state_a | state_b) & LITERALS_ENDS) {
                uint left_a = 0u, left_b = 0u;
                GLOBAL const uint *a = literals_ends(&exact, state_a, &left_a);
                GLOBAL const uint *b = literals_ends(&folded, state_b, &left_b);
                if (!writes) {
                    found += left_a + left_b;
                    continue;
                }
                while (left_a + left_b != 0u) {
                    const uint of_a = left_b == 0u || (left_a != 0u && LOAD(a) < LOAD(b));
                    walk_match(arena, area, row, found, i + k + 1u, LOAD(of_a ? a : b));
                    found++;
                    a += of_a;
                    left_a -= of_a;
                    b += 1u - of_a;
                    left_b -= 1u - of_a;
                }
            }
        }
    }
    *matches = found;
    return mark | (ulong)(state_b & LITERALS_RECORD) << 24 | (state_a & LITERALS_RECORD);
}
