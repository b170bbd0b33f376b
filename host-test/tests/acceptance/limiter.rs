//! The limiter: exactly N pass.

use porch_host::client::{Answer, Request};
use porch_host::harness::Stack;
use serde_json::json;

use crate::support::{CLIENT, by_client, get_by, limited, parallel, ratelimit};

const QUOTA: u64 = 50;
const CLIENTS: usize = 200;

#[test]
fn n_pass_and_the_next_is_429() -> anyhow::Result<()> {
    let stack = limited(json!([by_client(QUOTA, "600s", 5)]))?.start()?;
    one_after_another(&stack)?;
    all_at_once(&stack)
}

fn one_after_another(stack: &Stack) -> anyhow::Result<()> {
    for nth in 1..=QUOTA {
        let answer = stack.send(&get_by("sequence"))?;
        assert_eq!(answer.status, 200, "request {nth}: {answer:?}");
        tells_the_limit(&answer, QUOTA - nth)?;
    }
    let answer = stack.send(&get_by("sequence"))?;
    is_refused(&answer)?;
    let answer = stack.send(&get_by("somebody-else"))?;
    assert_eq!(
        answer.status, 200,
        "another client has a bucket of its own: {answer:?}"
    );
    tells_the_limit(&answer, QUOTA - 1)
}

fn all_at_once(stack: &Stack) -> anyhow::Result<()> {
    let request = Request::post("/orders/at-once", "tea").header(CLIENT, "at-once");
    let answers = parallel(CLIENTS, |_| stack.send(&request));
    let answers: Vec<Answer> = answers.into_iter().collect::<anyhow::Result<_>>()?;
    let (passed, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 201);
    assert_eq!(u64::try_from(passed.len())?, QUOTA, "of {CLIENTS} at once");
    for answer in refused {
        is_refused(answer)?;
    }
    let mut left: Vec<u64> = passed
        .into_iter()
        .map(|answer| Ok(ratelimit(answer)?.0))
        .collect::<anyhow::Result<_>>()?;
    left.sort_unstable();
    assert_eq!(
        left,
        (0..QUOTA).collect::<Vec<_>>(),
        "each that passed was told another remainder"
    );
    assert_eq!(
        stack.upstream.rows_of("/orders/at-once")?,
        QUOTA,
        "upstream's own count"
    );
    let by_worker = stack.envoy.connections_by_worker()?;
    assert!(
        by_worker.len() == 2 && by_worker.iter().all(|count| *count > 0),
        "both workers took part: {by_worker:?}"
    );
    Ok(())
}

fn tells_the_limit(answer: &Answer, left: u64) -> anyhow::Result<()> {
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some(format!("\"by-client\";q={QUOTA};w=600").as_str())
    );
    assert!(
        answer
            .header("ratelimit")
            .is_some_and(|text| text.starts_with("\"by-client\";")),
        "{answer:?}"
    );
    let (remaining, reset) = ratelimit(answer)?;
    assert_eq!(remaining, left);
    assert!((1..=600).contains(&reset), "{answer:?}");
    assert_eq!(
        answer.header("x-ratelimit-limit"),
        Some(QUOTA.to_string().as_str())
    );
    assert_eq!(
        answer.header("x-ratelimit-remaining"),
        Some(left.to_string().as_str())
    );
    assert_eq!(
        answer.header("x-ratelimit-reset"),
        Some(reset.to_string().as_str())
    );
    Ok(())
}

fn is_refused(answer: &Answer) -> anyhow::Result<()> {
    assert_eq!(answer.status, 429, "{answer:?}");
    tells_the_limit(answer, 0)?;
    let wait: u64 = answer.header("retry-after").unwrap_or_default().parse()?;
    assert!(
        wait >= ratelimit(answer)?.1 && (1..=600).contains(&wait),
        "{answer:?}"
    );
    assert_eq!(
        answer.problem(),
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    assert_eq!(answer.json()["violated-policies"], json!(["by-client"]));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    Ok(())
}

#[test]
fn a_forged_address_is_still_the_same_client() -> anyhow::Result<()> {
    let rule =
        json!({"name": "per-client", "quota": 3, "window": "600s", "key": ["client_address"]});
    let stack = limited(json!([rule]))?.start()?;
    let forged = |nth: usize| {
        let address = format!("203.0.113.{nth}");
        Request::get("/")
            .header("x-forwarded-for", &address)
            .header("forwarded", &format!("for={address}"))
            .header("x-real-ip", &address)
            .header("cf-connecting-ip", &address)
            .header("x-envoy-external-address", &address)
    };
    let statuses: Vec<u16> = (1..=5)
        .map(|nth| Ok(stack.send(&forged(nth))?.status))
        .collect::<anyhow::Result<_>>()?;
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    Ok(())
}

#[test]
fn a_refusal_by_one_rule_charges_no_other() -> anyhow::Result<()> {
    let wide = json!({"name": "all", "quota": 10, "window": "600s", "key": [{"literal": "all"}]});
    let stack = limited(json!([by_client(2, "600s", 1), wide]))?.start()?;
    for _ in 0..6 {
        stack.send(&get_by("greedy"))?;
    }
    let statuses: Vec<u16> = (0..9)
        .map(|nth| Ok(stack.send(&get_by(&format!("modest-{nth}")))?.status))
        .collect::<anyhow::Result<_>>()?;
    assert_eq!(
        statuses,
        [200, 200, 200, 200, 200, 200, 200, 200, 429],
        "2 of 10 were spent by the greedy one"
    );
    Ok(())
}
