// ---- the patterns of a module: the walk of Aho and Corasick, which stops at each match ----

// Where a search is. A stream keeps `low` and `high` from piece to piece; a new search begins with zeros.
typedef struct {
    uint low;
    uint high;
    uint pattern; // the number of the pattern that match_next has found
    uint end;     // the place behind its last byte, from the first byte of the piece
    uint own_left_a; // patterns that end at this place and were not given yet, of either machine,
    uint own_left_b;
    uint own_a; // and where they are: words from the automaton's first
    uint own_b;
} match_t;

// A search that goes on where another one was: with its `low` and `high`.
FN match_t match_begin(uint low, uint high)
{
    match_t match;
    match.low = low;
    match.high = high;
    match.pattern = 0u;
    match.end = 0u;
    match.own_left_a = 0u;
    match.own_left_b = 0u;
    match.own_a = 0u;
    match.own_b = 0u;
    return match;
}

// Gives the next pattern that ends at this place; of those of both machines the one with the smaller number.
FN void own_match(PRIVATE const packet_t *packet, PRIVATE match_t *match)
{
    const uint a = match->own_left_a != 0u ? LOAD(packet->own_patterns + match->own_a) : 0xffffffffu;
    const uint b = match->own_left_b != 0u ? LOAD(packet->own_patterns + match->own_b) : 0xffffffffu;
    if (a < b) {
        match->pattern = a;
        match->own_a += 1u;
        match->own_left_a -= 1u;
    } else {
        match->pattern = b;
        match->own_b += 1u;
        match->own_left_b -= 1u;
    }
}

// Goes on to the next match in a piece: 1 with its pattern and end, 0 at the end of the piece. The budget is put in by the reader of
// sources; many bytes are a round.
FN uint match_next(PRIVATE uint *left, PRIVATE const packet_t *packet, PRIVATE const piece_t *piece, PRIVATE match_t *match)
{
    if ((match->own_left_a | match->own_left_b) != 0u) {
        own_match(packet, match);
        return 1u;
    }
    region_t table;
    table.words = packet->own_patterns;
    table.len = packet->own_patterns_len;
    const literals_t exact = literals_machine(table, 0u), folded = literals_machine(table, 1u);
    const ulong mark = table.len < LITERALS_HEAD ? 0ul : (ulong)LOAD(table.words + 3) << 48;
    const ulong from = (ulong)match->high << 32 | match->low;
    // The state of other patterns is one of which nothing is known.
    const ulong known = from >> 48 << 48 == mark ? from : 0ul;
    uint state_a = (uint)known & LITERALS_RECORD, state_b = (uint)(known >> 24) & LITERALS_RECORD;
    uint row_a = literals_row(&exact, state_a), row_b = literals_row(&folded, state_b);
    uint found = 0u;
    const uint end = piece->len < piece->own_len ? piece->len : piece->own_len;
    if (match->end < end && *left >= OWN_EXCEEDED)
        return 0u;
    const uint begin = match->end;
    while (match->end < end && found == 0u) {
        const uint byte = piece->own_bytes[match->end];
        match->end += 1u;
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
        if (((state_a | state_b) & LITERALS_ENDS) != 0u) {
            match->own_a = (uint)(literals_ends(&exact, state_a, &match->own_left_a) - table.words);
            match->own_b = (uint)(literals_ends(&folded, state_b, &match->own_left_b) - table.words);
            found = match->own_left_a | match->own_left_b;
        }
    }
    own_spend(left, 1u + (match->end - begin) / 16u);
    // As the host has it (`automata::State::to_bits`).
    const ulong state = mark | (ulong)(state_b & LITERALS_RECORD) << 24 | (state_a & LITERALS_RECORD);
    match->low = (uint)state;
    match->high = (uint)(state >> 32);
    if (found == 0u)
        return 0u;
    own_match(packet, match);
    return 1u;
}
