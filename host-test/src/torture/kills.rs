//! What is left after kill -9 under load, at any moment?
//!
//! Clients put load on the store and note each answer; the store is killed; the next one has to hold all that was
//! acknowledged, and no more than may have been asked.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::task::LocalSet;

use super::audit::audit;
use super::ledger::Slack;
use super::load::{self, Shared};
use super::site::{Running, Site, Wrap};
use super::{Extent, Plan, draw, tell};

const CLIENTS: u64 = 6;
/// Old keys that are claimed again in each round.
const OLD_KEYS: usize = 100;

/// Runs all rounds.
pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let rounds = match plan.extent {
        Extent::Short => 20,
        Extent::Long => 500,
    };
    super::block_on(async move {
        let shared = Shared::new();
        let site = Site::new()?;
        for round in 0..rounds {
            let source = draw::source(plan.seed, round);
            one_round(&site, &shared, round, source)
                .await
                .with_context(|| format!("round {round} of {rounds}, seed {}", plan.seed))?;
            if round % 50 == 49 {
                tell(&format!("{} rounds", round + 1));
            }
        }
        let mut source = draw::source(plan.seed, u64::MAX);
        let running = site.start(&Wrap::default())?;
        let all: Vec<u64> = shared.ledger.borrow().keys.keys().copied().collect();
        let mut client = running.connect().await?;
        let last = audit(&mut client, &shared, &all, Slack::Reserve, &mut source);
        last.await.context("the last audit, of all keys")?;
        drop(client);
        running.terminate().await?;

        let ledger = shared.ledger.borrow();
        let file = site.file().metadata()?.len();
        tell(&format!(
            "{rounds} kills, {} promises, none broken: {} keys, {} claims; {} UNAVAILABLE; the file has {} KiB",
            ledger.promises,
            ledger.keys.len(),
            shared.claims.borrow(),
            ledger.unavailable,
            file / 1_024,
        ));
        Ok(())
    })
}

async fn one_round(
    site: &Site,
    shared: &Rc<Shared>,
    round: u64,
    mut source: StdRng,
) -> anyhow::Result<()> {
    let mut wrap = Wrap::default();
    if round % 2 == 1 {
        // So few that buckets leave memory and come back all the time.
        wrap = wrap.options(["--memory-buckets", "64"]);
    }
    if source.random_ratio(1, 8) {
        // Killed while it opens.
        let started = site.try_start(&wrap);
        tokio::time::sleep(Duration::from_micros(source.random_range(0..3_000))).await;
        drop(started?);
    }
    let running = site.start(&wrap)?;
    let mut client = running.connect().await?;
    let keys = keys_to_claim(shared, &mut source);
    audit(&mut client, shared, &keys, Slack::Reserve, &mut source).await?;
    load_and_kill(site, running, shared, &mut source).await
}

/// All keys that were touched since the last audit, and some older ones.
fn keys_to_claim(shared: &Shared, source: &mut StdRng) -> Vec<u64> {
    let mut keys = std::mem::take(&mut *shared.touched.borrow_mut());
    let last = *shared.keys.borrow();
    if last > 0 {
        keys.extend((0..OLD_KEYS).map(|_| source.random_range(1..=last)));
    }
    keys.into_iter().collect()
}

async fn load_and_kill(
    site: &Site,
    running: Running,
    shared: &Rc<Shared>,
    source: &mut StdRng,
) -> anyhow::Result<()> {
    let local = LocalSet::new();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|part| {
            let (socket, shared) = (site.socket(), Rc::clone(shared));
            let source = draw::source(source.random(), part);
            local.spawn_local(async move {
                load::client(&socket, &shared, source, u64::MAX, usize::MAX).await
            })
        })
        .collect();
    let life = Duration::from_micros(source.random_range(2_000..250_000));
    local
        .run_until(async {
            tokio::time::sleep(life).await;
            running.kill()?;
            for client in clients {
                client.await.context("a client panicked")??;
            }
            Ok(())
        })
        .await
}
