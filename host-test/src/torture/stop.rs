//! Are the counts exact after an orderly stop, however many there are?

use anyhow::{bail, ensure};
use porch_wire::call::Operation;
use porch_wire::reply::Outcome;
use porch_wire::{Admit, Hit, Verdict};

use super::client::Client;
use super::site::{Site, Wrap};
use super::{Extent, Plan, draw, tell};

const QUOTA: u32 = 1_000;
/// So that each ceiling runs ahead of its count.
const RESERVE: u32 = 64;
const HITS_IN_ONE: u64 = 64;
const ADMITS_IN_ONE: u64 = 16;

pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let buckets: u64 = match plan.extent {
        Extent::Short => 50_000,
        Extent::Long => 1_000_000,
    };
    super::block_on(async move {
        let site = Site::new()?;
        let memory = (buckets + 64).to_string();
        let wrap = Wrap::default().options(["--memory-buckets", &memory]);
        let running = site.start(&wrap)?;
        let mut client = running.connect().await?;
        for_all(
            &mut client,
            buckets,
            |bucket| cost(plan.seed, bucket),
            |bucket, verdict| {
                let expected = QUOTA - cost(plan.seed, bucket);
                ensure!(
                    verdict.remaining == expected,
                    "bucket {bucket}: expected {expected} hits left, came {}",
                    verdict.remaining
                );
                Ok(())
            },
        )
        .await?;
        let first = running.inspect(draw::digest(3, 0)).await?;
        let window = first.bucket.unwrap_or_default();
        ensure!(
            window.count < window.ceiling && first.live_buckets == buckets,
            "expected {buckets} live buckets with ceilings above their counts, came {} and {window:?}",
            first.live_buckets
        );
        drop(client);
        let took = running.terminate().await?;

        let running = site.start(&wrap)?;
        let mut client = running.connect().await?;
        let mut wrong = 0_u64;
        for_all(
            &mut client,
            buckets,
            |_| 0,
            |bucket, verdict| {
                wrong += u64::from(verdict.remaining != QUOTA - cost(plan.seed, bucket));
                Ok(())
            },
        )
        .await?;
        tell(&format!(
            "an orderly stop with {buckets} live buckets took {:.2} s",
            took.as_secs_f64()
        ));
        ensure!(
            wrong == 0,
            "expected exact counts after an orderly stop, came {wrong} wrong ones of {buckets}"
        );
        running.kill()
    })
}

fn cost(seed: u64, bucket: u64) -> u32 {
    u32::try_from(draw::mix(seed ^ bucket) % 20).unwrap_or(0) + 1
}

/// One hit on each bucket.
async fn for_all(
    client: &mut Client,
    buckets: u64,
    cost: impl Fn(u64) -> u32,
    mut look: impl FnMut(u64, &Verdict) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut from = 0;
    while from < buckets {
        let mut operations = Vec::new();
        let mut asked = Vec::new();
        for _ in 0..ADMITS_IN_ONE {
            let some = from..(from + HITS_IN_ONE).min(buckets);
            from = some.end;
            let hit = some.clone().map(|bucket| Hit {
                bucket: draw::digest(3, bucket),
                quota: QUOTA,
                window_s: 24 * 3_600,
                cost: cost(bucket),
                reserve: RESERVE,
                shadow: false,
                refundable: false,
            });
            let hit: Vec<Hit> = hit.collect();
            if !hit.is_empty() {
                operations.push(Operation::Admit(Admit { hit }));
                asked.push(some);
            }
        }
        for (some, outcome) in asked.into_iter().zip(client.ask_all(operations).await?) {
            let Outcome::Admitted(admitted) = outcome else {
                bail!("expected an admission, came {outcome:?}");
            };
            for (bucket, verdict) in some.zip(&admitted.verdict) {
                look(bucket, verdict)?;
            }
        }
    }
    Ok(())
}
