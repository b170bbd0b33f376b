//! Every decision: no I/O, no clock.
