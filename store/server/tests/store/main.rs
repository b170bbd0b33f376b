//! The real binary, over its sockets: what filters and operators see, across stops, kills and damaged files.

mod client;
mod commands;
mod inspect;
mod limiter;
mod opening;
mod process;
mod protocol;
mod reads;
mod records;
mod tls;
mod watch;
