//! Counters under durable ceilings and records on LMDB.
