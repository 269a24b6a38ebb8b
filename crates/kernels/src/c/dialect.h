// One C for NVRTC (CUDA C++) and OpenCL C 1.2.
//
// Rules. Every pointer carries its address space. Memory that a group shares is declared at kernel
// scope, with LOCAL. BARRIER stands in uniform control flow only: work items beyond the last row carry a
// `live` flag to the end instead of returning. 32-bit atomics only. Nothing depends on the width of a
// warp. No includes, templates, vectors of three, bool or size_t arguments.
//
// Each kernel takes the same arguments: arena (a job's header and columns), payload (packets' bytes),
// tables (one table image), state (state or scratch), job (a number that the kernel explains).

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

// ---- verdicts ----

#define IS_NEXT(verdict) ((verdict) == VERDICT_NEXT)
