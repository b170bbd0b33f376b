//! What the store promises, by the faults that might break it. The short forms; `scripts/torture` runs the long ones.

mod faults;
mod table;
mod tortures;
