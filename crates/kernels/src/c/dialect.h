// One C for NVRTC (CUDA C++) and OpenCL C 1.2.
//
// Rules. Every pointer carries its address space. Memory that a group shares is declared at kernel
// scope, with LOCAL. BARRIER is in uniform control flow only: work items beyond the last row carry a
// `live` flag to the end instead of returning. 32-bit atomics only. Nothing depends on the width of a
// warp. No includes, templates, vectors of three, bool or size_t arguments.
//
// Each kernel takes the same arguments: arena (a job's header, columns and areas), payload (packets' bytes),
// tables (one table image), state (state or scratch), job (a number that the kernel explains).
//
// A stage's own text may use what its segment defines for it alone: its parameters, each by its name;
// STAGE_NUMBER, which OWN appends to the name of a function, for a program may hold the text of several instances;
// SCRATCH, SORTED, SCHEDULED, OUTPUT_COUNT and OUTPUT_WORD where it asked for such memory, STATE_RECORD and STATE_SLOTS where it
// keeps state.

#if !defined(__CUDACC__) // OpenCL C

#define KERNEL(name)                                                                               \
    __kernel void name(__global uchar *arena, __global uchar *payload, __global uchar *tables,     \
                       __global uchar *state, const uint job)
#define FN static inline // never always_inline: Oclgrind does not know the scopes that this leaves behind
#define GLOBAL __global
#define LOCAL __local     // declares
#define LOCAL_PTR __local // in a pointer's type
#define PRIVATE __private
#define CONSTANT __constant // declares, at program scope
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

#define ITEM_ID ((uint)get_local_id(0))
#define GROUP_ID ((uint)get_group_id(0))
#define GROUPS ((uint)get_num_groups(0))
#define GROUP_SIZE ((uint)get_local_size(0))
#define GLOBAL_ID ((uint)get_global_id(0))

typedef ulong2 ulong2_t;

#define LOAD(pointer) (*(pointer)) // of memory that the launch does not write
#define ATOMIC_ADD(pointer, value) atomic_add((pointer), (value))
#define ATOMIC_MIN(pointer, value) atomic_min((pointer), (value))
#define ATOMIC_MAX(pointer, value) atomic_max((pointer), (value))
#define ATOMIC_OR(pointer, value) atomic_or((pointer), (value))
#define ATOMIC_CAS(pointer, expected, value) atomic_cmpxchg((pointer), (expected), (value)) // what was there
#define POPCOUNT(x) popcount((uint)(x))
#define CLZ(x) clz((uint)(x))
#define MUL_HI32(a, b) mul_hi((uint)(a), (uint)(b))
#define MUL_HI64(a, b) mul_hi((ulong)(a), (ulong)(b))

#else // CUDA

#pragma nv_diag_suppress 177 // not every program uses every function

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;
typedef ulonglong2 ulong2_t;

// The most items of a group and, where a file says so, the fewest groups that a multiprocessor must have at once: the
// compiler may spill a few registers to have one more.
#define KERNEL_BOUNDS GROUP_ITEMS
#define KERNEL(name)                                                                               \
    extern "C" __global__ void __launch_bounds__(KERNEL_BOUNDS)                                    \
        name(uchar *arena, uchar *payload, uchar *tables, uchar *state, const uint job)
#define FN static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_PTR
#define PRIVATE
#define CONSTANT static __device__ __constant__
#define BARRIER() __syncthreads()

#define ITEM_ID (threadIdx.x)
#define GROUP_ID (blockIdx.x)
#define GROUPS (gridDim.x)
#define GROUP_SIZE (blockDim.x)
#define GLOBAL_ID (blockIdx.x * blockDim.x + threadIdx.x)

#define LOAD(pointer) __ldg(pointer)
#define ATOMIC_ADD(pointer, value) atomicAdd((pointer), (value))
#define ATOMIC_MIN(pointer, value) atomicMin((pointer), (value))
#define ATOMIC_MAX(pointer, value) atomicMax((pointer), (value))
#define ATOMIC_OR(pointer, value) atomicOr((pointer), (value))
#define ATOMIC_CAS(pointer, expected, value) atomicCAS((pointer), (uint)(expected), (uint)(value))
#define POPCOUNT(x) ((uint)__popc((uint)(x)))
#define CLZ(x) ((uint)__clz((int)(x)))
#define MUL_HI32(a, b) __umulhi((uint)(a), (uint)(b))
#define MUL_HI64(a, b) __umul64hi((ulong)(a), (ulong)(b))

#endif

// The most work items in a group; kernels that share memory are launched with exactly as many.
#ifndef GROUP_ITEMS
#define GROUP_ITEMS 256
#endif

// ---- the job ----

#define JOB_COUNT(arena) (((GLOBAL const uint *)(arena))[0])
#define JOB_CAPACITY(arena) (((GLOBAL const uint *)(arena))[1])
#define JOB_VERSION_LOW(arena) (((GLOBAL const uint *)(arena))[2])
#define JOB_VERSION_HIGH(arena) (((GLOBAL const uint *)(arena))[3])
// The launch covers the rows from here on.
#define JOB_FIRST(arena) (((GLOBAL const uint *)(arena))[JOB_FIRST_WORD])

// How many rows the launch covers: never more than there is room for.
FN uint job_rows(GLOBAL const uchar *arena)
{
    const uint count = JOB_COUNT(arena), capacity = JOB_CAPACITY(arena), first = JOB_FIRST(arena);
    const uint room = first < capacity ? capacity - first : 0u;
    return count < room ? count : room;
}

// ---- areas: memory of the job beside its columns ----
//
// The header says where their list is: two words for each, its byte offset in the arena and its bytes.

FN GLOBAL const uint *job_area_entry(GLOBAL const uchar *arena, uint number)
{
    GLOBAL const uint *header = (GLOBAL const uint *)arena;
    return (GLOBAL const uint *)(arena + header[JOB_AREAS_WORD]) + 2u * number;
}

FN GLOBAL uchar *job_area(GLOBAL uchar *arena, uint number)
{
    return arena + job_area_entry(arena, number)[0];
}

FN uint job_area_bytes(GLOBAL const uchar *arena, uint number)
{
    return job_area_entry(arena, number)[1];
}

// The row of item `i` in the order that area `number` holds: the i-th one where the area is shown with no bytes, for
// then the job's rows were not sorted.
FN uint job_scheduled(GLOBAL const uchar *arena, uint number, uint i)
{
    GLOBAL const uint *entry = job_area_entry(arena, number);
    return entry[1] == 0u ? JOB_FIRST(arena) + i : ((GLOBAL const uint *)(arena + entry[0]))[i];
}

// ---- records of any length, which a stage writes for rows and the host gets ----
//
// Count, scan, write: a kernel says how many words each row has, `output_scan` finds where they start, another kernel
// writes them there. So they lie in the order of the rows, the same on every device. The area `area` holds, in words:
// [0] how many words there are in all, [1] whether they are more than there is room for, [2], [3] zero; then for each
// row where its words start, and where the last one's end. The next area holds the words. Rows are numbered from 0.

#define OUTPUT_HEAD 4u

// Row `row` has so many words; a row may have `most`. A row that nothing is said of has none.
FN void output_count(GLOBAL uchar *arena, uint area, uint most, uint row, uint words)
{
    GLOBAL uint *starts = (GLOBAL uint *)job_area(arena, area);
    if (words > most)
        starts[1] = 1u; // whoever writes it, writes the same
    else if (row < job_rows(arena))
        starts[OUTPUT_HEAD + row] = words;
}

// Word `i` of row `row`; of the words that were counted.
FN void output_word(GLOBAL uchar *arena, uint area, uint row, uint i, uint value)
{
    GLOBAL const uint *starts = (GLOBAL const uint *)job_area(arena, area);
    if (starts[1] == 0u && row < job_rows(arena)) {
        const uint start = starts[OUTPUT_HEAD + row], end = starts[OUTPUT_HEAD + row + 1u];
        if (i < end - start)
            ((GLOBAL uint *)job_area(arena, area + 1u))[start + i] = value;
    }
}

// ---- state ----
//
// Records by slot, of each stage and each worker's shard. Words of the state: [0] where the spare record is, [1] how many
// shards there are; from word STATE_DIRECTORY on, for each state and shard: where its list is and how many slots it has.
// The list says where the shard's steps are, each of so many slots. Places are in units of 64 bytes.

#define STATE_DIRECTORY 16u
#define STATE_UNIT 64ul

FN GLOBAL const uint *state_entry(GLOBAL const uchar *state, uint number, uint shard)
{
    GLOBAL const uint *head = (GLOBAL const uint *)state;
    return head + STATE_DIRECTORY + 2u * (number * head[1] + shard);
}

// How many slots of a state a shard has.
FN uint state_slots(GLOBAL const uchar *state, uint number, uint shard)
{
    return shard < ((GLOBAL const uint *)state)[1] ? state_entry(state, number, shard)[1] : 0u;
}

// The record of a slot. A slot that the shard has not gets the spare record, which means nothing.
FN GLOBAL uchar *state_record(GLOBAL uchar *state, uint number, uint shard, uint slot, uint slots_per_step,
                              uint record_bytes)
{
    if (slot >= state_slots(state, number, shard))
        return state + STATE_UNIT * ((GLOBAL const uint *)state)[0];
    GLOBAL const uint *steps = (GLOBAL const uint *)(state + STATE_UNIT * state_entry(state, number, shard)[0]);
    return state + STATE_UNIT * steps[slot / slots_per_step] + (ulong)(slot % slots_per_step) * record_bytes;
}

// ---- the table image ----

// Part of the table image: words of four bytes.
typedef struct {
    GLOBAL const uint *words;
    uint len;
} region_t;

// Region `index` of the image; an empty one where there is none.
FN region_t table_region(GLOBAL const uchar *tables, uint index)
{
    GLOBAL const uint *header = (GLOBAL const uint *)tables;
    region_t region;
    region.words = header;
    region.len = 0u;
    if (LOAD(header + IMAGE_MAGIC_WORD) == IMAGE_MAGIC && index < LOAD(header + IMAGE_REGIONS_WORD)) {
        GLOBAL const uint *entry = header + IMAGE_DIRECTORY_WORD + 2u * index;
        region.words = (GLOBAL const uint *)(tables + (ulong)LOAD(entry) * IMAGE_UNIT_BYTES);
        region.len = LOAD(entry + 1);
    }
    return region;
}

// ---- bytes ----

FN ulong2_t ulong2_of(ulong x, ulong y)
{
    ulong2_t pair;
    pair.x = x;
    pair.y = y;
    return pair;
}

FN uint swap32(uint x)
{
#if defined(__CUDACC__)
    return __byte_perm(x, 0u, 0x0123u);
#else
    return x << 24 | (x << 8 & 0xff0000u) | (x >> 8 & 0xff00u) | x >> 24;
#endif
}

FN uint rotate_left32(uint x, uint by) // by is 1 to 31
{
    return x << by | x >> (32u - by);
}

FN ulong rotate_left64(ulong x, uint by) // by is 1 to 63
{
    return x << by | x >> (64u - by);
}

// Four bytes at any offset, in the order of the machine (little-endian). Reads whole aligned words, of
// which each holds one of the four bytes: never beyond memory whose length is a multiple of four.
FN uint load_le32(GLOBAL const uchar *bytes, ulong at)
{
    GLOBAL const uint *words = (GLOBAL const uint *)bytes;
    const uint shift = 8u * ((uint)at & 3u);
    const uint low = words[at >> 2], high = words[(at + 3u) >> 2];
    return shift == 0u ? low : low >> shift | high << (32u - shift);
}

// Four bytes at any offset as a big-endian number.
FN uint load_be32(GLOBAL const uchar *bytes, ulong at)
{
    return swap32(load_le32(bytes, at));
}

FN uint load_be16(GLOBAL const uchar *bytes, ulong at)
{
    return (uint)bytes[at] << 8 | bytes[at + 1u];
}

FN ulong load_be64(GLOBAL const uchar *bytes, ulong at)
{
    return (ulong)load_be32(bytes, at) << 32 | load_be32(bytes, at + 4u);
}

// ---- a row's own bytes ----
//
// For kernels that shall not depend on what lies around a frame: `at` and `len` are the row's columns of the
// payload, `i` counts from the frame's first byte. What lies outside the frame is 0, and is not written.

FN uint payload_byte(GLOBAL const uchar *payload, uint at, uint len, uint i)
{
    return i < len ? (uint)payload[(ulong)at + i] : 0u;
}

FN void payload_set_byte(GLOBAL uchar *payload, uint at, uint len, uint i, uint value)
{
    if (i < len)
        payload[(ulong)at + i] = (uchar)value;
}

// Four bytes from `i` on, in the order of the machine (little-endian).
FN uint payload_le32(GLOBAL const uchar *payload, uint at, uint len, uint i)
{
    if (i >= len)
        return 0u;
    const uint there = len - i;
    const uint word = load_le32(payload, (ulong)at + i); // of the words that hold the frame's bytes
    return there >= 4u ? word : word & (0xffffffffu >> (32u - 8u * there));
}

// The same as a big-endian number.
FN uint payload_be32(GLOBAL const uchar *payload, uint at, uint len, uint i)
{
    return swap32(payload_le32(payload, at, len, i));
}

// For a kernel over the blocks of 16 bytes of all payload, an item each. `at` and `len`: the columns of the payload, of
// `rows` rows; frames follow one another there, each at a multiple of 16. Whether item `item` has a block of a frame,
// and then the row and the number of the block in the row. The bytes of a row's last block behind the frame are 0.
FN uint payload_block(GLOBAL const uint *at, GLOBAL const uint *len, uint rows, uint item, PRIVATE uint *row,
                      PRIVATE uint *block)
{
    uint low = 0u, high = item < 0x10000000u ? rows : 0u; // rows that start at or before the block
    const uint place = 16u * item;
    while (low < high) {
        const uint middle = low + (high - low) / 2u;
        if (at[middle] <= place)
            low = middle + 1u;
        else
            high = middle;
    }
    if (low == 0u)
        return 0u;
    *row = low - 1u;
    *block = (place - at[low - 1u]) / 16u;
    return place - at[low - 1u] < len[low - 1u];
}

// ---- verdicts ----

#define IS_NEXT(verdict) ((verdict) == VERDICT_NEXT)

// ---- a stage's own names ----

#define OWN__(name, number) name##_of_##number
#define OWN_(name, number) OWN__(name, number)
#define OWN(name) OWN_(name, STAGE_NUMBER)
