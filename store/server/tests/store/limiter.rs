//! Do counters hold, across stops and kills?

use porch_wire::{Admit, Charge, Hit, Refund, call::Operation, reply};

use crate::{
    client::{Client, digest, hit},
    process::Place,
};

async fn spend(client: &mut Client, hit: Hit, times: u32) -> anyhow::Result<u32> {
    let mut admitted = 0;
    for _ in 0..times {
        admitted += u32::from(client.admit(vec![hit.clone()]).await?.admitted);
    }
    Ok(admitted)
}

async fn remaining(client: &mut Client, hit: Hit) -> anyhow::Result<u32> {
    let peek = Hit { cost: 0, ..hit };
    let admitted = client.admit(vec![peek]).await?;
    Ok(admitted.verdict[0].remaining)
}

#[tokio::test]
async fn n_pass_and_the_next_is_refused() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    for left in (0..10).rev() {
        let admitted = client.admit(vec![hit(1, 10, 4)]).await?;
        assert!(admitted.admitted);
        let verdict = &admitted.verdict[0];
        assert_eq!((verdict.refused, verdict.remaining), (false, left));
        assert!((1..=60_000).contains(&verdict.reset_ms));
        assert!(verdict.window_start_ms > 0);
    }
    let refused = client.admit(vec![hit(1, 10, 4)]).await?;
    assert!(!refused.admitted);
    let verdict = &refused.verdict[0];
    assert_eq!(
        (verdict.refused, verdict.remaining, verdict.settled),
        (true, 0, true)
    );
    assert!((1..=60_000).contains(&verdict.reset_ms));
    Ok(())
}

#[tokio::test]
async fn parallel_callers_get_exactly_the_quota() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(place.connect().await?);
    }
    let admits = || {
        (0..50).map(|_| {
            Operation::Admit(Admit {
                hit: vec![hit(1, 100, 10)],
            })
        })
    };
    let mut ids = Vec::new();
    for client in &mut clients {
        ids.push(client.send(admits().collect())?);
    }
    let mut passed = 0;
    for (client, ids) in clients.iter_mut().zip(ids) {
        for id in ids {
            if let reply::Outcome::Admitted(admitted) = client.answer(id).await? {
                passed += u32::from(admitted.admitted);
            }
        }
    }
    assert_eq!(passed, 100);
    Ok(())
}

#[tokio::test]
async fn sigterm_keeps_the_exact_count() -> anyhow::Result<()> {
    let place = Place::new()?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    assert_eq!(spend(&mut client, hit(1, 100, 10), 37).await?, 37);
    assert_eq!(spend(&mut client, hit(2, 100, 64), 1).await?, 1);
    store.terminate()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    assert_eq!(remaining(&mut client, hit(1, 100, 10)).await?, 63);
    assert_eq!(remaining(&mut client, hit(2, 100, 64)).await?, 99);
    assert_eq!(spend(&mut client, hit(1, 100, 10), 100).await?, 63);
    Ok(())
}

#[tokio::test]
async fn kill_9_costs_at_most_the_reserve_and_grants_nothing() -> anyhow::Result<()> {
    let place = Place::new()?;
    for (bucket, reserve) in [(1, 1), (2, 7), (3, 64)] {
        let store = place.start()?;
        let mut client = place.connect().await?;
        assert_eq!(spend(&mut client, hit(bucket, 100, reserve), 37).await?, 37);
        store.kill()?;
        let store = place.start()?;
        let mut client = place.connect().await?;
        let left = remaining(&mut client, hit(bucket, 100, reserve)).await?;
        assert!(
            (63 - (reserve - 1)..=63).contains(&left),
            "reserve {reserve}: {left} left of 63"
        );
        store.terminate()?;
    }
    Ok(())
}

#[tokio::test]
async fn kills_under_load_lose_no_hit_that_was_answered() -> anyhow::Result<()> {
    const QUOTA: u32 = 100_000;
    const RESERVE: u32 = 5;
    const ROUNDS: u32 = 5;
    let place = Place::new()?;
    let (mut sent, mut acknowledged) = (0, 0);
    for round in 0..ROUNDS {
        let store = place.start()?;
        let mut client = place.connect().await?;
        let left = remaining(&mut client, hit(1, QUOTA, RESERVE)).await?;
        let used = QUOTA - left;
        // Each acknowledged hit is counted; what is counted beyond was in flight or lay in the reserve.
        assert!(used >= acknowledged, "{used} counted of {acknowledged}");
        assert!(
            used <= sent + round * (RESERVE - 1),
            "{used} counted of {sent}"
        );
        for _ in 0..200 + 37 * round {
            let admits = (0..8).map(|_| {
                Operation::Admit(Admit {
                    hit: vec![hit(1, QUOTA, RESERVE)],
                })
            });
            client.send(admits.collect())?;
            sent += 8;
        }
        // Somewhere in the middle of the answers.
        let enough = usize::try_from(100 + 97 * round)?;
        while client.answered().len() < enough {
            client.read().await?;
        }
        store.kill()?;
        while client.read().await.is_ok() {}
        acknowledged += u32::try_from(client.answered().len())?;
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_charges_nothing_in_any_bucket() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    assert_eq!(spend(&mut client, hit(1, 2, 1), 2).await?, 2);
    // One spent, one cold, one hot.
    assert_eq!(spend(&mut client, hit(3, 10, 4), 1).await?, 1);
    let both = client
        .admit(vec![hit(2, 10, 4), hit(1, 2, 1), hit(3, 10, 4)])
        .await?;
    assert!(!both.admitted);
    let refused: Vec<_> = both.verdict.iter().map(|verdict| verdict.refused).collect();
    assert_eq!(refused, [false, true, false]);
    assert_eq!(remaining(&mut client, hit(2, 10, 4)).await?, 10);
    assert_eq!(remaining(&mut client, hit(3, 10, 4)).await?, 9);
    Ok(())
}

#[tokio::test]
async fn a_small_table_keeps_every_count() -> anyhow::Result<()> {
    let place = Place::with(&["--memory-buckets", "64"])?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    for round in 1..=3 {
        for bucket in 0..=200 {
            let admitted = client.admit(vec![hit(bucket, 10, 5)]).await?;
            assert_eq!(admitted.verdict[0].remaining, 10 - round, "bucket {bucket}");
        }
    }
    store.terminate()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    for bucket in 0..=200 {
        assert_eq!(
            remaining(&mut client, hit(bucket, 10, 5)).await?,
            7,
            "bucket {bucket}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn hits_of_an_outage_are_counted_and_a_refund_goes_to_its_window_only() -> anyhow::Result<()>
{
    let place = Place::new()?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    let charge = Charge {
        bucket: digest(1),
        quota: 10,
        window_s: 60,
        hits: 4,
        age_ms: 5_000,
        reserve: 3,
    };
    for _ in 0..2 {
        let answer = client.ask(Operation::Charge(charge.clone())).await?;
        assert!(matches!(answer, reply::Outcome::Charged(_)), "{answer:?}");
    }
    let admitted = client.admit(vec![hit(1, 10, 3)]).await?;
    let verdict = admitted.verdict[0];
    assert_eq!(verdict.remaining, 1);
    assert!(
        verdict.reset_ms <= 55_000,
        "the window was open for 5 s: {}",
        verdict.reset_ms
    );

    let refund = Refund {
        bucket: digest(1),
        window_s: 60,
        cost: 1,
        window_start_ms: verdict.window_start_ms,
    };
    let other = Refund {
        window_start_ms: verdict.window_start_ms - 1,
        ..refund.clone()
    };
    for (refund, expected) in [(other, false), (refund, true)] {
        match client.ask(Operation::Refund(refund)).await? {
            reply::Outcome::Refunded(refunded) => assert_eq!(refunded.applied, expected),
            other => panic!("expected an answer to a refund, came {other:?}"),
        }
    }
    assert_eq!(remaining(&mut client, hit(1, 10, 3)).await?, 2);
    store.terminate()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    assert_eq!(remaining(&mut client, hit(1, 10, 3)).await?, 2);
    Ok(())
}
