//! Does a store hold what was promised? Every bucket is peeked at, and keys are claimed anew.

use anyhow::{Context as _, bail, ensure};
use porch_wire::call::Operation;
use porch_wire::reply::Outcome;
use porch_wire::{Claimed, claimed};
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::client::Client;
use super::ledger::{Deed, Slack};
use super::load::{self, Shared};

const HITS_IN_ONE: usize = 16;
const KEYS_IN_ONE: usize = 32;

/// Peeks at all buckets and claims these keys.
///
/// # Errors
/// When an answer breaks a promise, or the store does not answer.
pub(super) async fn audit(
    client: &mut Client,
    shared: &Shared,
    keys: &[u64],
    slack: Slack,
    source: &mut StdRng,
) -> anyhow::Result<()> {
    buckets(client, shared, slack).await?;
    for keys in keys.chunks(KEYS_IN_ONE) {
        claim(client, shared, keys, source).await?;
    }
    Ok(())
}

async fn buckets(client: &mut Client, shared: &Shared, slack: Slack) -> anyhow::Result<()> {
    let all: Vec<usize> = (0..shared.ledger.borrow().buckets.len()).collect();
    for some in all.chunks(HITS_IN_ONE) {
        let peek = Deed::Admit(some.iter().map(|bucket| (*bucket, 0)).collect());
        let operation = shared.ledger.borrow().operation(&peek);
        // One at a time: a store with few buckets in memory holds no more.
        let outcome = client.ask(operation).await?;
        let Outcome::Admitted(admitted) = outcome else {
            bail!("a peek: expected an admission, came {outcome:?}");
        };
        ensure!(
            admitted.verdict.len() == some.len(),
            "a peek: expected {} verdicts, came {}",
            some.len(),
            admitted.verdict.len()
        );
        let mut ledger = shared.ledger.borrow_mut();
        for (bucket, verdict) in some.iter().zip(&admitted.verdict) {
            ledger.peeked(*bucket, verdict, slack)?;
        }
    }
    Ok(())
}

/// Claims each key by a claim of its own; half of those that are granted are given up again.
async fn claim(
    client: &mut Client,
    shared: &Shared,
    keys: &[u64],
    source: &mut StdRng,
) -> anyhow::Result<()> {
    let deeds: Vec<Deed> = keys
        .iter()
        .map(|key| Deed::Claim {
            key: *key,
            claim: shared.new_claim(),
        })
        .collect();
    let mut given_up = Vec::new();
    let outcomes = client.ask_all(operations(shared, &deeds)).await?;
    for (deed, outcome) in deeds.iter().zip(outcomes) {
        let outcome = match &outcome {
            Outcome::Claimed(Claimed {
                outcome: Some(claimed::Outcome::Large(_)),
            }) => {
                let operation = shared.ledger.borrow().operation(deed);
                client.invoke(operation).await.context("a large replay")?
            }
            _ => outcome,
        };
        if let Outcome::Error(error) = &outcome {
            bail!("{deed:?}: expected an answer, came {error:?}");
        }
        load::receive(shared, deed, &outcome)?;
        if let (Deed::Claim { key, claim }, true) = (deed, is_granted(&outcome))
            && source.random()
        {
            let (key, claim) = (*key, *claim);
            given_up.push(Deed::Abandon { key, claim });
        }
    }
    let outcomes = client.ask_all(operations(shared, &given_up)).await?;
    for (deed, outcome) in given_up.iter().zip(outcomes) {
        load::receive(shared, deed, &outcome)?;
    }
    Ok(())
}

fn operations(shared: &Shared, deeds: &[Deed]) -> Vec<Operation> {
    for deed in deeds {
        load::note_sent(shared, deed);
    }
    let ledger = shared.ledger.borrow();
    deeds.iter().map(|deed| ledger.operation(deed)).collect()
}

fn is_granted(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Claimed(Claimed {
            outcome: Some(claimed::Outcome::Granted(_))
        })
    )
}
