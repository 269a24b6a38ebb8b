//! Packet builders, namespaces and golden cases for tests.
