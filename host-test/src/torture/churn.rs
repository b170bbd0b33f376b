//! Does the file stay flat when every key is new, and expires?
//!
//! Generation after generation is written and expires before the next; so what lives at any time is one generation.

use std::ops::Range;
use std::time::Duration;

use anyhow::{bail, ensure};
use bytes::Bytes;
use porch_wire::call::Operation;
use porch_wire::complete::Outcome as Completion;
use porch_wire::reply::Outcome;
use porch_wire::{Admit, Claim, Complete, Hit, claimed};

use super::client::Client;
use super::site::{Running, Site, Wrap};
use super::{Extent, Plan, draw, tell};

/// A response that fills a chunk of the store's, with its header lines.
const BODY_BYTES: usize = 65_400;
/// One row of the table of bodies: 16 pages less LMDB's header.
const CHUNK_BYTES: u64 = 65_520;
/// A record's row and its entry in the index.
const RECORD_BYTES: u64 = 32 + 101 + 41;
/// More than the live data, in percent.
const FILE_PERCENT_MAX: u64 = 150;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Records,
    Buckets,
}

pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let (generations, records, buckets, life) = match plan.extent {
        Extent::Short => (3, 128, 20_000, Duration::from_secs(5)),
        Extent::Long => (12, 1_024, 50_000, Duration::from_secs(12)),
    };
    super::block_on(async move {
        let (of_records, of_buckets) = tokio::try_join!(
            churn(Kind::Records, records, generations, life),
            churn(Kind::Buckets, buckets, generations, life)
        )?;
        let needed = records * (CHUNK_BYTES + RECORD_BYTES);
        check(Kind::Records, &of_records, needed)?;
        // What the rows of one generation take in a file that has held nothing else.
        let needed = of_buckets.first().copied().unwrap_or(0);
        check(Kind::Buckets, &of_buckets, needed)
    })
}

fn check(kind: Kind, grown: &[u64], live: u64) -> anyhow::Result<()> {
    let last = grown.last().copied().unwrap_or(0);
    tell(&format!(
        "{kind:?}: {} KiB live, the file {:?} KiB after each generation, {} % of the live data",
        live / 1_024,
        grown.iter().map(|bytes| bytes / 1_024).collect::<Vec<_>>(),
        last * 100 / live.max(1)
    ));
    ensure!(
        last * 100 <= live * FILE_PERCENT_MAX,
        "{kind:?}: expected a file of at most {FILE_PERCENT_MAX} % of {live} live bytes, came {last} bytes"
    );
    Ok(())
}

/// The file's size after each generation.
async fn churn(
    kind: Kind,
    of_each: u64,
    generations: u64,
    life: Duration,
) -> anyhow::Result<Vec<u64>> {
    // On a busy machine a generation may take longer than it lives; then let it live longer.
    for life in [life, life * 2, life * 4] {
        if let Some(grown) = try_churn(kind, of_each, generations, life).await? {
            return Ok(grown);
        }
    }
    bail!("{kind:?}: a generation of {of_each} does not get written while it lives")
}

/// None: not all of the first generation was there at one time, so nothing is known of how much lives.
async fn try_churn(
    kind: Kind,
    of_each: u64,
    generations: u64,
    life: Duration,
) -> anyhow::Result<Option<Vec<u64>>> {
    let site = Site::new()?;
    let running = site.start(&Wrap::default().options(["--memory-buckets", "1000"]))?;
    let mut client = running.connect().await?;
    let mut grown = Vec::new();
    for generation in 0..generations {
        let (mut from, end) = (generation * of_each, (generation + 1) * of_each);
        while from < end {
            let some = from..(from + 64).min(end);
            from = some.end;
            match kind {
                Kind::Records => new_records(&mut client, some, life).await?,
                Kind::Buckets => new_buckets(&mut client, some, life).await?,
            }
        }
        let rows = running.inspect(Bytes::new()).await?;
        if generation == 0 && rows.counter_rows.max(rows.record_rows) < of_each {
            return Ok(None);
        }
        grown.push(site.file().metadata()?.len());
        all_expire(&running, life).await?;
    }
    running.kill()?;
    Ok(Some(grown))
}

/// Waits until the store's own clock has gone so far.
async fn all_expire(running: &Running, life: Duration) -> anyhow::Result<()> {
    let now = async || anyhow::Ok(running.inspect(Bytes::new()).await?.now_ms);
    let until = now().await? + u64::try_from(life.as_millis())? + 1;
    while now().await? < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn new_records(client: &mut Client, keys: Range<u64>, life: Duration) -> anyhow::Result<()> {
    let life_ms = u64::try_from(life.as_millis())?;
    let claims = keys.clone().map(|key| {
        Operation::Claim(Claim {
            key: draw::digest(7, key),
            claim_id: draw::claim_id(key),
            fingerprint: draw::fingerprint(key),
            lease_ms: 60_000,
            ttl_ms: life_ms,
            remember_ms: life_ms,
            wait_ms: 0,
            execute_unknown: false,
        })
    });
    for outcome in client.ask_all(claims.collect()).await? {
        let Outcome::Claimed(porch_wire::Claimed {
            outcome: Some(claimed::Outcome::Granted(_)),
        }) = outcome
        else {
            bail!("a new key: expected a grant, came {outcome:?}");
        };
    }
    let completions = keys.map(|key| {
        Operation::Complete(Complete {
            key: draw::digest(7, key),
            claim_id: draw::claim_id(key),
            outcome: Some(Completion::Response(draw::response(key, BODY_BYTES))),
        })
    });
    // A message takes 4 MiB.
    let completions: Vec<_> = completions.collect();
    for some in completions.chunks(32) {
        for outcome in client.ask_all(some.to_vec()).await? {
            let Outcome::Completed(_) = outcome else {
                bail!("expected a completion, came {outcome:?}");
            };
        }
    }
    Ok(())
}

async fn new_buckets(
    client: &mut Client,
    buckets: Range<u64>,
    life: Duration,
) -> anyhow::Result<()> {
    let window_s = u32::try_from(life.as_secs())?;
    let hit = buckets.map(|bucket| Hit {
        bucket: draw::digest(8, bucket),
        quota: 100,
        window_s,
        cost: 1,
        reserve: 10,
        shadow: false,
        refundable: false,
    });
    let hit = hit.collect();
    match client.ask(Operation::Admit(Admit { hit })).await? {
        Outcome::Admitted(admitted) if admitted.admitted => Ok(()),
        other => bail!("new buckets: expected an admission, came {other:?}"),
    }
}
