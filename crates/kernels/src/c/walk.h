// What walks over payload share: blocks of 16 bytes, and the records of matches.

#define MATCH_WORDS 2u

// Up to 16 bytes of a frame from its byte `i` on, the first one lowest; `count` is how many. They end where a block of 16
// bytes of the payload ends, so that all but a frame's first and last blocks are one load each. Reads no words but those
// that hold the frame's bytes.
FN ulong2_t walk_block(GLOBAL const uchar *payload, uint at, uint len, uint i, PRIVATE uint *count)
{
    const uint room = 16u - ((at + i) & 15u), left = len - i;
    *count = left < room ? left : room;
    if (*count == 16u)
        return *(GLOBAL const ulong2_t *)(payload + at + (ulong)i);
    return ulong2_of(
        payload_le32(payload, at, len, i) | (ulong)payload_le32(payload, at, len, i + 4u) << 32,
        payload_le32(payload, at, len, i + 8u) | (ulong)payload_le32(payload, at, len, i + 12u) << 32);
}

// The next byte of a block.
FN uint walk_next(PRIVATE ulong2_t *block)
{
    const uint byte = (uint)block->x & 0xffu;
    block->x = block->x >> 8 | block->y << 56;
    block->y >>= 8;
    return byte;
}

// Match `number` of a row: pattern `pattern` ends before the row's byte `end`.
FN void walk_match(GLOBAL uchar *arena, uint area, uint row, uint number, uint end, uint pattern)
{
    output_word(arena, area, row, MATCH_WORDS * number, end);
    output_word(arena, area, row, MATCH_WORDS * number + 1u, pattern);
}

// How many matches a row has.
FN void walk_count(GLOBAL uchar *arena, uint area, uint row, uint matches)
{
    const uint most = MATCH_WORDS_MAX / MATCH_WORDS;
    output_count(arena, area, MATCH_WORDS_MAX, row, MATCH_WORDS * (matches > most ? most + 1u : matches));
}

// Whether a row has a match: behind `output_scan`.
FN uint walk_has(GLOBAL uchar *arena, uint area, uint row)
{
    GLOBAL const uint *starts = (GLOBAL const uint *)job_area(arena, area);
    return starts[1] == 0u && starts[OUTPUT_HEAD + row] != starts[OUTPUT_HEAD + row + 1u];
}
