//! Does memory stay flat under many more buckets than it may hold?

use anyhow::{bail, ensure};
use bytes::Bytes;
use porch_wire::call::Operation;
use porch_wire::reply::Outcome;
use porch_wire::{Admit, Hit};

use super::client::Client;
use super::site::{Running, Site, Wrap};
use super::{Extent, Plan, draw, tell};

/// What a bucket in memory may cost, generously: its slot, its place in three indices, and what a growing table wastes.
const BUCKET_BYTES_MAX: u64 = 400;
/// Queues, batches, connections, and what the allocator keeps.
const REST_BYTES_MAX: u64 = 32 << 20;
const ADMITS_IN_ONE: u64 = 512;

pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let (buckets, table): (u64, u64) = match plan.extent {
        Extent::Short => (120_000, 8_000),
        Extent::Long => (10_000_000, 100_000),
    };
    super::block_on(async move {
        let site = Site::new()?;
        let memory = table.to_string();
        let running = site.start(&Wrap::default().options(["--memory-buckets", &memory]))?;
        let mut client = running.connect().await?;
        let empty = running.memory_kib("RssAnon")?;
        let mut full = 0;
        let mut highest = 0;
        let mut from = 0;
        while from < buckets {
            let some = from..(from + 20 * ADMITS_IN_ONE).min(buckets);
            from = some.end;
            hit_each(&mut client, some).await?;
            look(&running, table, &mut highest).await?;
            if full == 0 && from >= 2 * table {
                full = running.memory_kib("RssAnon")?;
            }
        }
        let most = empty + (table * BUCKET_BYTES_MAX + REST_BYTES_MAX) / 1_024;
        tell(&format!(
            "{buckets} buckets, {table} in memory: {empty} KiB of its own memory when empty, {full} when full, at most {highest}; bound {most}; \
             with the mapped file {} KiB; the file has {} KiB",
            running.memory_kib("VmRSS")?,
            site.file().metadata()?.len() / 1_024
        ));
        ensure!(
            highest <= most,
            "expected at most {most} KiB of memory, came {highest}"
        );
        running.kill()
    })
}

async fn look(running: &Running, table: u64, highest: &mut u64) -> anyhow::Result<()> {
    *highest = (*highest).max(running.memory_kib("RssAnon")?);
    let live = running.inspect(Bytes::new()).await?.live_buckets;
    ensure!(
        live <= table,
        "expected at most {table} buckets in memory, came {live}"
    );
    Ok(())
}

/// One hit on each: most have windows of a second, which have ended when room is made; the others are still needed.
async fn hit_each(client: &mut Client, buckets: std::ops::Range<u64>) -> anyhow::Result<()> {
    let mut from = buckets.start;
    while from < buckets.end {
        let some = from..(from + ADMITS_IN_ONE).min(buckets.end);
        from = some.end;
        let operations = some.map(|bucket| {
            let hit = Hit {
                bucket: draw::digest(6, bucket),
                quota: 100,
                window_s: if bucket % 8 == 0 { 60 } else { 1 },
                cost: 1,
                reserve: 10,
                shadow: false,
                refundable: false,
            };
            Operation::Admit(Admit { hit: vec![hit] })
        });
        for outcome in client.ask_all(operations.collect()).await? {
            let Outcome::Admitted(admitted) = outcome else {
                bail!("expected an admission, came {outcome:?}");
            };
            ensure!(admitted.admitted, "a new bucket refused its first hit");
        }
    }
    Ok(())
}
