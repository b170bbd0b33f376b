//! The engine's halves together: a front and a store, driven batch by batch.

// `cfg(test)` lets clippy see that helpers are tests too.
#[cfg(test)]
mod counters;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod format;
#[cfg(test)]
mod operator;
mod parked;
#[cfg(test)]
mod records;
#[cfg(test)]
mod replays;
#[cfg(test)]
mod space;
