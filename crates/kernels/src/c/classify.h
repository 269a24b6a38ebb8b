// What the classifiers have in common: items that share a row, its header, and matches.
//
// A row is a header; its words stand four to a column (head0, head1, …), so that an item reads them in loads of 16
// bytes, neighbours beside each other. A match is 64 bits, priority above id: the smaller the better, all ones for
// none, as on the host.
//
// Where a launch has more groups than its rows need, several items of a group *share* a row and each looks at a part
// of the rules. What they find meets in memory of the group by atomic minima of 32 bits: first the priorities, then
// the ids of those that have the best priority.
//
//     items of a group    row 0 row 1 … │ row 0 row 1 … │ …        neighbours have neighbouring rows, and one part
//                            part 0     │    part 1     │

#define MATCH_NONE 0xffffffffffffffffUL
#define NO_WORD 0xffffffffu

// The row of an item.
typedef struct {
    uint row;   // among the job's
    uint live;  // whether it is one of the launch's
    uint place; // among the group's rows
    uint rows;  // rows of the group
    uint part;  // which part of the rules is this item's
    uint parts; // a power of two
} share_t;

// Which row and part an item has: as many parts as there are groups to spare.
FN share_t row_share(GLOBAL const uchar *arena)
{
    share_t share;
    const uint rows = job_rows(arena);
    const uint needed = rows == 0u ? 1u : (rows - 1u) / GROUP_SIZE + 1u;
    share.parts = 1u;
    while (2u * share.parts <= GROUP_SIZE && 2u * share.parts <= GROUPS / needed)
        share.parts *= 2u;
    const uint room = GROUP_SIZE / share.parts; // rows that a group has room for
    const ulong first = (ulong)GROUP_ID * room;
    const uint left = first < rows ? rows - (uint)first : 0u;
    share.rows = left < room ? left : room;
    share.place = ITEM_ID % room;
    share.part = ITEM_ID / room;
    share.live = share.place < share.rows && share.part < share.parts;
    share.row = share.live ? JOB_FIRST(arena) + (uint)first + share.place : 0u;
    return share;
}

// Four words of a header; zeros for an item without a row.
FN void head_words(PRIVATE uint *head, GLOBAL const ulong2_t *column, const share_t share)
{
    const ulong2_t words = share.live ? LOAD(column + share.row) : ulong2_of(0UL, 0UL);
    head[0] = (uint)words.x;
    head[1] = (uint)(words.x >> 32);
    head[2] = (uint)words.y;
    head[3] = (uint)(words.y >> 32);
}

// Any word of a header, of which the first column's offset is in word `columns` of the job's header.
FN uint head_word(GLOBAL const uchar *arena, uint columns, uint row, uint word)
{
    GLOBAL const uchar *column = arena + ((GLOBAL const uint *)arena)[columns + word / 4u];
    return LOAD((GLOBAL const uint *)column + 4UL * row + word % 4u);
}

FN ulong match_of(uint low, uint high)
{
    return (ulong)high << 32 | low;
}

FN ulong match_best(ulong a, ulong b)
{
    return a < b ? a : b;
}

FN uint match_priority(ulong match)
{
    return (uint)(match >> 32);
}

// Writes what a row has found: one of its items does.
FN void match_found(const share_t share, GLOBAL ulong *found, ulong match)
{
    if (share.live && share.part == 0u)
        found[share.row] = match;
}

// A word of the image; zero beyond it.
FN uint image_word(const region_t image, ulong at)
{
    return at < image.len ? LOAD(image.words + at) : 0u;
}

// Whether the image has `count` words from `first` on.
FN uint image_has(const region_t image, ulong first, ulong count)
{
    return first <= image.len && count <= image.len - first;
}

// Where items that share a row meet: a word for each row of the group.
typedef struct {
    LOCAL_PTR uint *priority;
    LOCAL_PTR uint *id;
    LOCAL_PTR uint *over; // rows of the group that need no further look
} meeting_t;

#define MEETING(name)                                                                              \
    LOCAL uint name##_priority[GROUP_ITEMS];                                                       \
    LOCAL uint name##_id[GROUP_ITEMS];                                                             \
    LOCAL uint name##_over[1];                                                                     \
    meeting_t name;                                                                                \
    name.priority = name##_priority;                                                               \
    name.id = name##_id;                                                                           \
    name.over = name##_over

// Nothing is found yet. A barrier has to follow.
FN void meeting_begin(const meeting_t meeting)
{
    meeting.priority[ITEM_ID] = NO_WORD;
    meeting.id[ITEM_ID] = NO_WORD;
    if (ITEM_ID == 0u)
        meeting.over[0] = 0u;
}

// Brings what an item has found. A barrier has to follow before `meeting_priority`, and before `meeting_end`.
FN void meeting_bring(const meeting_t meeting, const share_t share, ulong found)
{
    if (share.live && found != MATCH_NONE)
        ATOMIC_MIN(&meeting.priority[share.place], match_priority(found));
}

// The best priority of a row so far.
FN uint meeting_priority(const meeting_t meeting, const share_t share)
{
    return meeting.priority[share.place];
}

// The best match of a row, for all of its items: each brings its own, behind which a barrier was. All items of the
// group come here.
FN ulong meeting_end(const meeting_t meeting, const share_t share, ulong found)
{
    const uint priority = meeting.priority[share.place];
    if (share.live && match_priority(found) == priority)
        ATOMIC_MIN(&meeting.id[share.place], (uint)found);
    BARRIER();
    return match_of(meeting.id[share.place], priority);
}
