//! How is a store backed up?

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use porch_wire::BackupRequest;
use serde_json::json;
use tokio_stream::StreamExt as _;

use super::{
    print,
    progress::{Progress, Unit},
    run as run_command,
};
use crate::{cli::StoreArgs, target::Target};

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// The folder that becomes the backup: a data directory that `serve --data` opens. It must be new or empty.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,

    /// How long it may take, such as 10m [default: 5m beside a running store, whose file grows meanwhile; no limit on a
    /// stopped one]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time_limit: Option<Duration>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Copies the data file as of one moment into a directory of its own.
pub(crate) fn run(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    run_command(&args.store, |mut target| async move {
        let done = backup(&mut target, args).await;
        (target, done)
    })
}

async fn backup(target: &mut Target, args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let to = args.to.display();
    let place = Place::new(&args.to)?;
    let ask = BackupRequest {
        time_limit_ms: limit_ms(args.time_limit),
    };
    let mut pieces = target.backup(ask).await?;
    let mut file = place.create()?;
    let mut progress = Progress::new("backup", Unit::Bytes);
    let mut bytes = 0;
    while let Some(piece) = pieces.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(status) => {
                progress.clear();
                return Err(target.failed(&status));
            }
        };
        file.write_all(&piece.chunk)
            .with_context(|| format!("{}: cannot write", place.partial().display()))?;
        bytes += piece.chunk.len() as u64;
        progress.at(bytes, piece.expected_bytes);
    }
    progress.clear();
    place.finish(&file)?;
    if args.json {
        print::json(&json!({
            "answered_by": target.answered_by(),
            "to": args.to,
            "bytes": bytes,
        }))?;
    } else {
        print::text(&format!(
            "{to}: a backup of {bytes} bytes; `porch-store serve --data {to}` opens it\n"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whole milliseconds, at least 1; 0 says nothing.
pub(super) fn limit_ms(limit: Option<Duration>) -> u64 {
    limit.map_or(0, |limit| {
        u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1)
    })
}

/// Where a backup comes to be. What is not finished is removed.
struct Place<'a> {
    dir: &'a Path,
    made: bool,
    finished: std::cell::Cell<bool>,
}

impl<'a> Place<'a> {
    fn new(dir: &'a Path) -> anyhow::Result<Self> {
        let shown = dir.display();
        let made = match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries =
                    fs::read_dir(dir).with_context(|| format!("{shown}: cannot look into it"))?;
                if entries.next().is_some() {
                    bail!("{shown}: expected a new or empty folder, found files; name another");
                }
                false
            }
            Err(error) => {
                return Err(error).with_context(|| format!("{shown}: cannot make the folder"));
            }
        };
        Ok(Self {
            dir,
            made,
            finished: false.into(),
        })
    }

    fn partial(&self) -> PathBuf {
        self.dir.join("data.mdb.partial")
    }

    fn create(&self) -> anyhow::Result<File> {
        let path = self.partial();
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("{}: cannot make it", path.display()))
    }

    /// Makes it durable, and gives it its name.
    fn finish(&self, file: &File) -> anyhow::Result<()> {
        let finish = || {
            file.sync_all()?;
            fs::rename(self.partial(), self.dir.join("data.mdb"))?;
            File::open(self.dir)?.sync_all()
        };
        finish().with_context(|| format!("{}: cannot make it durable", self.dir.display()))?;
        self.finished.set(true);
        Ok(())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.finished.get() {
            // What cannot be removed is of no use, and its name says so.
            drop(fs::remove_file(self.partial()));
            if self.made {
                drop(fs::remove_dir(self.dir));
            }
        }
    }
}
