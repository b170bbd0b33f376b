//! What becomes of a data file that was damaged while the store was away?

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use rand::RngExt as _;

use super::used::{Left, used, what_is_left, whole};
use crate::torture::load::Shared;
use crate::torture::site::{Ended, Site, Started, Wrap};
use crate::torture::{Extent, Plan, draw, tell};

const PAGE: usize = 4_096;

/// A start that is to be refused.
fn refused(site: &Site) -> anyhow::Result<Ended> {
    match site.try_start(&Wrap::default())? {
        Started::Ended(ended) => Ok(ended),
        Started::Listens(_) => bail!("expected it not to start, and it takes connections"),
    }
}

fn put_back(file: &Path, kept: &[u8]) -> anyhow::Result<()> {
    fs::write(file, kept).with_context(|| format!("{}", file.display()))
}

pub(super) async fn truncated(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = used(seed).await?;
    let kept = fs::read(site.file())?;
    let mut failed = Vec::new();
    let pages = kept.len() / PAGE;
    for page in 1..pages {
        put_back(&site.file(), &kept[..page * PAGE])?;
        if let Err(error) = cut_off(&site, &shared, seed).await {
            failed.push(format!("{page} of {pages} pages are left: {error:#}"));
        }
    }
    all_stood(&failed, pages)?;
    put_back(&site.file(), &kept)?;
    whole(&site, &shared).await
}

/// Either it is noticed, or what was cut off held nothing.
async fn cut_off(site: &Site, shared: &Shared, seed: u64) -> anyhow::Result<()> {
    match site.try_start(&Wrap::default())? {
        Started::Ended(ended) => ended.check(&["data.mdb"]),
        Started::Listens(running) => {
            let left = what_is_left(running, shared, seed).await?;
            ensure!(
                left == Left::default(),
                "expected it not to start, and it started and then had {left:?}"
            );
            Ok(())
        }
    }
}

pub(super) async fn damaged(plan: Plan) -> anyhow::Result<()> {
    let (site, shared) = used(plan.seed).await?;
    let kept = fs::read(site.file())?;
    let pages = kept.len() / PAGE;
    let mut source = draw::source(plan.seed, 23);
    let (mut refusals, mut rows, mut ends, mut failed) = (0, 0, 0, Vec::new());
    // Zeros and noise; the short form takes turns.
    let all = (0..pages).flat_map(|page| [(page, false), (page, true)]);
    for (page, noise) in all {
        if plan.extent == Extent::Short && noise != (page % 3 == 1) {
            continue;
        }
        let mut damaged = kept.clone();
        let hit = &mut damaged[page * PAGE..(page + 1) * PAGE];
        hit.fill(0);
        if noise {
            source.fill(hit);
        }
        put_back(&site.file(), &damaged)?;
        let outcome = match site.try_start(&Wrap::default())? {
            Started::Ended(ended) => {
                refusals += 1;
                ended.check(&["data.mdb"])
            }
            Started::Listens(running) => {
                let left = what_is_left(running, &shared, plan.seed).await;
                left.map(|left| {
                    rows += left.refused;
                    ends += usize::from(left.ended);
                })
            }
        };
        if let Err(error) = outcome {
            let what = if noise { "noise" } else { "zeros" };
            failed.push(format!("{what} in page {page} of {pages}: {error:#}"));
        }
    }
    tell(&format!(
        "damage to each of {pages} pages: {refusals} not started, {rows} rows refused, {ends} ended later"
    ));
    all_stood(&failed, pages)?;
    put_back(&site.file(), &kept)?;
    whole(&site, &shared).await
}

fn all_stood(failed: &[String], of: usize) -> anyhow::Result<()> {
    ensure!(
        failed.is_empty(),
        "{} of {of} pages:\n  {}",
        failed.len(),
        failed.join("\n  ")
    );
    Ok(())
}

pub(super) async fn garbage(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = used(seed).await?;
    let kept = fs::read(site.file())?;
    let mut noise = vec![0_u8; kept.len()];
    draw::source(seed, 24).fill(&mut noise[..]);
    let text = b"SQLite format 3\0".repeat(kept.len() / 16);
    let mut other_version = kept.clone();
    for meta in [0, PAGE] {
        other_version[meta + 20] = 2;
    }
    for (what, content) in [
        ("noise", noise),
        ("another program's file", text),
        ("one byte", vec![7]),
        ("another version of LMDB's format", other_version),
    ] {
        put_back(&site.file(), &content)?;
        refused(&site)?.check(&["data.mdb"]).context(what)?;
    }
    put_back(&site.file(), &kept)?;
    whole(&site, &shared).await
}

pub(super) async fn empty(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = used(seed).await?;
    let kept = fs::read(site.file())?;
    put_back(&site.file(), &[])?;
    refused(&site)?.check(&["data.mdb", "0 bytes", "porch.marker"])?;
    put_back(&site.file(), &kept)?;
    whole(&site, &shared).await
}

pub(super) async fn missing(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = used(seed).await?;
    let kept = fs::read(site.file())?;
    fs::remove_file(site.file())?;
    refused(&site)?.check(&["data.mdb", "missing", "porch.marker"])?;
    ensure!(
        !site.file().exists(),
        "expected nothing in the missing file's place, and the store has made one"
    );
    put_back(&site.file(), &kept)?;
    whole(&site, &shared).await
}

pub(super) async fn second_process(seed: u64) -> anyhow::Result<()> {
    let (site, shared) = used(seed).await?;
    let mut first = site.start(&Wrap::default())?;
    // Elsewhere, so that it is the directory that is in its way and not the socket.
    let elsewhere = format!("unix:{}", site.root().join("second.sock").display());
    let second = site.run_beside(&Wrap::default().options(["--listen", &elsewhere]))?;
    second.check(&["porch.lock", "locked by another process"])?;
    first.still_running()?;
    let mut client = first.connect().await?;
    let peek = crate::torture::ledger::Deed::Admit(vec![(0, 0)]);
    let operation = shared.ledger.borrow().operation(&peek);
    client.ask(operation).await?;
    first.kill()?;
    whole(&site, &shared).await
}
