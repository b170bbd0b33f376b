//! What was the disk told, and when? The store's writes and flushes, as `strace` saw them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::torture::site::{Site, Wrap};

const NANOS: u64 = 1_000_000_000;

/// One thing that the disk was told.
#[derive(Clone, Debug)]
pub(in crate::torture) struct Event {
    /// When the call returned, since 1970.
    pub(in crate::torture) returned: Duration,
    pub(in crate::torture) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::torture) enum What {
    /// Written to the page cache.
    Write { at: usize, bytes: Vec<u8> },
    /// Written by a descriptor opened with `O_DSYNC`: on the disk when the call returned.
    Durable { at: usize, bytes: Vec<u8> },
    /// Everything written before is on the disk.
    Flush,
    /// The marker file is on the disk.
    Marker,
}

/// `strace` around a store: notes what becomes of its data file and its marker, a file a thread.
pub(in crate::torture) fn recorder(site: &Site) -> Wrap {
    let mut words: Vec<OsString> = [
        "strace",
        // The store stays our own child.
        "--daemonize",
        "--follow-forks",
        "--output-separately",
        "--seccomp-bpf",
        "--strings-in-hex=all",
        "--string-limit=4194304",
        "--absolute-timestamps=format:unix,precision:ns",
        "--syscall-times=ns",
        "--signal=none",
        "--trace=openat,pwrite64,pwritev,writev,lseek,fdatasync,fsync,ftruncate,msync",
    ]
    .map(OsString::from)
    .into();
    for path in [site.file(), site.data().join("porch.marker")] {
        words.extend(["--trace-path".into(), path.into()]);
    }
    words.extend(["--output".into(), site.root().join("trace").into()]);
    Wrap::by(words)
}

/// Reads what the recorder has noted, in the order in which the calls returned.
pub(in crate::torture) fn read(site: &Site) -> anyhow::Result<Vec<Event>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(site.root())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("trace.") {
            lines.extend(parse_file(&path)?);
        }
    }
    lines.sort_by_key(|line| line.returned);
    let mut events = Vec::new();
    let mut files = Files::default();
    for line in lines {
        let returned = line.returned;
        let what = files
            .follow(&line)
            .with_context(|| format!("in the trace: {}", line.head()))?;
        events.extend(what.map(|what| Event { returned, what }));
    }
    ensure!(!events.is_empty(), "the trace has no write in it");
    Ok(events)
}

/// A call that has returned.
struct Line {
    returned: Duration,
    name: String,
    /// Between the parentheses.
    arguments: String,
    result: i64,
}

impl Line {
    fn head(&self) -> String {
        let arguments = self.arguments.chars().take(60);
        format!("{}({}...)", self.name, arguments.collect::<String>())
    }
}

fn parse_file(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let mut lines = Vec::new();
    for line in text.lines() {
        // Signals and exits are no calls; a call that a kill cut off has not returned.
        if line.contains("+++") || line.contains("---") || line.ends_with('?') {
            continue;
        }
        lines.push(parse(line).with_context(|| {
            let head: String = line.chars().take(100).collect();
            format!("{}: cannot read: {head}", path.display())
        })?);
    }
    Ok(lines)
}

/// `SECONDS.NANOS NAME(ARGUMENTS) = RESULT <SECONDS.NANOS>`.
fn parse(line: &str) -> Option<Line> {
    let (began, rest) = line.split_once(' ')?;
    let (rest, took) = rest.strip_suffix('>')?.rsplit_once(" <")?;
    let (call, result) = rest.rsplit_once(" = ")?;
    let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
    let result = result.split(' ').next()?.parse().ok()?;
    Some(Line {
        returned: time(began)? + time(took)?,
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        result,
    })
}

fn time(text: &str) -> Option<Duration> {
    let (seconds, nanos) = text.split_once('.')?;
    let nanos = nanos.parse::<u64>().ok().filter(|nanos| *nanos < NANOS)?;
    Some(Duration::from_secs(seconds.parse().ok()?) + Duration::from_nanos(nanos))
}

/// Which descriptor is what.
#[derive(Default)]
struct Files {
    open: HashMap<i64, Kind>,
    /// Where the next `writev` of a descriptor goes.
    at: HashMap<i64, usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    DataDurable,
    Marker,
}

impl Files {
    fn follow(&mut self, line: &Line) -> anyhow::Result<Option<What>> {
        ensure!(line.result >= 0, "the call failed, and nothing was to fail");
        let arguments = &line.arguments;
        if line.name == "openat" {
            self.opened(arguments, line.result)?;
            return Ok(None);
        }
        let (descriptor, rest) = arguments.split_once(", ").unwrap_or((arguments, ""));
        let descriptor: i64 = descriptor.parse()?;
        let Some(kind) = self.open.get(&descriptor).copied() else {
            return Ok(None);
        };
        let written = usize::try_from(line.result)?;
        let write = |at, bytes: Vec<u8>| {
            ensure!(
                bytes.len() == written,
                "expected {} bytes written, came {written}",
                bytes.len()
            );
            Ok(Some(match kind {
                Kind::DataDurable => What::Durable { at, bytes },
                Kind::Data | Kind::Marker => What::Write { at, bytes },
            }))
        };
        match (line.name.as_str(), kind) {
            ("fdatasync" | "fsync", Kind::Marker) => Ok(Some(What::Marker)),
            ("fdatasync" | "fsync", Kind::Data | Kind::DataDurable) => Ok(Some(What::Flush)),
            (_, Kind::Marker) => Ok(None),
            ("lseek", _) => {
                self.at.insert(descriptor, written);
                Ok(None)
            }
            ("pwrite64" | "pwritev", _) => write(last_number(rest)?, strings(rest)?),
            ("writev", _) => {
                let at = self.at.entry(descriptor).or_default();
                let from = *at;
                *at += written;
                write(from, strings(rest)?)
            }
            (other, _) => bail!("expected no {other} of the data file"),
        }
    }

    fn opened(&mut self, arguments: &str, descriptor: i64) -> anyhow::Result<()> {
        let path = String::from_utf8(strings(arguments)?)?;
        let kind = if path.ends_with("porch.marker") {
            Kind::Marker
        } else if path.ends_with("data.mdb") && arguments.contains("O_DSYNC") {
            Kind::DataDurable
        } else if path.ends_with("data.mdb") {
            Kind::Data
        } else {
            self.open.remove(&descriptor);
            return Ok(());
        };
        self.open.insert(descriptor, kind);
        self.at.insert(descriptor, 0);
        Ok(())
    }
}

fn last_number(arguments: &str) -> anyhow::Result<usize> {
    let last = arguments.rsplit(", ").next();
    Ok(last.context("an argument")?.parse()?)
}

/// All strings among the arguments, put together; each is `"\x..\x.."`.
fn strings(arguments: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for quoted in arguments.split('"').skip(1).step_by(2) {
        for digits in quoted.split("\\x").skip(1) {
            bytes.push(u8::from_str_radix(digits, 16).context("two hexadecimal digits")?);
        }
    }
    ensure!(
        !arguments.contains("\"..."),
        "a string was cut off: raise --string-limit"
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_with_its_bytes_and_its_time() {
        let line = r#"12.000000005 writev(5, [{iov_base="\x01\x02", iov_len=2}, {iov_base="\xff", iov_len=1}], 2) = 3 <0.000000007>"#;
        let line = parse(line).expect("a call");
        assert_eq!(line.returned, Duration::new(12, 12));
        assert_eq!((line.name.as_str(), line.result), ("writev", 3));
        assert_eq!(strings(&line.arguments).expect("bytes"), [1, 2, 255]);
    }

    #[test]
    fn a_cut_string_is_noticed() {
        assert!(strings(r#"5, "\x01"..., 4096, 0"#).is_err());
    }
}
