//! Longest-prefix match and versions of tables.
