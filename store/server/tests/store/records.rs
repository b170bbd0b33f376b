//! Does a key run once, and is its answer kept?

use std::time::Duration;

use porch_wire::{
    Claim, Complete, Tombstone, Unknown, call::Operation, claimed::Outcome, complete, reply,
};

use crate::{
    client::{Client, claim, completion, response},
    process::Place,
};

fn completed(key: u8, claim: u8, body: Vec<u8>) -> Complete {
    completion(key, claim, complete::Outcome::Response(response(body)))
}

#[tokio::test]
async fn one_claim_executes_and_the_others_get_its_answer() -> anyhow::Result<()> {
    let place = Place::new()?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    let granted = client.claim(claim(1, 1)).await?;
    assert!(matches!(granted, Outcome::Granted(_)), "{granted:?}");
    // The same claim, sent again, is the same claim.
    let again = client.claim(claim(1, 1)).await?;
    assert!(matches!(again, Outcome::Granted(_)), "{again:?}");
    let second = client.claim(claim(1, 2)).await?;
    assert!(matches!(second, Outcome::InFlight(_)), "{second:?}");
    let other = Claim {
        fingerprint: vec![2; 33].into(),
        ..claim(1, 3)
    };
    let mismatch = client.claim(other.clone()).await?;
    assert!(matches!(mismatch, Outcome::Mismatch(_)), "{mismatch:?}");

    let body: Vec<u8> = (0..=255).cycle().take(5_000).collect();
    assert!(
        client.complete(completed(1, 9, Vec::new())).await?,
        "a foreign one is fenced"
    );
    assert!(!client.complete(completed(1, 1, body.clone())).await?);
    assert!(
        !client.complete(completed(1, 1, body.clone())).await?,
        "safe to repeat"
    );
    store.kill()?;

    let _store = place.start()?;
    let mut client = place.connect().await?;
    assert_eq!(
        client.claim(claim(1, 4)).await?,
        Outcome::Replay(response(body))
    );
    let mismatch = client.claim(other).await?;
    assert!(matches!(mismatch, Outcome::Mismatch(_)), "{mismatch:?}");
    Ok(())
}

#[tokio::test]
async fn of_a_hundred_claims_at_once_one_is_granted() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut clients = [place.connect().await?, place.connect().await?];
    let mut ids = Vec::new();
    for (client, first) in clients.iter_mut().zip([0, 50]) {
        let claims = (first..first + 50).map(|id| Operation::Claim(claim(1, id)));
        ids.push(client.send(claims.collect())?);
    }
    let mut granted = 0;
    for (client, ids) in clients.iter_mut().zip(ids) {
        for id in ids {
            match client.answer(id).await? {
                reply::Outcome::Claimed(claimed) => match claimed.outcome {
                    Some(Outcome::Granted(_)) => granted += 1,
                    Some(Outcome::InFlight(_)) => {}
                    other => panic!("expected granted or in flight, came {other:?}"),
                },
                other => panic!("expected an answer to a claim, came {other:?}"),
            }
        }
    }
    assert_eq!(granted, 1);
    Ok(())
}

#[tokio::test]
async fn a_granted_claim_survives_a_kill() -> anyhow::Result<()> {
    let place = Place::new()?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    client.claim(claim(1, 1)).await?;
    store.kill()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    let second = client.claim(claim(1, 2)).await?;
    assert!(matches!(second, Outcome::InFlight(_)), "{second:?}");
    assert!(!client.complete(completed(1, 1, Vec::new())).await?);
    let replay = client.claim(claim(1, 2)).await?;
    assert!(matches!(replay, Outcome::Replay(_)), "{replay:?}");
    Ok(())
}

#[tokio::test]
async fn a_large_answer_is_told_on_the_channel_and_sent_by_invoke() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    let body = vec![7; 3 * 1024 * 1024];
    client.claim(claim(1, 1)).await?;
    let complete = Operation::Complete(completed(1, 1, body.clone()));
    let answer = client.invoke(complete, Some("1")).await?;
    assert!(
        matches!(answer, Some(reply::Outcome::Completed(completed)) if !completed.fenced),
        "{answer:?}"
    );
    let large = client.claim(claim(1, 2)).await?;
    assert!(matches!(large, Outcome::Large(_)), "{large:?}");
    let answer = client
        .invoke(Operation::Claim(claim(1, 2)), Some("1"))
        .await?;
    let Some(reply::Outcome::Claimed(claimed)) = answer else {
        panic!("expected an answer to a claim, came {answer:?}")
    };
    assert!(claimed.outcome == Some(Outcome::Replay(response(body))));
    Ok(())
}

#[tokio::test]
async fn an_abandoned_claim_frees_the_key_and_never_comes_back() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    client.claim(claim(1, 1)).await?;
    assert!(
        !client.abandon(1, 9).await?,
        "a foreign one releases nothing"
    );
    assert!(client.abandon(1, 1).await?);
    assert!(!client.abandon(1, 1).await?, "safe to repeat");
    // It may also overtake its claim.
    assert!(!client.abandon(2, 2).await?);
    for (key, id) in [(1, 1), (2, 2)] {
        match client.ask(Operation::Claim(claim(key, id))).await? {
            reply::Outcome::Error(error) => {
                assert_eq!(error.code(), porch_wire::Code::Unavailable);
                assert_eq!(error.message, "claim was abandoned");
            }
            other => panic!("expected a refusal, came {other:?}"),
        }
    }
    let next = client.claim(claim(1, 3)).await?;
    assert!(matches!(next, Outcome::Granted(_)), "{next:?}");
    Ok(())
}

#[tokio::test]
async fn a_lease_that_runs_out_is_unknown_until_its_own_claim_completes() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    let short = |key, id| Claim {
        lease_ms: 1,
        ..claim(key, id)
    };
    for key in [1, 2] {
        client.claim(short(key, 1)).await?;
        poll(
            &mut client,
            claim(key, 2),
            |outcome| matches!(outcome, Outcome::Unknown(unknown) if unknown.status == 0),
        )
        .await?;
    }
    assert!(!client.complete(completed(1, 1, Vec::new())).await?);
    let replay = client.claim(claim(1, 2)).await?;
    assert!(matches!(replay, Outcome::Replay(_)), "{replay:?}");

    let bold = Claim {
        execute_unknown: true,
        ..claim(2, 3)
    };
    let granted = client.claim(bold).await?;
    assert!(matches!(granted, Outcome::Granted(_)), "{granted:?}");
    assert!(
        client.complete(completed(2, 1, Vec::new())).await?,
        "fenced"
    );
    Ok(())
}

#[tokio::test]
async fn a_claim_that_waits_gets_the_answer_or_runs_out_of_patience() -> anyhow::Result<()> {
    let place = Place::new()?;
    let store = place.start()?;
    let mut first = place.connect().await?;
    let mut second = place.connect().await?;
    first.claim(claim(1, 1)).await?;
    first.claim(claim(2, 1)).await?;
    let wait = |key, wait_ms| Claim {
        wait_ms,
        ..claim(key, 2)
    };
    // Nobody ends key 2, so its waiter is answered by the clock alone.
    let brief = second.claim(wait(2, 50)).await?;
    assert!(matches!(brief, Outcome::InFlight(_)), "{brief:?}");
    let ids = second.send(vec![
        Operation::Claim(wait(1, 60_000)),
        Operation::Claim(wait(2, 60_000)),
    ])?;
    // Both are acknowledged, and so put in.
    while second.received < 3 {
        second.read().await?;
    }
    first.complete(completed(1, 1, vec![7; 9])).await?;
    match second.answer(ids[0]).await? {
        reply::Outcome::Claimed(claimed) => {
            assert_eq!(claimed.outcome, Some(Outcome::Replay(response(vec![7; 9]))));
        }
        other => panic!("expected a replay, came {other:?}"),
    }
    // A stop tells those that still wait.
    store.terminate()?;
    match second.answer(ids[1]).await? {
        reply::Outcome::Error(error) => assert_eq!(error.code(), porch_wire::Code::Unavailable),
        other => panic!("expected a refusal, came {other:?}"),
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_kept_is_remembered() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    for (key, outcome, expected) in [
        (
            1,
            complete::Outcome::Tombstone(Tombstone { status: 202 }),
            Outcome::Tombstone(Tombstone { status: 202 }),
        ),
        (
            2,
            complete::Outcome::Unknown(Unknown { status: 504 }),
            Outcome::Unknown(Unknown { status: 504 }),
        ),
    ] {
        client.claim(claim(key, 1)).await?;
        assert!(!client.complete(completion(key, 1, outcome)).await?);
        assert_eq!(client.claim(claim(key, 2)).await?, expected);
    }
    // An answer past its ttl leaves a tombstone, and its body goes.
    let brief = Claim {
        ttl_ms: 1_000,
        ..claim(3, 1)
    };
    client.claim(brief).await?;
    client.complete(completed(3, 1, vec![1; 200_000])).await?;
    poll(
        &mut client,
        claim(3, 2),
        |outcome| matches!(outcome, Outcome::Tombstone(tombstone) if tombstone.status == 201),
    )
    .await?;
    Ok(())
}

/// Claims until the answer is as expected; it has half a minute.
async fn poll(
    client: &mut Client,
    claim: Claim,
    expected: impl Fn(&Outcome) -> bool,
) -> anyhow::Result<()> {
    let mut last = None;
    for _ in 0..300 {
        let outcome = client.claim(claim.clone()).await?;
        if expected(&outcome) {
            return Ok(());
        }
        last = Some(outcome);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the expected answer never came; the last was {last:?}")
}
