//! A wall clock that a test can move, for one process alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// libfaketime around a process. It moves the wall clock and leaves the monotonic ones alone, as a jump does.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// A clock that tells the right time, until it is moved.
    ///
    /// # Errors
    /// When libfaketime is not installed.
    pub fn new(directory: &Path) -> anyhow::Result<Self> {
        let library = fs::read_dir("/usr/lib")?
            .filter_map(Result::ok)
            .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
            .find(|library| library.is_file())
            .context("nothing at /usr/lib/*/faketime/libfaketimeMT.so.1; run `scripts/setup`")?;
        let clock = Self {
            library,
            offset: directory.join("wall-clock-offset"),
        };
        clock.shift(0)?;
        Ok(clock)
    }

    /// Puts the wall clock `seconds` ahead of the right time, or behind it.
    ///
    /// # Errors
    /// When the file that holds the offset cannot be written.
    pub fn shift(&self, seconds: i64) -> anyhow::Result<()> {
        // Renamed into place, so that no reader sees half of it.
        let next = self.offset.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n"))?;
        fs::rename(&next, &self.offset).with_context(|| format!("{}", self.offset.display()))
    }

    /// Puts a command under this clock.
    pub fn around(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.offset)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Seconds since 1970 as a process under this clock sees them.
    ///
    /// # Errors
    /// When `date` cannot be run.
    pub fn now_s(&self) -> anyhow::Result<i64> {
        let mut date = Command::new("date");
        self.around(date.arg("+%s"));
        let output = date.output().context("cannot run date")?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim()
            .parse()
            .with_context(|| format!("date printed {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn moves_the_wall_clock_of_a_process() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let clock = WallClock::new(directory.path()).expect("libfaketime is installed");
        let elapsed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs();
        let right = i64::try_from(elapsed).expect("before the year 292277026596");
        for offset in [0, -7200, 86_400] {
            clock.shift(offset).expect("writes");
            let seen = clock.now_s().expect("date runs") - right;
            assert!(
                (offset..offset + 60).contains(&seen),
                "expected an offset of {offset} s, came {seen}"
            );
        }
    }
}
