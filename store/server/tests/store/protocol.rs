//! Is every message within its bounds, and what becomes of one that is not?

use std::{io::Write as _, os::unix::net::UnixStream};

use bytes::Bytes;
use porch_wire::{
    Abandon, Admit, Charge, Claim, Code, Complete, Field, Hit, Refund, Response, Tombstone,
    Unknown, call::Operation, complete::Outcome, reply,
};
use tonic::Code as Grpc;

use crate::{
    client::{Client, claim, completion, digest, hit, response},
    process::Place,
};

#[tokio::test]
async fn a_hello_is_acknowledged_and_so_is_each_message() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    client.read().await?;
    assert_eq!(client.received, 1);
    client.send(Vec::new())?;
    client.read().await?;
    assert_eq!(client.received, 2);
    Ok(())
}

#[tokio::test]
async fn another_protocol_is_refused_and_both_are_named() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = Client::connect_as(&place.socket(), 9).await?;
    let status = client.read_to_end().await;
    let told = status.as_ref().map_or("", |status| status.message());
    assert!(
        told.contains("protocol 1") && told.contains("protocol 9"),
        "{status:?}"
    );
    assert_eq!(
        status.map(|status| status.code()),
        Some(Grpc::FailedPrecondition)
    );

    let mut client = place.connect().await?;
    for protocol in [None, Some("2"), Some("x")] {
        let refused = client.invoke(Operation::Claim(claim(1, 1)), protocol).await;
        let code = refused.map_err(|status| status.code());
        assert_eq!(code, Err(Grpc::FailedPrecondition), "{protocol:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_operation_that_is_not_known_is_unimplemented() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    let id = client.send_unknown()?;
    match client.answer(id).await? {
        reply::Outcome::Error(error) => assert_eq!(error.code(), Code::Unimplemented),
        other => panic!("expected a refusal, came {other:?}"),
    }
    // The stream goes on.
    client.admit(vec![hit(1, 1, 1)]).await?;
    Ok(())
}

/// Each call is one field beyond a bound, and the field is named.
#[tokio::test]
async fn every_field_has_its_bounds() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    for (field, operation) in bad_calls() {
        match client.ask(operation).await? {
            reply::Outcome::Error(error) => {
                assert_eq!(error.code(), Code::InvalidArgument, "{field}");
                assert_eq!(error.field, field);
                assert!(
                    error.message.contains("expected") && error.message.contains("came"),
                    "{field}: {}",
                    error.message
                );
            }
            other => panic!("{field}: expected a refusal, came {other:?}"),
        }
    }
    // None of them left anything.
    let admitted = client.admit(vec![hit(1, 10, 1)]).await?;
    assert_eq!(admitted.verdict[0].remaining, 9);
    Ok(())
}

fn bad_calls() -> Vec<(&'static str, Operation)> {
    let mut calls = Vec::new();
    calls.push(("admit.hit", Operation::Admit(Admit { hit: Vec::new() })));
    let many = vec![hit(1, 1, 1); 65];
    calls.push(("admit.hit", Operation::Admit(Admit { hit: many })));
    let second = |bad: Hit| {
        Operation::Admit(Admit {
            hit: vec![hit(1, 10, 1), bad],
        })
    };
    let good = || hit(2, 10, 1);
    for bytes in [0, 31, 33] {
        let bucket = Bytes::from(vec![1; bytes]);
        calls.push(("admit.hit[1].bucket", second(Hit { bucket, ..good() })));
    }
    for window_s in [0, 2_592_001] {
        calls.push(("admit.hit[1].window_s", second(Hit { window_s, ..good() })));
    }
    for reserve in [0, 65, 257] {
        calls.push(("admit.hit[1].reserve", second(Hit { reserve, ..good() })));
    }
    let charge = |change: fn(&mut Charge)| {
        let mut charge = Charge {
            bucket: digest(2),
            quota: 1,
            window_s: 1,
            hits: 1,
            age_ms: 0,
            reserve: 1,
        };
        change(&mut charge);
        Operation::Charge(charge)
    };
    calls.push((
        "charge.bucket",
        charge(|charge| charge.bucket = Bytes::new()),
    ));
    calls.push(("charge.window_s", charge(|charge| charge.window_s = 0)));
    calls.push(("charge.reserve", charge(|charge| charge.reserve = 65)));
    let refund = |bucket: Bytes, window_s| {
        Operation::Refund(Refund {
            bucket,
            window_s,
            cost: 1,
            window_start_ms: 1,
        })
    };
    calls.push(("refund.bucket", refund(Bytes::new(), 1)));
    calls.push(("refund.window_s", refund(digest(1), 0)));
    calls.extend(bad_claims());
    calls.extend(bad_completions());
    let abandon = |change: fn(&mut Abandon)| {
        let mut abandon = Abandon {
            key: digest(2),
            claim_id: vec![1; 16].into(),
            lease_ms: 1,
        };
        change(&mut abandon);
        Operation::Abandon(abandon)
    };
    calls.push(("abandon.key", abandon(|abandon| abandon.key = Bytes::new())));
    calls.push((
        "abandon.claim_id",
        abandon(|abandon| abandon.claim_id = Bytes::new()),
    ));
    calls.push(("abandon.lease_ms", abandon(|abandon| abandon.lease_ms = 0)));
    calls
}

fn bad_claims() -> Vec<(&'static str, Operation)> {
    const YEAR_AND_MORE: u64 = 366 * 24 * 60 * 60 * 1_000 + 1;
    let bad = |change: fn(&mut Claim)| {
        let mut bad = claim(2, 2);
        change(&mut bad);
        Operation::Claim(bad)
    };
    vec![
        ("claim.key", bad(|claim| claim.key = Bytes::new())),
        (
            "claim.claim_id",
            bad(|claim| claim.claim_id = vec![1; 17].into()),
        ),
        (
            "claim.fingerprint",
            bad(|claim| claim.fingerprint = vec![1; 32].into()),
        ),
        ("claim.lease_ms", bad(|claim| claim.lease_ms = 0)),
        ("claim.lease_ms", bad(|claim| claim.lease_ms = 86_400_001)),
        ("claim.ttl_ms", bad(|claim| claim.ttl_ms = 999)),
        ("claim.ttl_ms", bad(|claim| claim.ttl_ms = YEAR_AND_MORE)),
        (
            "claim.remember_ms",
            bad(|claim| claim.remember_ms = claim.ttl_ms - 1),
        ),
        (
            "claim.remember_ms",
            bad(|claim| claim.remember_ms = YEAR_AND_MORE),
        ),
        ("claim.wait_ms", bad(|claim| claim.wait_ms = 60_001)),
    ]
}

fn bad_completions() -> Vec<(&'static str, Operation)> {
    let complete = |outcome| Operation::Complete(completion(2, 2, outcome));
    let bad = |change: fn(&mut Response)| {
        let mut bad = response(Vec::new());
        change(&mut bad);
        complete(Outcome::Response(bad))
    };
    let field = |name: &'static str, bytes| Field {
        name: Bytes::from_static(name.as_bytes()),
        value: vec![b'a'; bytes].into(),
    };
    let whole = completion(2, 2, Outcome::Unknown(Unknown { status: 0 }));
    let line = Field {
        name: "a".into(),
        value: "".into(),
    };
    let mut many = response(Vec::new());
    many.field = vec![line; 257];
    let mut long = response(Vec::new());
    long.field = vec![field("a", 40_000), field("b", 40_000)];
    vec![
        (
            "complete.response.status",
            bad(|response| response.status = 199),
        ),
        (
            "complete.response.status",
            bad(|response| response.status = 65_536 + 200),
        ),
        ("complete.response.field", complete(Outcome::Response(many))),
        ("complete.response.field", complete(Outcome::Response(long))),
        (
            "complete.response.field[1].name",
            bad(|response| response.field[1].name = "Location".into()),
        ),
        (
            "complete.response.body",
            bad(|response| response.body = vec![0; 3 * 1024 * 1024 + 1].into()),
        ),
        (
            "complete.tombstone.status",
            complete(Outcome::Tombstone(Tombstone { status: 0 })),
        ),
        (
            "complete.unknown.status",
            complete(Outcome::Unknown(Unknown { status: 100 })),
        ),
        (
            "complete.outcome",
            Operation::Complete(Complete {
                outcome: None,
                ..whole.clone()
            }),
        ),
        (
            "complete.key",
            Operation::Complete(Complete {
                key: Bytes::new(),
                ..whole.clone()
            }),
        ),
        (
            "complete.claim_id",
            Operation::Complete(Complete {
                claim_id: Bytes::new(),
                ..whole
            }),
        ),
    ]
}

#[tokio::test]
async fn garbage_and_oversize_end_their_own_stream_only() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    client.admit(vec![hit(1, 10, 1)]).await?;

    let mut garbage = UnixStream::connect(place.socket())?;
    garbage.write_all(&[0x5a; 4_096])?;
    let mut oversize = place.connect().await?;
    oversize.send(vec![Operation::Complete(completion(
        1,
        1,
        Outcome::Response(response(vec![0; 5 * 1024 * 1024])),
    ))])?;
    assert!(
        oversize.read_to_end().await.is_some(),
        "refused before it is buffered"
    );

    let admitted = client.admit(vec![hit(1, 10, 1)]).await?;
    assert_eq!(admitted.verdict[0].remaining, 8);
    Ok(())
}
