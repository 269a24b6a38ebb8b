//! Packet queues: captures, memory, generator, AF_PACKET, AF_XDP, TAP.
