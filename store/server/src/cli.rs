//! Which commands and options are there?

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand};
use porch_engine::{LIMIT_BYTES_MAX, LIMIT_BYTES_MIN};
use tracing::level_filters::LevelFilter;

use crate::{
    command::{
        backup::BackupArgs,
        check::CheckArgs,
        completions::CompletionsArgs,
        forget::ForgetArgs,
        inspect::{EXAMPLES, InspectArgs},
        reset::ResetArgs,
        settle::SettleArgs,
        stats::StatsArgs,
        walk::WalkArgs,
    },
    log,
    tls::TlsArgs,
};

/// Durable rate limits and idempotency keys for porch filters: keeps counters, records and time in one file.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the store until SIGTERM or SIGINT.
    Serve(ServeArgs),
    /// Show row counts, one bucket's window, and one key's record.
    #[command(after_help = EXAMPLES)]
    Inspect(InspectArgs),
    /// Show how full the store is, and what it has answered since it started.
    Stats(StatsArgs),
    /// Remove a key's record, so that a retry executes. A lease that is out is fenced: what its claim completes is
    /// refused.
    Forget(ForgetArgs),
    /// Settle a record whose outcome is unknown, after a look at upstream. Exit code 1 when there is none such.
    Settle(SettleArgs),
    /// Take back all that a bucket has counted. Workers that remember it as spent go on refusing until its window would
    /// have ended.
    Reset(ResetArgs),
    /// Copy the data file, compacted and as of one moment, while the store runs.
    Backup(BackupArgs),
    /// Look at every row: its checksum, the index against the tables, the responses against the records. Exit code 1
    /// when anything is wrong.
    Check(CheckArgs),
    /// Read every page of a data directory that no store writes to: how `serve` looks before it leaps.
    #[command(hide = true)]
    Walk(WalkArgs),
    /// Print a script that completes this command line in a shell.
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The data directory; made when it is missing. One store at a time.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,

    /// Where filters connect: `unix:PATH` or `tcp:HOST:PORT`. TCP needs TLS, or --insecure.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: ListenAddress,

    /// The permissions of a listening unix socket, in octal: who may connect, may count and claim.
    #[arg(long, value_name = "OCTAL", default_value = "600", value_parser = octal_mode)]
    pub(crate) listen_mode: u32,

    /// The group of a listening unix socket, by name or number, for --listen-mode 660 [default: this process' own]
    #[arg(long, value_name = "GROUP")]
    pub(crate) listen_group: Option<String>,

    /// Where operators' commands connect; always with mode 600 [default: admin.sock in DIR]
    #[arg(long, value_name = "unix:PATH")]
    pub(crate) admin: Option<UnixAddress>,

    /// The most buckets to hold in memory, about 150 bytes each. Those used longest ago go to the file.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) memory_buckets: u32,

    /// How much of the data file counters may take, such as 512MiB; about 130 bytes a bucket. Beyond, new buckets are
    /// answered UNAVAILABLE until others expire; buckets that are there go on counting.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = limit)]
    pub(crate) max_counter_bytes: u64,

    /// How much of the data file records and their responses may take. Beyond, new keys are answered UNAVAILABLE until
    /// others expire; replays and completions go on. The file may become half again as large as both limits together.
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = limit)]
    pub(crate) max_record_bytes: u64,

    /// Where /metrics, /healthz and /readyz are answered, over plain HTTP: a port, or HOST:PORT [default host: 127.0.0.1;
    /// off unless given]
    #[arg(long, value_name = "[HOST:]PORT", value_parser = metrics_address)]
    pub(crate) metrics: Option<String>,

    /// How much to log: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: LevelFilter,

    /// How a line of the log looks.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: log::Format,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Which store.
#[derive(Debug, Args)]
#[group(id = "store", required = true, multiple = false)]
pub(crate) struct StoreArgs {
    /// The store's data directory. When a store runs on it, that one is asked, at the socket admin.sock in it; else
    /// the directory is opened.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// The running store's admin socket.
    #[arg(long, value_name = "unix:PATH")]
    pub(crate) admin: Option<UnixAddress>,
}

/// `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnixAddress(pub(crate) PathBuf);

impl UnixAddress {
    /// The default admin socket of a data directory.
    pub(crate) fn admin_in(data: &std::path::Path) -> Self {
        Self(data.join("admin.sock"))
    }
}

impl FromStr for UnixAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self(PathBuf::from(path))),
            Some(_) | None => Err(format!(
                "expected `unix:` and the path of a socket, came `{text}`"
            )),
        }
    }
}

/// `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Unix(PathBuf),
    Tcp(String),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(address) = text.strip_prefix("tcp:")
            && is_host_and_port(address)
        {
            return Ok(Self::Tcp(address.to_owned()));
        }
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            Some(_) | None => Err(format!(
                "expected `unix:PATH` or `tcp:HOST:PORT`, came `{text}`"
            )),
        }
    }
}

fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn metrics_address(text: &str) -> Result<String, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if port.parse::<u16>().is_ok() {
        Ok(format!("127.0.0.1:{port}"))
    } else if is_host_and_port(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected PORT or HOST:PORT, came `{text}`"))
    }
}

/// Bytes, with or without a binary unit.
fn limit(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let unit = UNITS
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let bytes = number.parse::<u64>().ok();
    bytes
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (LIMIT_BYTES_MIN..=LIMIT_BYTES_MAX).contains(bytes))
        .ok_or_else(|| {
            format!("expected 1MiB to 16TiB, such as 512MiB, 4GiB or 4294967296, came `{text}`")
        })
}

fn octal_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        Ok(_) | Err(_) => Err(format!(
            "expected permissions in octal, such as 660, came `{text}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn limits_are_read_with_and_without_a_unit() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("1024KiB", 1 << 20),
            ("3MiB", 3 << 20),
            ("4GiB", 4 << 30),
            ("16TiB", 1 << 44),
        ] {
            assert_eq!(limit(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bad_values_are_told_with_what_was_expected() {
        let error = |args: &[&str]| Cli::try_parse_from(args).unwrap_err().to_string();
        let serve = ["porch-store", "serve", "--data", "d", "--listen"];
        for wrong in ["tcp:1", "tcp::1", "tcp:h:x", "unix:", "h:1"] {
            let told = error(&[&serve[..], &[wrong]].concat());
            assert!(told.contains("expected `unix:PATH` or"), "{told}");
        }
        let told = error(&[&serve[..], &["unix:s", "--metrics", "here"]].concat());
        assert!(told.contains("expected PORT or HOST:PORT"), "{told}");
        let told = error(&[&serve[..], &["unix:s", "--listen-mode", "888"]].concat());
        assert!(told.contains("in octal"), "{told}");
        for bad in ["4GB", "1023KiB", "17TiB", "99999999999999TiB", ""] {
            let told = error(&[&serve[..], &["unix:s", "--max-counter-bytes", bad]].concat());
            assert!(told.contains("expected 1MiB to 16TiB"), "{bad}: {told}");
        }
        let told = error(&["porch-store", "inspect", "--data", "d", "--bucket", "zz"]);
        assert!(told.contains("64 hexadecimal digits"), "{told}");
    }

    #[test]
    fn addresses_are_read() {
        let tcp = |address: &str| Ok(ListenAddress::Tcp(address.to_owned()));
        assert_eq!("tcp:[::1]:9".parse(), tcp("[::1]:9"));
        assert_eq!("tcp:store.example:9".parse(), tcp("store.example:9"));
        assert_eq!("unix:/s".parse(), Ok(ListenAddress::Unix("/s".into())));
        let here = Ok("127.0.0.1:9090".to_owned());
        assert_eq!(metrics_address("9090"), here);
        assert_eq!(metrics_address(":9090"), here);
        assert_eq!(metrics_address("[::]:9090"), Ok("[::]:9090".to_owned()));
    }
}
