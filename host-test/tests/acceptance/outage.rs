//! The store away: what goes on, what does not, and how it all comes back by itself.

use std::thread;
use std::time::Duration;

use porch_host::client::{Answer, Request};
use porch_host::harness::{PATIENCE, Stack, eventually};
use serde_json::json;

use crate::support::{
    CLIENT, by_client, is_store_unavailable, keyed_in_a_hurry, limited, parallel, ratelimit,
    settled, store_is_back,
};

const QUOTA: u64 = 10;
const WORKERS: u64 = 2;

#[test]
fn store_down() -> anyhow::Result<()> {
    let mut stack = local()?;
    let before = Request::post("/orders/before", "tea").key("before");
    let kept = settled(&stack, &before, PATIENCE)?;
    assert_eq!(kept.status, 201);

    stack.store.terminate()?;
    goes_on_without_the_store(&stack)?;
    stack.store.start()?;
    comes_back(&stack)?;
    let replay = stack.send(&before)?;
    assert!(
        replay.replayed() && replay.kept() == kept.kept(),
        "{replay:?}"
    );
    Ok(())
}

#[test]
fn store_that_hangs() -> anyhow::Result<()> {
    let stack = local()?;
    stack.store.hang(true)?;
    goes_on_without_the_store(&stack)?;
    stack.store.hang(false)?;
    comes_back(&stack)
}

/// The limiter counts by itself without the store, as shipped.
fn local() -> anyhow::Result<Stack> {
    let mut setup = limited(json!([by_client(QUOTA, "600s", 1)]))?.on_store_failure("local")?;
    setup.config.set_store("timeout", &json!("1s"))?;
    setup.start()
}

fn goes_on_without_the_store(stack: &Stack) -> anyhow::Result<()> {
    let keyed = Request::post("/orders/down", "tea")
        .header(CLIENT, "keyed")
        .key("down");
    let refused = stack.send(&keyed)?;
    assert!(is_store_unavailable(&refused), "{refused:?}");
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(
        stack.upstream.rows_of("/orders/down")?,
        0,
        "nothing was executed"
    );

    let plain = Request::post("/orders/plain", "tea").header(CLIENT, "plain");
    assert_eq!(stack.send(&plain)?.status, 201, "unkeyed traffic goes on");
    assert_eq!(stack.upstream.rows_of("/orders/plain")?, 1);

    let request = Request::get("/").header(CLIENT, "local");
    let answers = parallel(60, |_| stack.send(&request));
    let answers: Vec<Answer> = answers.into_iter().collect::<anyhow::Result<_>>()?;
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 429)),
        "never an error of ours"
    );
    assert!(
        (QUOTA..=QUOTA * WORKERS).contains(&u64::try_from(passed)?),
        "each of {WORKERS} workers counts to {QUOTA} by itself: {passed} passed"
    );
    for answer in answers {
        ratelimit(&answer)?;
        assert!(
            answer.status == 200 || answer.header("retry-after").is_some(),
            "{answer:?}"
        );
    }
    Ok(())
}

/// By itself, soon after the store is there: keyed requests run, and both workers count in one bucket again.
fn comes_back(stack: &Stack) -> anyhow::Result<()> {
    let keyed = Request::post("/orders/down", "tea")
        .header(CLIENT, "keyed-again")
        .key("down");
    let served = settled(stack, &keyed, PATIENCE)?;
    assert_eq!(served.status, 201, "{served:?}");
    assert_eq!(stack.upstream.rows_of("/orders/down")?, 1);
    let mut attempt = 0;
    eventually("both workers count in one bucket", PATIENCE, || {
        attempt += 1;
        let request = Request::get("/").header(CLIENT, &format!("back-{attempt}"));
        let passed: Vec<bool> = (0..40)
            .map(|_| Ok(stack.send(&request)?.status == 200))
            .collect::<anyhow::Result<_>>()?;
        Ok(
            (passed.into_iter().filter(|passed| *passed).count() == usize::try_from(QUOTA)?)
                .then_some(()),
        )
    })
}

#[test]
fn a_claim_whose_reply_was_lost_runs_once() -> anyhow::Result<()> {
    let mut stack = keyed_in_a_hurry()?.start()?;
    for round in 0..5 {
        let request = |nth: usize| {
            let name = format!("lost-{round}-{nth}");
            Request::post(&format!("/orders/{name}"), "tea").key(&name)
        };
        // Many claims on their way while the store dies: some were committed, and their replies are lost.
        let started: Vec<_> = (0..40)
            .map(|nth| request(nth).start(stack.envoy.address))
            .collect::<anyhow::Result<_>>()?;
        stack.store.kill()?;
        stack.store.start()?;
        for (nth, first) in started.into_iter().enumerate() {
            let first = first.finish()?;
            assert!(
                first.status == 201 || is_store_unavailable(&first),
                "round {round}, {nth}: {first:?}"
            );
            let last = settled(&stack, &request(nth), Duration::from_secs(20))?;
            assert_eq!(
                last.status, 201,
                "round {round}, {nth}: not left unknown: {last:?}"
            );
            assert_eq!(
                stack
                    .upstream
                    .rows_of(&format!("/orders/lost-{round}-{nth}"))?,
                1
            );
        }
        store_is_back(&stack)?;
    }
    Ok(())
}

#[test]
fn a_large_upload_waits_for_a_slow_verdict() -> anyhow::Result<()> {
    let stack = limited(json!([by_client(QUOTA, "600s", 1)]))?.start()?;
    let large = Request::post("/orders/large", vec![b'x'; 6 << 20]).header(CLIENT, "large");
    let keyed = Request::post("/orders/keyed?body=binary", vec![b'x'; 1 << 20])
        .header(CLIENT, "keyed")
        .key("k");
    stack.store.hang(true)?;
    let answers = thread::scope(|scope| {
        let uploads = [&large, &keyed].map(|request| scope.spawn(|| stack.send(request)));
        thread::sleep(Duration::from_millis(500));
        let early = stack.upstream.rows();
        let resumed = stack.store.hang(false);
        (
            uploads.map(|upload| upload.join().expect("a client does not panic")),
            early,
            resumed,
        )
    });
    let ([large_answer, keyed_answer], early, resumed) = answers;
    resumed?;
    assert_eq!(early?, 0, "nothing passes before its verdict");
    assert_eq!((large_answer?.status, keyed_answer?.status), (201, 201));
    assert_eq!(stack.upstream.rows_of("/orders/large")?, 1);
    assert!(stack.send(&keyed)?.replayed());
    assert_eq!(stack.upstream.rows()?, 2);
    Ok(())
}
