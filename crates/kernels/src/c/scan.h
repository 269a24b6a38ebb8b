// Sums over a group. Every item of the group must come here.

// Sum of the values of the items before this one; sums[GROUP_ITEMS - 1] is the sum of all. A BARRIER has
// to stand before `sums` is written again.
FN uint group_sum_before(LOCAL_PTR uint *sums, uint value)
{
    sums[ITEM_ID] = value;
    BARRIER();
    for (uint step = 1u; step < GROUP_ITEMS; step <<= 1) {
        const uint before = ITEM_ID >= step ? sums[ITEM_ID - step] : 0u;
        BARRIER();
        sums[ITEM_ID] += before;
        BARRIER();
    }
    return sums[ITEM_ID] - value;
}

// Replaces `len` values by the sums of those before each, with one group; returns the sum of all.
FN uint group_scan(LOCAL_PTR uint *sums, GLOBAL uint *values, uint len)
{
    uint carry = 0u;
    for (uint start = 0u; start < len; start += GROUP_ITEMS) { // the same turns for every item
        const uint at = start + ITEM_ID;
        const uint value = at < len ? values[at] : 0u;
        const uint before = group_sum_before(sums, value);
        const uint total = sums[GROUP_ITEMS - 1u];
        if (at < len)
            values[at] = carry + before;
        carry += total;
        BARRIER();
    }
    return carry;
}
