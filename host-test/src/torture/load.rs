//! What mixed load do the clients put on the store, and who keeps the ledger?

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;

use anyhow::ensure;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::client::Client;
use super::draw;
use super::ledger::{Deed, Ledger, Spec};
use super::watch::Watch;

/// Buckets with a window that outlasts the torture: counted to the hit.
const LONG: u64 = 24;
/// Buckets with windows of one and two seconds: never above their quota.
const SHORT: u64 = 12;
/// Buckets that nobody has hit before; each torture uses some of them.
const COLD: u64 = 400;
/// A message's calls.
const DEEDS_MAX: usize = 12;

/// The rules of all buckets.
pub(super) fn specs() -> Vec<Spec> {
    let long = (0..LONG).map(|n| {
        // Some are spent, most never are.
        let quota = if n % 6 == 5 { 150 } else { 50_000_000 };
        let reserve = [1, 2, 7, 64][usize::try_from(n % 4).unwrap_or(0)];
        Spec {
            refundable: n % 8 == 2,
            ..Spec::long(n, quota, reserve)
        }
    });
    let short = (0..SHORT).map(|n| {
        let reserve = [1, 3, 9][usize::try_from(n % 3).unwrap_or(0)];
        Spec::short(1_000 + n, 30, 1 + u32::from(n % 2 == 0), reserve)
    });
    let cold = (0..COLD).map(|n| Spec::long(2_000 + n, 1_000, 16));
    long.chain(short).chain(cold).collect()
}

/// The ledger, and what the clients of one torture share.
pub(super) struct Shared {
    pub(super) ledger: RefCell<Ledger>,
    /// Numbers of claims that were used.
    pub(super) claims: RefCell<u64>,
    /// Numbers of keys that were used.
    pub(super) keys: RefCell<u64>,
    /// Told of each deed, for tortures that need the order of things.
    pub(super) watch: RefCell<Watch>,
    /// Keys that are new to the ledger or have had an answer since the last audit.
    pub(super) touched: RefCell<BTreeSet<u64>>,
}

impl Shared {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            ledger: RefCell::new(Ledger::new(specs())),
            claims: RefCell::new(0),
            keys: RefCell::new(0),
            watch: RefCell::default(),
            touched: RefCell::default(),
        })
    }

    pub(super) fn new_key(&self) -> u64 {
        let mut keys = self.keys.borrow_mut();
        *keys += 1;
        *keys
    }

    pub(super) fn new_claim(&self) -> u64 {
        let mut claims = self.claims.borrow_mut();
        *claims += 1;
        *claims
    }
}

/// One client: puts load on the store until it is gone, or for so many messages.
///
/// # Errors
/// When an answer breaks a promise. The end of the store is no error.
pub(super) async fn client(
    socket: &Path,
    shared: &Shared,
    mut source: StdRng,
    messages: u64,
    deeds_max: usize,
) -> anyhow::Result<()> {
    let Ok(mut client) = Client::connect(socket).await else {
        return Ok(());
    };
    for _ in 0..messages {
        let deeds_in_one = source.random_range(1..=deeds_max.min(DEEDS_MAX));
        let mut deeds = Vec::new();
        for _ in 0..deeds_in_one {
            if let Some(deed) = draw_deed(shared, &mut source) {
                // Noted as it is drawn, so that no other draw contradicts it.
                note_sent(shared, &deed);
                deeds.push(deed);
            }
        }
        if !carry_out(&mut client, shared, deeds).await? {
            break;
        }
    }
    Ok(())
}

/// Claims and completes so many new keys, one after the other.
pub(super) async fn pairs(socket: &Path, shared: &Shared, pairs: u64) -> anyhow::Result<()> {
    let mut client = Client::connect(socket).await?;
    for _ in 0..pairs {
        let key = shared.new_key();
        let claim = shared.new_claim();
        for deed in [Deed::Claim { key, claim }, Deed::Complete { key, claim }] {
            note_sent(shared, &deed);
            let there = carry_out(&mut client, shared, vec![deed]).await?;
            ensure!(there, "the store has ended");
        }
    }
    Ok(())
}

/// Sends what was drawn; false when the store is gone.
async fn carry_out(client: &mut Client, shared: &Shared, deeds: Vec<Deed>) -> anyhow::Result<bool> {
    // What goes by Invoke, and the rest.
    let large = |deed: &Deed| match deed {
        Deed::Complete { claim, .. } => draw::goes_by_invoke(&draw::outcome(*claim)),
        _ => false,
    };
    let (alone, together): (Vec<_>, Vec<_>) = deeds.into_iter().partition(large);
    if !exchange(client, shared, together).await? {
        return Ok(false);
    }
    for deed in alone {
        let operation = shared.ledger.borrow().operation(&deed);
        let Ok(outcome) = client.invoke(operation).await else {
            return Ok(false);
        };
        receive(shared, &deed, &outcome)?;
    }
    Ok(true)
}

/// Sends all in one message and takes the answers as they come; false when the store is gone.
async fn exchange(client: &mut Client, shared: &Shared, deeds: Vec<Deed>) -> anyhow::Result<bool> {
    let operations = {
        let ledger = shared.ledger.borrow();
        deeds.iter().map(|deed| ledger.operation(deed)).collect()
    };
    let Ok(ids) = client.send(operations) else {
        return Ok(false);
    };
    let mut waiting: HashMap<u64, Deed> = ids.into_iter().zip(deeds).collect();
    while !waiting.is_empty() {
        let Ok((id, outcome)) = client.next().await else {
            return Ok(false);
        };
        if let Some(deed) = waiting.remove(&id) {
            receive(shared, &deed, &outcome)?;
        }
    }
    Ok(true)
}

pub(super) fn note_sent(shared: &Shared, deed: &Deed) {
    shared.ledger.borrow_mut().sent(deed);
    if let Deed::Claim { key, .. } | Deed::Complete { key, .. } | Deed::Abandon { key, .. } = deed {
        shared.touched.borrow_mut().insert(*key);
    }
    shared.watch.borrow_mut().sent(deed);
}

pub(super) fn receive(
    shared: &Shared,
    deed: &Deed,
    outcome: &porch_wire::reply::Outcome,
) -> anyhow::Result<()> {
    shared.watch.borrow_mut().answered(deed, outcome);
    shared.ledger.borrow_mut().answered(deed, outcome)
}

fn draw_deed(shared: &Shared, source: &mut StdRng) -> Option<Deed> {
    match source.random_range(0..100) {
        0..50 => Some(draw_admit(source)),
        50..54 => Some(Deed::Charge {
            bucket: 4 * source.random_range(0..6_usize),
            hits: source.random_range(1..20),
        }),
        54..58 => draw_refund(shared, source),
        58..76 => {
            let last = *shared.keys.borrow();
            // Now and then a key that somebody else uses just now.
            let key = if last > 0 && source.random_ratio(1, 4) {
                last.saturating_sub(source.random_range(0..8)).max(1)
            } else {
                shared.new_key()
            };
            Some(Deed::Claim {
                key,
                claim: shared.new_claim(),
            })
        }
        _ => draw_end(shared, source),
    }
}

fn draw_admit(source: &mut StdRng) -> Deed {
    let hits_in_one = if source.random_ratio(1, 3) {
        source.random_range(2..=4)
    } else {
        1
    };
    let mut hits: Vec<(usize, u32)> = Vec::new();
    let all = usize::try_from(LONG + SHORT + COLD).unwrap_or(0);
    let warm = usize::try_from(LONG + SHORT).unwrap_or(0);
    for _ in 0..hits_in_one {
        let bucket = if source.random_ratio(1, 10) {
            source.random_range(warm..all)
        } else {
            source.random_range(0..warm)
        };
        if hits.iter().all(|(other, _)| *other != bucket) {
            hits.push((bucket, source.random_range(1..=3)));
        }
    }
    Deed::Admit(hits)
}

/// Gives back a hit of a bucket whose rule does so; never more than was acknowledged.
fn draw_refund(shared: &Shared, source: &mut StdRng) -> Option<Deed> {
    let bucket = 8 * source.random_range(0..3_usize) + 2;
    let ledger = shared.ledger.borrow();
    let bucket_of = &ledger.buckets[bucket];
    let window_start_ms = bucket_of.last_start()?;
    (bucket_of.at_least() > 10).then_some(Deed::Refund {
        bucket,
        cost: 1,
        window_start_ms,
    })
}

/// Completes or gives up what is open; sends some things a second time.
fn draw_end(shared: &Shared, source: &mut StdRng) -> Option<Deed> {
    let ledger = shared.ledger.borrow();
    let last = *shared.keys.borrow();
    let key = last.saturating_sub(source.random_range(0..40));
    let attempts = &ledger.keys.get(&key)?.claims;
    let (claim, attempt) = attempts.iter().find(|(_, attempt)| attempt.granted)?;
    let (claim, again) = (*claim, source.random_ratio(1, 10));
    if attempt.abandon_sent {
        return again.then_some(Deed::Abandon { key, claim });
    }
    if attempt.complete_sent {
        return (again || !attempt.completed).then_some(Deed::Complete { key, claim });
    }
    Some(match source.random_range(0..10) {
        0..2 => Deed::Abandon { key, claim },
        // The same claim again: its lease starts anew.
        2 => Deed::Claim { key, claim },
        _ => Deed::Complete { key, claim },
    })
}
