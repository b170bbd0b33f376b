//! What may a clock do to windows and records? Jumps while the store runs, restarts much later, reboots.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use porch_wire::call::Operation;
use porch_wire::complete::Outcome as Completion;
use porch_wire::reply::Outcome;
use porch_wire::{Admit, Admitted, Claim, Complete, Hit, Verdict, claimed};
use rustix::time::{ClockId, clock_gettime};

use super::client::Client;
use super::site::{Running, Site, Wrap};
use super::{Extent, Plan, draw, tell};
use crate::harness::WallClock;

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;
const WINDOW_S: u32 = 3_600;
const WINDOW_MS: u64 = 3_600_000;
const QUOTA: u32 = 3;
/// How long what lives for a second may take to be gone, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was there before the clocks moved.
struct Story {
    site: Site,
    wall: WallClock,
    /// The spent bucket's reset and the logical clock, as last told.
    reset_ms: u64,
    now_ms: u64,
    /// Numbers of claims and of short-lived keys.
    last: u64,
}

pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let jumps: &[i64] = match plan.extent {
        Extent::Short => &[HOUR_S, -2 * HOUR_S, 2 * DAY_S, -2 * DAY_S],
        Extent::Long => &[
            HOUR_S,
            -2 * HOUR_S,
            2 * DAY_S,
            -2 * DAY_S,
            0,
            10 * DAY_S,
            -10 * DAY_S,
            365 * DAY_S,
            1,
            -1,
        ],
    };
    super::block_on(async move {
        let mut story = Story::begin()?;
        story.while_it_runs(jumps).await?;
        story.over_restarts().await?;
        story.over_reboots().await?;
        tell(&format!(
            "{} jumps, 3 restarts, 4 reboots: no extra window, nothing immortal, no reset above the window",
            jumps.len()
        ));
        Ok(())
    })
}

impl Story {
    fn begin() -> anyhow::Result<Self> {
        let site = Site::new()?;
        let wall = WallClock::new(site.root())?;
        Ok(Self {
            site,
            wall,
            reset_ms: WINDOW_MS,
            now_ms: 0,
            last: 100,
        })
    }

    fn start(&self) -> anyhow::Result<Running> {
        let mut variables = Command::new("true");
        self.wall.around(&mut variables);
        self.site
            .start(&Wrap::default().with_variables_of(&variables))
    }

    /// Starts it as after a reboot: another boot's id, and a boottime that is small again.
    fn start_after_reboot(&self, boot: u8) -> anyhow::Result<Running> {
        let id = self.site.root().join("boot_id");
        fs::write(&id, format!("{boot:08x}-1111-4111-8111-111111111111\n"))?;
        let up_s = clock_gettime(ClockId::Boottime).tv_sec;
        let offset = 30 + i64::from(boot) - up_s;
        let script = "mount --bind \"$1\" /proc/sys/kernel/random/boot_id && shift && exec \"$@\"";
        let reboot = Wrap::by([
            "unshare",
            "--mount",
            "--time",
            "--boottime",
            &offset.to_string(),
            "sh",
            "-c",
            script,
            "sh",
            &id.display().to_string(),
        ]);
        let mut variables = Command::new("true");
        self.wall.around(&mut variables);
        let running = self.site.start(&reboot.with_variables_of(&variables));
        running.context("a reboot is simulated by namespaces: run this as root")
    }

    async fn while_it_runs(&mut self, jumps: &[i64]) -> anyhow::Result<()> {
        let running = self.start()?;
        let mut client = running.connect().await?;
        // A spent bucket, a kept response, a lease.
        for _ in 0..QUOTA {
            ensure!(hit(&mut client, 1, 1).await?.0, "the bucket has room");
        }
        ensure!(
            claim(&mut client, 1, 1, HOUR_S).await? == Claimed::Granted,
            "a new key"
        );
        complete(&mut client, 1, 1).await?;
        ensure!(
            claim(&mut client, 2, 2, HOUR_S).await? == Claimed::Granted,
            "a new key"
        );
        let before = Instant::now();
        let began = running.inspect(Bytes::new()).await?.now_ms;
        let after = Instant::now();
        for jump in jumps {
            self.wall.shift(*jump)?;
            let told = format!("the wall clock stands {jump} s from the right time");
            self.nothing_moved(&running).await.context(told)?;
        }
        // The logical clock has gone as far as the time that has passed, and no further.
        let least = after.elapsed();
        let ended = running.inspect(Bytes::new()).await?.now_ms;
        let most = before.elapsed();
        let gone = Duration::from_millis(ended.saturating_sub(began));
        let tick = Duration::from_millis(50);
        ensure!(
            gone + tick >= least && gone <= most + tick,
            "the logical clock went {gone:?} while {least:?} to {most:?} passed"
        );
        running.kill()
    }

    async fn over_restarts(&mut self) -> anyhow::Result<()> {
        for (offset, orderly) in [(10 * DAY_S, true), (-2 * DAY_S, false), (0, true)] {
            self.wall.shift(offset)?;
            let running = self.start()?;
            let told = format!("restarted with a wall clock {offset} s from the right time");
            self.nothing_moved(&running).await.context(told)?;
            if orderly {
                running.terminate().await?;
            } else {
                running.kill()?;
            }
        }
        Ok(())
    }

    async fn over_reboots(&mut self) -> anyhow::Result<()> {
        for (boot, offset) in [(1, -DAY_S), (2, 0)] {
            self.wall.shift(offset)?;
            let running = self.start_after_reboot(boot)?;
            let told = format!("rebooted with a wall clock {offset} s from the right time");
            self.nothing_moved(&running).await.context(told)?;
            running.kill()?;
        }
        // A wall clock that is ahead after a reboot is believed: ten days have passed.
        self.wall.shift(10 * DAY_S)?;
        let running = self.start_after_reboot(3)?;
        let mut client = running.connect().await?;
        for n in 0..=QUOTA {
            let (admitted, verdict) = hit(&mut client, 1, 1).await?;
            ensure!(
                admitted == (n < QUOTA),
                "hit {n} of a new window: expected {QUOTA} to pass, came {admitted}"
            );
            self.reset_ms = verdict.reset_ms;
        }
        for (key, own) in [(1, 11), (2, 12)] {
            let came = claim(&mut client, key, own, HOUR_S).await?;
            ensure!(
                came == Claimed::Granted,
                "ten days later key {key} is forgotten: expected a grant, came {came:?}"
            );
        }
        complete(&mut client, 1, 11).await?;
        self.now_ms = running.inspect(Bytes::new()).await?.now_ms;
        // In order: a crash may lose the time since the last commit.
        drop(client);
        running.terminate().await?;
        // And it was wrong: the clock does not run backwards.
        self.wall.shift(0)?;
        let running = self.start_after_reboot(4)?;
        let again = self.nothing_moved(&running).await;
        again.context("rebooted with the right time, ten days behind what was believed")?;
        running.kill()
    }

    /// No extra window, no reset that grew or is above the window, what is kept is kept; what lives for a second is gone after it.
    async fn nothing_moved(&mut self, running: &Running) -> anyhow::Result<()> {
        let mut client = running.connect().await?;
        let (admitted, verdict) = hit(&mut client, 1, 1).await?;
        ensure!(!admitted, "the spent bucket gave another hit");
        ensure!(
            (1..=self.reset_ms).contains(&verdict.reset_ms),
            "expected a reset of 1 to {} ms, came {}",
            self.reset_ms,
            verdict.reset_ms
        );
        self.reset_ms = verdict.reset_ms;
        let now_ms = running.inspect(Bytes::new()).await?.now_ms;
        ensure!(
            now_ms >= self.now_ms,
            "the logical clock ran backwards, from {} to {now_ms}",
            self.now_ms
        );
        self.now_ms = now_ms;
        self.last += 2;
        for (key, expected) in [(1, Claimed::Replay), (2, Claimed::InFlight)] {
            let came = claim(&mut client, key, self.last, HOUR_S).await?;
            ensure!(
                came == expected,
                "key {key}: expected {expected:?}, came {came:?}"
            );
        }
        self.nothing_is_immortal(&mut client).await
    }

    /// A window and a record of one second end, whatever the wall clock says.
    async fn nothing_is_immortal(&mut self, client: &mut Client) -> anyhow::Result<()> {
        let (key, bucket) = (self.last, self.last);
        ensure!(
            claim(client, key, key, 1).await? == Claimed::Granted,
            "a new key"
        );
        complete(client, key, key).await?;
        while hit(client, bucket, 1).await?.0 {}
        let since = Instant::now();
        let (mut window, mut record) = (false, false);
        while !(window && record) {
            ensure!(
                since.elapsed() < PATIENCE,
                "after {PATIENCE:?} a window of 1 s has ended: {window}; a record of 1 s is forgotten: {record}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
            window |= hit(client, bucket, 1).await?.0;
            record |= claim(client, key, key + 1_000_000, 1).await? == Claimed::Granted;
        }
        Ok(())
    }
}

/// Whether it was admitted, and its verdict. Bucket 1 has an hour's window, others one of a second.
async fn hit(client: &mut Client, bucket: u64, cost: u32) -> anyhow::Result<(bool, Verdict)> {
    let window_s = if bucket == 1 { WINDOW_S } else { 1 };
    let hit = Hit {
        bucket: draw::digest(4, bucket),
        quota: QUOTA,
        window_s,
        cost,
        reserve: 1,
        shadow: false,
        refundable: false,
    };
    let outcome = client
        .ask(Operation::Admit(Admit { hit: vec![hit] }))
        .await?;
    let Outcome::Admitted(Admitted { admitted, verdict }) = outcome else {
        bail!("expected an admission, came {outcome:?}");
    };
    let verdict = verdict.first().copied().context("one hit, one verdict")?;
    let length_ms = u64::from(window_s) * 1_000;
    ensure!(
        (1..=length_ms).contains(&verdict.reset_ms),
        "expected a reset of 1 to {length_ms} ms, came {}",
        verdict.reset_ms
    );
    Ok((admitted, verdict))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimed {
    Granted,
    Replay,
    InFlight,
    Other,
}

/// Claims for so many seconds: that is its lease, its ttl, and how long it is remembered.
async fn claim(client: &mut Client, key: u64, claim: u64, lives_s: i64) -> anyhow::Result<Claimed> {
    let life = u64::try_from(lives_s)? * 1_000;
    let operation = Operation::Claim(Claim {
        key: draw::digest(5, key),
        claim_id: draw::claim_id(claim),
        fingerprint: draw::fingerprint(key),
        lease_ms: life,
        ttl_ms: life,
        remember_ms: life,
        wait_ms: 0,
        execute_unknown: false,
    });
    let outcome = client.ask(operation).await?;
    let Outcome::Claimed(porch_wire::Claimed {
        outcome: Some(claimed),
    }) = outcome
    else {
        bail!("expected an answer to a claim, came {outcome:?}");
    };
    Ok(match claimed {
        claimed::Outcome::Granted(_) => Claimed::Granted,
        claimed::Outcome::Replay(_) => Claimed::Replay,
        claimed::Outcome::InFlight(_) => Claimed::InFlight,
        claimed::Outcome::Large(_)
        | claimed::Outcome::Mismatch(_)
        | claimed::Outcome::Tombstone(_)
        | claimed::Outcome::Unknown(_) => Claimed::Other,
    })
}

async fn complete(client: &mut Client, key: u64, claim: u64) -> anyhow::Result<()> {
    let operation = Operation::Complete(Complete {
        key: draw::digest(5, key),
        claim_id: draw::claim_id(claim),
        outcome: Some(Completion::Response(draw::response(claim, 100))),
    });
    match client.ask(operation).await? {
        Outcome::Completed(completed) if !completed.fenced => Ok(()),
        other => bail!("expected a completion, came {other:?}"),
    }
}
