//! Which data directory do the faults befall? One with promises in it; and what may be left of them?

use std::rc::Rc;

use anyhow::{bail, ensure};
use porch_wire::Code;
use porch_wire::reply::Outcome;
use rand::RngExt as _;

use crate::torture::audit::audit;
use crate::torture::client::Client;
use crate::torture::draw;
use crate::torture::ledger::{Deed, Slack};
use crate::torture::load::{self, Shared};
use crate::torture::site::{Running, Site, Wrap};

/// Puts promises into a running store.
pub(super) async fn fill(site: &Site, shared: &Shared, seed: u64) -> anyhow::Result<()> {
    load::pairs(&site.socket(), shared, 10).await?;
    let source = draw::source(seed, 20);
    load::client(&site.socket(), shared, source, 20, usize::MAX).await
}

/// A place whose store has promised things, and was killed.
pub(super) async fn used(seed: u64) -> anyhow::Result<(Site, Rc<Shared>)> {
    let (site, shared) = (Site::new()?, Shared::new());
    let running = site.start(&Wrap::default())?;
    fill(&site, &shared, seed).await?;
    running.kill()?;
    Ok((site, shared))
}

/// Starts the store as usual: everything has to be there.
pub(super) async fn whole(site: &Site, shared: &Shared) -> anyhow::Result<()> {
    let running = site.start(&Wrap::default())?;
    let mut client = running.connect().await?;
    let keys: Vec<u64> = shared.ledger.borrow().keys.keys().copied().collect();
    let mut source = draw::source(1, 21);
    audit(&mut client, shared, &keys, Slack::Reserve, &mut source).await?;
    running.kill()
}

/// What a store with a damaged file did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Rows that it refused.
    pub(super) refused: usize,
    /// It has ended, in a defined way.
    pub(super) ended: bool,
}

/// Asks a store with a damaged file for all that it has promised: each is kept or refused as `DATA_LOSS`, or the store ends in a
/// defined way. The ledger is a copy: what is found here binds nobody.
pub(super) async fn what_is_left(
    running: Running,
    shared: &Shared,
    seed: u64,
) -> anyhow::Result<Left> {
    let copy = Shared::new();
    copy.ledger.replace(shared.ledger.borrow().clone());
    *copy.claims.borrow_mut() = *shared.claims.borrow() + draw::source(seed, 22).random_range(0..9);
    let mut left = Left::default();
    let mut client = running.connect().await?;
    match ask_for_all(&mut client, &copy, &mut left).await {
        Ok(()) => {
            running.kill()?;
        }
        Err(Stop::Broken(error)) => return Err(error),
        Err(Stop::Gone) => {
            left.ended = true;
            running.ended()?.check(&["data.mdb"])?;
        }
    }
    Ok(left)
}

enum Stop {
    Broken(anyhow::Error),
    Gone,
}

async fn ask_for_all(client: &mut Client, copy: &Shared, left: &mut Left) -> Result<(), Stop> {
    let buckets = copy.ledger.borrow().buckets.len();
    let mut deeds: Vec<Deed> = (0..buckets)
        .map(|bucket| Deed::Admit(vec![(bucket, 0)]))
        .collect();
    deeds.extend(copy.ledger.borrow().keys.keys().map(|key| Deed::Claim {
        key: *key,
        claim: copy.new_claim(),
    }));
    for deed in deeds {
        load::note_sent(copy, &deed);
        let operation = copy.ledger.borrow().operation(&deed);
        // By Invoke, so that large replays come too.
        let Ok(outcome) = client.invoke(operation).await else {
            return Err(Stop::Gone);
        };
        one_is_left(copy, &deed, &outcome, left).map_err(Stop::Broken)?;
    }
    Ok(())
}

fn one_is_left(
    copy: &Shared,
    deed: &Deed,
    outcome: &Outcome,
    left: &mut Left,
) -> anyhow::Result<()> {
    if let Outcome::Error(error) = outcome {
        ensure!(
            error.code() == Code::DataLoss,
            "{deed:?}: expected DATA_LOSS, came {error:?}"
        );
        left.refused += 1;
        return Ok(());
    }
    match (deed, outcome) {
        (Deed::Admit(hits), Outcome::Admitted(admitted)) => {
            for ((bucket, _), verdict) in hits.iter().zip(&admitted.verdict) {
                let mut ledger = copy.ledger.borrow_mut();
                ledger.peeked(*bucket, verdict, Slack::Reserve)?;
            }
            Ok(())
        }
        (Deed::Claim { .. }, _) => load::receive(copy, deed, outcome),
        _ => bail!("{deed:?}: came {outcome:?}"),
    }
}
