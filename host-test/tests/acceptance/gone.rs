//! Clients that leave at any moment, and an upstream that is not there.

use std::thread;
use std::time::Duration;

use porch_host::client::Request;
use porch_host::harness::{PATIENCE, eventually};

use crate::support::{keyed, parallel, settled};

#[test]
fn a_body_that_breaks_off_is_never_executed() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for _ in 0..5 {
        let cut = Request::post("/orders", "")
            .header("content-length", "100")
            .key("k")
            .raw_body("half a bo");
        drop(cut.start(stack.envoy.address)?);
    }
    let whole = stack.send(&Request::post("/orders", "tea").key("k"))?;
    assert_eq!(
        (whole.status, whole.replayed()),
        (201, false),
        "the key was not used: {whole:?}"
    );
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn clients_that_leave_at_any_moment_break_nothing() -> anyhow::Result<()> {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 60;
    let stack = keyed()?.start()?;
    let request = |client: usize, nth: usize| {
        let name = format!("{client}-{nth}");
        Request::post(&format!("/orders/{name}?delay_ms={}", nth % 4), "tea").key(&name)
    };
    let left = parallel(CLIENTS, |client| {
        for nth in 0..REQUESTS {
            let started = request(client, nth).start(stack.envoy.address)?;
            thread::sleep(Duration::from_micros(u64::try_from(nth)? * 110));
            drop(started);
        }
        anyhow::Ok(())
    });
    left.into_iter().collect::<anyhow::Result<()>>()?;
    let came_again = parallel(CLIENTS, |client| {
        for nth in 0..REQUESTS {
            let last = settled(&stack, &request(client, nth), PATIENCE)?;
            assert_eq!(last.status, 201, "{client}-{nth}: {last:?}");
        }
        anyhow::Ok(())
    });
    came_again.into_iter().collect::<anyhow::Result<()>>()?;
    assert_eq!(
        stack.upstream.rows()?,
        u64::try_from(CLIENTS * REQUESTS)?,
        "each ran once"
    );
    let log = std::fs::read_to_string(stack.directory().join("envoy.log"))?;
    assert!(
        !log.contains("panicked") && !log.contains("Uncaught"),
        "the plugin lived through it: {log}"
    );
    Ok(())
}

#[test]
fn without_upstream_nothing_is_used_up() -> anyhow::Result<()> {
    let mut stack = keyed()?.start()?;
    let request = Request::post("/orders", "tea").key("k");
    stack.upstream.kill()?;
    for _ in 0..3 {
        let refused = stack.send(&request)?;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (503, ""),
            "Envoy's own answer: {refused:?}"
        );
    }
    assert_eq!(stack.store.inspect(None)?.record_rows, 0, "released");
    stack.upstream.start_again()?;
    let served = eventually("upstream is back", PATIENCE, || {
        let answer = stack.send(&request)?;
        Ok((answer.status != 503).then_some(answer))
    })?;
    assert_eq!(
        (served.status, served.replayed()),
        (201, false),
        "{served:?}"
    );
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}
