//! What becomes of a store whose disk answers EIO?

use anyhow::ensure;

use super::used::{fill, whole};
use crate::torture::draw;
use crate::torture::load::{self, Shared};
use crate::torture::site::{Running, Site, Wrap};
use crate::torture::tell;

/// `strace` around a store: the `when`-th of these calls for the data file, and those after it, fail.
fn injector(site: &Site, calls: &str, error: &str, when: &str) -> Wrap {
    let file = site.file();
    Wrap::by([
        "strace",
        "--daemonize",
        "--follow-forks",
        "--seccomp-bpf",
        "--quiet=all",
        "--signal=none",
        "--output=/dev/null",
        &format!("--trace={calls}"),
        &format!("--trace-path={}", file.display()),
        &format!("--inject={calls}:error={error}:when={when}"),
    ])
}

/// Puts load on the store until it ends by itself.
async fn until_it_ends(site: &Site, shared: &Shared, seed: u64) -> anyhow::Result<()> {
    load::client(
        &site.socket(),
        shared,
        draw::source(seed, 30),
        2_000,
        usize::MAX,
    )
    .await
}

async fn ends(calls: &str, error: &str, when: &str, seed: u64) -> anyhow::Result<()> {
    let (site, shared) = (Site::new()?, Shared::new());
    let running: Running = site.start(&injector(&site, calls, error, when))?;
    until_it_ends(&site, &shared, seed).await?;
    let ended = running.ended()?;
    ended.check(&["data.mdb"])?;
    let promises = shared.ledger.borrow().promises;
    ensure!(promises > 0, "the fault came before anything was promised");
    tell(&format!(
        "{calls} number {when} answered {error}: ended after {promises} promises"
    ));
    whole(&site, &shared).await
}

pub(super) async fn flush_fails(seed: u64) -> anyhow::Result<()> {
    // Once: the next one succeeds as if nothing had happened.
    for when in ["5", "17"] {
        ends("fdatasync", "EIO", when, seed).await?;
    }
    Ok(())
}

pub(super) async fn write_fails(seed: u64) -> anyhow::Result<()> {
    for when in ["9", "24"] {
        ends("pwrite64,writev", "EIO", when, seed).await?;
    }
    passes(seed).await
}

/// ENOSPC is a full disk and no broken one: the store goes on, and recovers.
async fn passes(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = (Site::new()?, Shared::new());
    let mut running = site.start(&injector(&site, "pwrite64,writev", "ENOSPC", "12..17"))?;
    fill(&site, &shared, seed).await?;
    running.still_running()?;
    let refused = shared.ledger.borrow().unavailable;
    ensure!(
        refused > 0,
        "expected some calls to be UNAVAILABLE, none was"
    );
    running.kill()?;
    whole(&site, &shared).await
}
