// The hash table of a module (GASPP §3.2), shared by all packets of a worker; its twin is controlplane::module::Table.
//
// Entries of a key and a value, 32 bits each; key 0 is an empty entry and no key. Open addressing: a key has one of the
// TABLE_PROBES entries from its hash on. Entries stay, so a key that is seen once is seen by all. Every word is read and written
// by atomic operations alone, and nothing waits.

#define TABLE_PROBES 16u
#define TABLE_NONE 0xffffffffu

FN uint own_hash(uint key)
{
    uint hash = key * 0x9e3779b1u;
    hash ^= hash >> 15;
    hash *= 0x85ebca77u;
    return hash ^ hash >> 13;
}

// The entry of a key, which is made if `makes`; TABLE_NONE where there is none, or no room.
FN uint own_entry(GLOBAL uint *table, uint mask, uint key, uint makes)
{
    const uint first = own_hash(key);
    for (uint i = 0u; key != 0u && i < TABLE_PROBES; i++) {
        const uint at = (first + i) & mask;
        const uint was = (uint)ATOMIC_CAS(&table[2u * at], 0u, makes != 0u ? key : 0u);
        if (was == key || (was == 0u && makes != 0u))
            return at;
        if (was == 0u)
            return TABLE_NONE;
    }
    return TABLE_NONE;
}

FN uint own_table_find(GLOBAL uint *table, uint mask, uint key, uint otherwise)
{
    const uint at = own_entry(table, mask, key, 0u);
    return at == TABLE_NONE ? otherwise : (uint)ATOMIC_ADD(&table[2u * at + 1u], 0u);
}

FN uint own_table_add(GLOBAL uint *table, uint mask, uint key, uint value, PRIVATE uint *error)
{
    const uint at = own_entry(table, mask, key, 1u);
    *error |= at == TABLE_NONE;
    return at == TABLE_NONE ? 0u : (uint)ATOMIC_ADD(&table[2u * at + 1u], value);
}

FN uint own_table_cas(GLOBAL uint *table, uint mask, uint key, uint expected, uint value, PRIVATE uint *error)
{
    const uint at = own_entry(table, mask, key, 1u);
    *error |= at == TABLE_NONE;
    return at == TABLE_NONE ? 0u : (uint)ATOMIC_CAS(&table[2u * at + 1u], expected, value);
}

// A value of 0 is none: nothing is done then.
FN uint own_table_insert(GLOBAL uint *table, uint mask, uint key, uint value, PRIVATE uint *error)
{
    if (value == 0u)
        return 0u;
    const uint at = own_entry(table, mask, key, 1u);
    *error |= at == TABLE_NONE;
    return at != TABLE_NONE && (uint)ATOMIC_CAS(&table[2u * at + 1u], 0u, value) == 0u;
}
