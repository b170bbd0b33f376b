//! Does each field have its bounds? The first and last value that fit, and one beyond each.

use anyhow::{bail, ensure};
use bytes::Bytes;
use porch_wire::call::Operation;
use porch_wire::complete::Outcome as Completion;
use porch_wire::{
    Abandon, Admit, Charge, Claim, Code, Complete, Field, Hit, Refund, Response, Tombstone,
    Unknown, reply,
};

use super::Scene;
use crate::torture::{draw, tell};

const DAY_MS: u64 = 24 * 3_600_000;
const YEAR_MS: u64 = 366 * DAY_MS;

/// A field, an operation that has a certain value there, and the bound that is told when it does not fit.
struct Probe {
    field: &'static str,
    operation: Operation,
    /// None: it fits.
    told: Option<&'static str>,
}

pub(super) async fn each_field(scene: &Scene) -> anyhow::Result<()> {
    let mut client = scene.running.connect().await?;
    let probes = probes();
    let count = probes.len();
    for Probe {
        field,
        operation,
        told,
    } in probes
    {
        let shown = shown(&operation);
        let outcome = client.invoke(operation).await?;
        match (outcome, told) {
            (reply::Outcome::Error(error), Some(bound)) => {
                ensure!(
                    error.code() == Code::InvalidArgument && error.field == field,
                    "{shown}: expected INVALID_ARGUMENT of {field}, came {error:?}"
                );
                ensure!(
                    error.message.contains(bound) && error.message.contains("came"),
                    "{shown}: expected `{bound}` and what came, came {error:?}"
                );
            }
            (reply::Outcome::Error(error), None) => bail!("{shown}: {field} fits, came {error:?}"),
            (other, Some(bound)) => {
                bail!("{shown}: expected a refusal of {field} with `{bound}`, came {other:?}")
            }
            (_, None) => {}
        }
    }
    tell(&format!(
        "{count} values at and beyond the bounds of every field"
    ));
    Ok(())
}

fn shown(operation: &Operation) -> String {
    let all = format!("{operation:?}");
    all.chars().take(300).collect()
}

/// For each value: the field, how it is set, whether it fits.
macro_rules! probes {
    ($all:ident, $make:expr, $field:literal, $bound:literal, $set:expr, fits: [$($fits:expr),* $(,)?], not: [$($not:expr),* $(,)?]) => {{
        $({
            let operation = $make(|message| ($set)(message, $fits));
            $all.push(Probe { field: $field, operation, told: None });
        })*
        $({
            let operation = $make(|message| ($set)(message, $not));
            $all.push(Probe { field: $field, operation, told: Some($bound) });
        })*
    }};
}

fn bytes(length: usize) -> Bytes {
    vec![5; length].into()
}

fn probes() -> Vec<Probe> {
    let mut all = Vec::new();
    hits(&mut all);
    outages_and_refunds(&mut all);
    claims(&mut all);
    completions(&mut all);
    responses(&mut all);
    all
}

fn hit() -> Hit {
    Hit {
        bucket: draw::digest(11, 1),
        quota: 1_000_000,
        window_s: 60,
        cost: 1,
        reserve: 10,
        shadow: false,
        refundable: false,
    }
}

fn hits(all: &mut Vec<Probe>) {
    let admit = |hit: Vec<Hit>| Operation::Admit(Admit { hit });
    for (hits, told) in [
        (0, Some("1 to 64")),
        (1, None),
        (64, None),
        (65, Some("1 to 64")),
    ] {
        let operation = admit(vec![hit(); hits]);
        let field = "admit.hit";
        all.push(Probe {
            field,
            operation,
            told,
        });
    }
    let second = |set: &dyn Fn(&mut Hit)| {
        let mut second = Hit {
            bucket: draw::digest(11, 2),
            ..hit()
        };
        set(&mut second);
        admit(vec![hit(), second])
    };
    let make = |set: fn(&mut Hit)| second(&set);
    probes!(all, make, "admit.hit[1].bucket", "32 bytes", |hit: &mut Hit, n| hit.bucket = bytes(n), fits: [32], not: [0, 31, 33]);
    let make = |set: fn(&mut Hit)| {
        second(&|hit: &mut Hit| {
            set(hit);
            // A window's length belongs to the bucket's name.
            hit.bucket = draw::digest(12, u64::from(hit.window_s));
        })
    };
    probes!(all, make, "admit.hit[1].window_s", "1 to 2592000", |hit: &mut Hit, n| hit.window_s = n, fits: [1, 2_592_000], not: [0, 2_592_001, u32::MAX]);
    let make = |set: fn(&mut Hit)| second(&set);
    probes!(all, make, "admit.hit[1].reserve", "1 to 64", |hit: &mut Hit, n| hit.reserve = n, fits: [1, 64], not: [0, 65, 257, u32::MAX]);
    probes!(all, make, "admit.hit[1].quota", "", |hit: &mut Hit, n| hit.quota = n, fits: [0, u32::MAX], not: []);
    probes!(all, make, "admit.hit[1].cost", "", |hit: &mut Hit, n| hit.cost = n, fits: [0, u32::MAX], not: []);
}

fn outages_and_refunds(all: &mut Vec<Probe>) {
    let make = |set: fn(&mut Charge)| {
        let mut charge = Charge {
            bucket: draw::digest(11, 3),
            quota: 10,
            window_s: 60,
            hits: 1,
            age_ms: 0,
            reserve: 1,
        };
        set(&mut charge);
        Operation::Charge(charge)
    };
    probes!(all, make, "charge.bucket", "32 bytes", |charge: &mut Charge, n| charge.bucket = bytes(n), fits: [32], not: [31, 33]);
    probes!(all, make, "charge.window_s", "1 to 2592000", |charge: &mut Charge, n| charge.window_s = n, fits: [1, 2_592_000], not: [0, 2_592_001]);
    probes!(all, make, "charge.reserve", "1 to 64", |charge: &mut Charge, n| charge.reserve = n, fits: [1, 64], not: [0, 65]);
    probes!(all, make, "charge.hits", "", |charge: &mut Charge, n| charge.hits = n, fits: [0, u32::MAX], not: []);
    probes!(all, make, "charge.age_ms", "", |charge: &mut Charge, n| charge.age_ms = n, fits: [0, u64::MAX], not: []);
    let make = |set: fn(&mut Refund)| {
        let mut refund = Refund {
            bucket: draw::digest(11, 4),
            window_s: 60,
            cost: 1,
            window_start_ms: 1,
        };
        set(&mut refund);
        Operation::Refund(refund)
    };
    probes!(all, make, "refund.bucket", "32 bytes", |refund: &mut Refund, n| refund.bucket = bytes(n), fits: [32], not: [31, 33]);
    probes!(all, make, "refund.window_s", "1 to 2592000", |refund: &mut Refund, n| refund.window_s = n, fits: [1, 2_592_000], not: [0, 2_592_001]);
    probes!(all, make, "refund.cost", "", |refund: &mut Refund, n| refund.cost = n, fits: [0, u32::MAX], not: []);
    probes!(all, make, "refund.window_start_ms", "", |refund: &mut Refund, n| refund.window_start_ms = n, fits: [0, u64::MAX], not: []);
}

fn claims(all: &mut Vec<Probe>) {
    let number = std::cell::Cell::new(0);
    let make = |set: fn(&mut Claim)| {
        number.set(number.get() + 1);
        let mut claim = Claim {
            key: draw::digest(13, number.get()),
            claim_id: draw::claim_id(9_000_000 + number.get()),
            fingerprint: draw::fingerprint(1),
            lease_ms: 1_000,
            ttl_ms: 1_000,
            remember_ms: 1_000,
            wait_ms: 0,
            execute_unknown: false,
        };
        set(&mut claim);
        Operation::Claim(claim)
    };
    probes!(all, make, "claim.key", "32 bytes", |claim: &mut Claim, n| claim.key = bytes(n), fits: [32], not: [0, 31, 33]);
    probes!(all, make, "claim.claim_id", "16 bytes", |claim: &mut Claim, n| claim.claim_id = bytes(n), fits: [16], not: [0, 15, 17]);
    probes!(all, make, "claim.fingerprint", "33 bytes", |claim: &mut Claim, n| claim.fingerprint = bytes(n), fits: [33], not: [0, 32, 34]);
    probes!(all, make, "claim.lease_ms", "1 to 86400000", |claim: &mut Claim, n| claim.lease_ms = n, fits: [1, DAY_MS], not: [0, DAY_MS + 1, u64::MAX]);
    probes!(all, make, "claim.ttl_ms", "1000 to 31622400000", |claim: &mut Claim, n| { claim.ttl_ms = n; claim.remember_ms = n }, fits: [1_000, YEAR_MS], not: [0, 999, YEAR_MS + 1, u64::MAX]);
    probes!(all, make, "claim.remember_ms", "to 31622400000", |claim: &mut Claim, n| { claim.ttl_ms = 5_000; claim.remember_ms = n }, fits: [5_000, YEAR_MS], not: [0, 4_999, YEAR_MS + 1, u64::MAX]);
    probes!(all, make, "claim.wait_ms", "0 to 60000", |claim: &mut Claim, n| claim.wait_ms = n, fits: [0, 60_000], not: [60_001, u64::MAX]);
    let make = |set: fn(&mut Abandon)| {
        let mut abandon = Abandon {
            key: draw::digest(13, 1_000),
            claim_id: draw::claim_id(9_900_000),
            lease_ms: 1,
        };
        set(&mut abandon);
        Operation::Abandon(abandon)
    };
    probes!(all, make, "abandon.key", "32 bytes", |abandon: &mut Abandon, n| abandon.key = bytes(n), fits: [32], not: [31, 33]);
    probes!(all, make, "abandon.claim_id", "16 bytes", |abandon: &mut Abandon, n| abandon.claim_id = bytes(n), fits: [16], not: [15, 17]);
    probes!(all, make, "abandon.lease_ms", "1 to 86400000", |abandon: &mut Abandon, n| abandon.lease_ms = n, fits: [1, DAY_MS], not: [0, DAY_MS + 1]);
}

fn completed(outcome: Option<Completion>) -> Complete {
    Complete {
        key: draw::digest(13, 2_000),
        claim_id: draw::claim_id(9_900_001),
        outcome,
    }
}

fn completions(all: &mut Vec<Probe>) {
    let make = |set: fn(&mut Complete)| {
        let mut complete = completed(Some(Completion::Tombstone(Tombstone { status: 200 })));
        set(&mut complete);
        Operation::Complete(complete)
    };
    probes!(all, make, "complete.key", "32 bytes", |complete: &mut Complete, n| complete.key = bytes(n), fits: [32], not: [31, 33]);
    probes!(all, make, "complete.claim_id", "16 bytes", |complete: &mut Complete, n| complete.claim_id = bytes(n), fits: [16], not: [15, 17]);
    probes!(all, make, "complete.outcome", "response, tombstone or unknown", |complete: &mut Complete, none: bool| if none { complete.outcome = None }, fits: [false], not: [true]);
    probes!(all, make, "complete.tombstone.status", "200 to 599", |complete: &mut Complete, status| complete.outcome = Some(Completion::Tombstone(Tombstone { status })), fits: [200, 599], not: [0, 199, 600, u32::MAX]);
    probes!(all, make, "complete.unknown.status", "200 to 599", |complete: &mut Complete, status| complete.outcome = Some(Completion::Unknown(Unknown { status })), fits: [0, 200, 599], not: [1, 199, 600, u32::MAX]);
}

fn responses(all: &mut Vec<Probe>) {
    let make = |set: fn(&mut Response)| {
        let mut response = draw::response(1, 10);
        set(&mut response);
        Operation::Complete(completed(Some(Completion::Response(response))))
    };
    probes!(all, make, "complete.response.status", "200 to 599", |response: &mut Response, n| response.status = n, fits: [200, 599], not: [0, 199, 600, 65_736]);
    probes!(all, make, "complete.response.field", "256", |response: &mut Response, n| response.field = vec![Field { name: bytes(1), value: bytes(1) }; n], fits: [0, 256], not: [257]);
    probes!(all, make, "complete.response.field", "65536 bytes", |response: &mut Response, n| response.field = vec![Field { name: bytes(1), value: bytes(n) }], fits: [65_535], not: [65_536]);
    probes!(all, make, "complete.response.body", "3145728 bytes", |response: &mut Response, n| response.body = bytes(n), fits: [0, 3 << 20], not: [(3 << 20) + 1]);
    probes!(all, make, "complete.response.field[0].name", "lower case", |response: &mut Response, name: &'static [u8]| response.field = vec![Field { name: Bytes::from_static(name), value: bytes(1) }], fits: [b"x-a"], not: [b"", b"X-a"]);
}
