//! What time is it for the store?
//!
//! The logical clock advances with the machine's boottime, which no one can set, and is saved in every commit. While
//! the machine stays up, the wall clock is not looked at; after a reboot the clock goes on from the larger of the
//! wall clock and what was saved. So it never runs backwards, and neither a jump of the wall clock nor a restart
//! opens a window early.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

/// What the machine's clocks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Names this boot of the kernel; all zero when it cannot be read, which equals no other boot.
    pub boot_id: [u8; 16],
    /// Milliseconds since the boot, suspend included.
    pub boottime_ms: u64,
    /// Milliseconds since 1970, as somebody has set them.
    pub wall_ms: u64,
}

impl Machine {
    /// Reads the clocks.
    pub fn read() -> Self {
        Self {
            boot_id: boot_id(),
            boottime_ms: boottime_ms(),
            wall_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| {
                    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
                }),
        }
    }
}

/// A point of the logical clock and the boottime it belongs to, as every commit saves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) boot_id: [u8; 16],
    pub(crate) boottime_ms: u64,
    pub(crate) logical_ms: u64,
}

/// How the clock started: for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing was saved: it starts at the wall clock.
    First,
    /// The machine stayed up: it goes on as if the store had never stopped.
    SameBoot,
    /// Another boot: it starts at the wall clock, the only measure of the time spent off.
    Reboot,
    /// Another boot, and the wall clock lies behind what was saved: it goes on from there.
    RebootBehind,
}

/// The logical clock of a running store. Copies agree: it is a function of the machine's boottime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    boot_id: [u8; 16],
    boottime_ms: u64,
    logical_ms: u64,
}

impl Clock {
    pub(crate) fn start(saved: Option<Saved>, machine: Machine) -> (Self, Start) {
        let (logical_ms, start) = match saved {
            None => (machine.wall_ms, Start::First),
            Some(saved) if same_boot(&saved, &machine) => {
                let gone_ms = machine.boottime_ms.saturating_sub(saved.boottime_ms);
                (saved.logical_ms.saturating_add(gone_ms), Start::SameBoot)
            }
            Some(saved) if machine.wall_ms < saved.logical_ms => {
                (saved.logical_ms, Start::RebootBehind)
            }
            Some(_) => (machine.wall_ms, Start::Reboot),
        };
        let clock = Self {
            boot_id: machine.boot_id,
            boottime_ms: machine.boottime_ms,
            logical_ms,
        };
        (clock, start)
    }

    /// The logical time now, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.at(boottime_ms())
    }

    fn at(&self, boottime_ms: u64) -> u64 {
        self.logical_ms
            .saturating_add(boottime_ms.saturating_sub(self.boottime_ms))
    }

    /// The logical time at which this process started.
    pub(crate) const fn started_ms(&self) -> u64 {
        self.logical_ms
    }

    /// What a commit at `now_ms` saves.
    pub(crate) fn saved(&self, now_ms: u64) -> Saved {
        Saved {
            boot_id: self.boot_id,
            boottime_ms: self
                .boottime_ms
                .saturating_add(now_ms.saturating_sub(self.logical_ms)),
            logical_ms: now_ms,
        }
    }
}

fn same_boot(saved: &Saved, machine: &Machine) -> bool {
    machine.boot_id != [0; 16]
        && saved.boot_id == machine.boot_id
        && machine.boottime_ms >= saved.boottime_ms
}

fn boottime_ms() -> u64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(since.tv_nsec).unwrap_or(0);
    seconds * 1_000 + nanoseconds / 1_000_000
}

fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&hex, 16).map_or([0; 16], u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn machine(boot: u8, boottime_ms: u64, wall_ms: u64) -> Machine {
        Machine {
            boot_id: [boot; 16],
            boottime_ms,
            wall_ms,
        }
    }

    #[test]
    fn a_restart_goes_on_whatever_the_wall_clock_says() {
        let (clock, start) = Clock::start(None, machine(1, 1_000, 500 * HOUR));
        assert_eq!(start, Start::First);
        let saved = clock.saved(clock.at(61_000));
        assert_eq!(saved.logical_ms, 500 * HOUR + 60_000);
        for wall in [0, 500 * HOUR, 999 * HOUR] {
            let (again, start) = Clock::start(Some(saved), machine(1, 71_000, wall));
            assert_eq!(start, Start::SameBoot);
            assert_eq!(again.at(71_000), 500 * HOUR + 70_000);
        }
    }

    #[test]
    fn a_reboot_believes_a_wall_clock_that_is_ahead_and_never_one_that_is_behind() {
        let saved = Saved {
            boot_id: [1; 16],
            boottime_ms: 50_000,
            logical_ms: 500 * HOUR,
        };
        let (ahead, start) = Clock::start(Some(saved), machine(2, 10, 510 * HOUR));
        assert_eq!((ahead.at(10), start), (510 * HOUR, Start::Reboot));
        let (behind, start) = Clock::start(Some(saved), machine(2, 10, 490 * HOUR));
        assert_eq!(
            (behind.at(15), start),
            (500 * HOUR + 5, Start::RebootBehind)
        );
    }

    #[test]
    fn a_boot_that_cannot_be_named_is_another_boot() {
        let saved = Saved {
            boot_id: [0; 16],
            boottime_ms: 50_000,
            logical_ms: 500 * HOUR,
        };
        let (clock, start) = Clock::start(Some(saved), machine(0, 60_000, 0));
        assert_eq!((clock.at(60_000), start), (500 * HOUR, Start::RebootBehind));
    }

    #[test]
    fn what_is_saved_leads_back_to_the_same_time() {
        let (clock, _) = Clock::start(None, machine(1, 1_000, HOUR));
        let saved = clock.saved(clock.at(5_000));
        assert_eq!(saved.boottime_ms, 5_000);
    }

    #[test]
    fn this_machine_has_a_boot_id_and_a_boottime() {
        let machine = Machine::read();
        assert_ne!(machine.boot_id, [0; 16]);
        assert!(machine.boottime_ms > 0);
    }
}
