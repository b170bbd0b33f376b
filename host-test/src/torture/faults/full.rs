//! What becomes of a store whose file system is full, or read-only?

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context as _, bail, ensure};
use porch_wire::reply::Outcome;
use porch_wire::{Claimed, claimed};

use super::used::fill;
use crate::harness::{PATIENCE, Process, eventually};
use crate::torture::audit::audit;
use crate::torture::client::Client;
use crate::torture::draw;
use crate::torture::ledger::{Deed, Slack};
use crate::torture::load::{self, Shared};
use crate::torture::site::{Running, Site, Started, Wrap};
use crate::torture::tell;

const DISK_BYTES: u64 = 8 << 20;
/// More attempts than the free pages of a full file can take.
const ATTEMPTS_MAX: u64 = 3_000;

/// A small file system at the place of the data directory, seen only by its holder and who enters its namespace; it goes
/// with its holder, however that ends.
struct Disk {
    holder: Process,
    mounted: PathBuf,
}

impl Disk {
    fn mount(site: &Site) -> anyhow::Result<Self> {
        fs::create_dir(site.data())?;
        let ready = site.root().join("mounted");
        let script = "mount -t tmpfs -o size=$1 tmpfs \"$2\" && : > \"$3\" && exec sleep infinity";
        let arrange = |command: &mut Command| {
            command.args(["--mount", "sh", "-c", script, "sh"]);
            command.arg(DISK_BYTES.to_string());
            command.arg(site.data()).arg(&ready);
        };
        let log = site.root().join("disk.log");
        let mut holder = Process::start("the disk", "unshare".as_ref(), arrange, &log)?;
        eventually("a small file system is mounted", PATIENCE, || {
            holder.still_running().context(
                "this test mounts a tmpfs and must be allowed to: run it as root, or in a container with SYS_ADMIN",
            )?;
            Ok(ready.exists().then_some(()))
        })?;
        let root = PathBuf::from(format!("/proc/{}/root", holder.id()));
        let data = site.data();
        Ok(Self {
            holder,
            mounted: root.join(data.strip_prefix("/").unwrap_or(data)),
        })
    }

    fn namespace(&self) -> [String; 2] {
        let id = self.holder.id();
        ["nsenter".to_owned(), format!("--mount=/proc/{id}/ns/mnt")]
    }

    /// Around a store that is to have its data here.
    fn wrap(&self) -> Wrap {
        Wrap::by(self.namespace())
    }

    fn ballast(&self) -> PathBuf {
        self.mounted.join("ballast")
    }

    /// Takes all the room that is left.
    fn fill(&self) -> anyhow::Result<()> {
        let mut ballast = File::create(self.ballast())?;
        loop {
            match ballast.write_all(&[1; 4_096]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).context("filling the disk"),
            }
        }
    }

    fn make_room(&self) -> anyhow::Result<()> {
        fs::remove_file(self.ballast()).context("making room")
    }

    fn make_read_only(&self, site: &Site) -> anyhow::Result<()> {
        let [program, namespace] = self.namespace();
        let mut command = Command::new(program);
        command.arg(namespace).args(["mount", "-o", "remount,ro"]);
        let status = command.arg(site.data()).status()?;
        ensure!(status.success(), "remounting read-only: {status}");
        Ok(())
    }
}

pub(super) async fn full_disk(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = (Site::new()?, Shared::new());
    let disk = Disk::mount(&site)?;
    let mut running = site.start(&disk.wrap())?;
    fill(&site, &shared, seed).await?;
    let mut client = running.connect().await?;
    // A bucket with a reserve of 64 and a ceiling far above its count.
    one(&mut client, &shared, Deed::Admit(vec![(15, 1)])).await?;

    disk.fill()?;
    let claims = until_unavailable(&mut client, &shared).await?;
    running.still_running()?;
    replays_go_on(&mut client, &shared).await?;
    counting_goes_on(&mut client, &shared).await?;
    running.still_running()?;

    disk.make_room()?;
    recovers(&mut client, &shared).await?;
    let keys: Vec<u64> = shared.ledger.borrow().keys.keys().copied().collect();
    let mut source = draw::source(seed, 40);
    audit(&mut client, &shared, &keys, Slack::Reserve, &mut source).await?;
    tell(&format!(
        "full after {claims} more claims; {} UNAVAILABLE",
        shared.ledger.borrow().unavailable
    ));
    kept_over_a_crash(&site, &disk, running, &shared).await
}

async fn kept_over_a_crash(
    site: &Site,
    disk: &Disk,
    running: Running,
    shared: &Rc<Shared>,
) -> anyhow::Result<()> {
    running.kill()?;
    let running = site.start(&disk.wrap())?;
    let mut client = running.connect().await?;
    let keys: Vec<u64> = shared.ledger.borrow().keys.keys().copied().collect();
    let mut source = draw::source(1, 41);
    audit(&mut client, shared, &keys, Slack::Reserve, &mut source).await?;
    running.kill()
}

async fn one(client: &mut Client, shared: &Shared, deed: Deed) -> anyhow::Result<Outcome> {
    load::note_sent(shared, &deed);
    let operation = shared.ledger.borrow().operation(&deed);
    let outcome = client.invoke(operation).await?;
    load::receive(shared, &deed, &outcome)?;
    Ok(outcome)
}

/// Claims and completes new keys until there is no room for one; answers how many there was room for.
async fn until_unavailable(client: &mut Client, shared: &Shared) -> anyhow::Result<u64> {
    for n in 0..ATTEMPTS_MAX {
        let (key, claim) = (shared.new_key(), shared.new_claim());
        for deed in [Deed::Claim { key, claim }, Deed::Complete { key, claim }] {
            if let Outcome::Error(_) = one(client, shared, deed).await? {
                return Ok(n);
            }
        }
    }
    bail!("expected a full disk to answer UNAVAILABLE, and {ATTEMPTS_MAX} claims were granted")
}

async fn replays_go_on(client: &mut Client, shared: &Shared) -> anyhow::Result<()> {
    let done: Vec<u64> = {
        let ledger = shared.ledger.borrow();
        let completed = |key: &crate::torture::ledger::Key| {
            key.claims.values().any(|attempt| attempt.completed)
        };
        let done = ledger.keys.iter().filter(|(_, key)| completed(key));
        done.map(|(key, _)| *key).collect()
    };
    for key in done {
        let claim = shared.new_claim();
        let outcome = one(client, shared, Deed::Claim { key, claim }).await?;
        let kept = matches!(
            outcome,
            Outcome::Claimed(Claimed {
                outcome: Some(claimed::Outcome::Replay(_) | claimed::Outcome::Tombstone(_))
            })
        );
        ensure!(
            kept,
            "on a full disk key {key}: expected its replay, came {outcome:?}"
        );
    }
    Ok(())
}

async fn counting_goes_on(client: &mut Client, shared: &Shared) -> anyhow::Result<()> {
    for hit in 0..20 {
        let outcome = one(client, shared, Deed::Admit(vec![(15, 1)])).await?;
        let Outcome::Admitted(admitted) = &outcome else {
            bail!(
                "on a full disk hit {hit} under the ceiling: expected an admission, came {outcome:?}"
            );
        };
        ensure!(admitted.admitted, "hit {hit} was refused");
    }
    Ok(())
}

async fn recovers(client: &mut Client, shared: &Shared) -> anyhow::Result<()> {
    for _ in 0..200 {
        let (key, claim) = (shared.new_key(), shared.new_claim());
        let claimed = one(client, shared, Deed::Claim { key, claim }).await?;
        if let Outcome::Claimed(_) = claimed {
            let completed = one(client, shared, Deed::Complete { key, claim }).await?;
            ensure!(
                matches!(completed, Outcome::Completed(_)),
                "there is room again: expected a completion, came {completed:?}"
            );
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    bail!("there is room again, and claims are still refused")
}

pub(super) async fn read_only(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = (Site::new()?, Shared::new());
    let disk = Disk::mount(&site)?;
    let running = site.start(&disk.wrap())?;
    fill(&site, &shared, seed).await?;
    running.kill()?;
    disk.make_read_only(&site)?;
    let data = site.data().display().to_string();
    refused(&site, &disk.wrap())?.check(&[&data])?;
    // A directory of somebody else is as bad.
    let other = Site::new()?;
    other.start(&Wrap::default())?.kill()?;
    other.open_to_all()?;
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let data = other.data().display().to_string();
    refused(&other, &Wrap::by(nobody))?.check(&[&data])
}

fn refused(site: &Site, wrap: &Wrap) -> anyhow::Result<crate::torture::site::Ended> {
    match site.try_start(wrap)? {
        Started::Ended(ended) => Ok(ended),
        Started::Listens(_) => bail!("expected it not to start, and it takes connections"),
    }
}
