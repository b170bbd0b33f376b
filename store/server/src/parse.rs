//! Is a call within its bounds?
//!
//! What passes here is the engine's type; what does not is answered `INVALID_ARGUMENT` with the field's path, what was
//! expected and what came.

use core::num::NonZeroU32;
use std::ops::RangeInclusive;

use bytes::Bytes;
use porch_engine::{
    Charge, Claim, ClaimCall, ClaimId, Hit, Key, LENGTH_S_MAX, RESERVE_MAX, Refund, Resolution,
    Response,
};
use porch_wire as wire;

const HITS_MAX: usize = 64;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const LEASE_MS: RangeInclusive<u64> = 1..=DAY_MS;
const TTL_MS: RangeInclusive<u64> = 1_000..=366 * DAY_MS;
const WAIT_MS: RangeInclusive<u64> = 0..=60_000;
const STATUS: RangeInclusive<u32> = 200..=599;
const FIELDS_MAX: usize = 256;
const FIELD_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A field out of its bounds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// Its path, such as `admit.hit[2].window_s`.
    pub(crate) field: String,
    /// What was expected and what came.
    pub(crate) message: String,
}

/// A completion within its bounds.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) key: Key,
    pub(crate) claim_id: ClaimId,
    pub(crate) resolution: Resolution,
}

/// An abandon within its bounds.
#[derive(Debug)]
pub(crate) struct Abandon {
    pub(crate) key: Key,
    pub(crate) claim_id: ClaimId,
    pub(crate) lease_ms: u64,
}

/// Fills `hits`.
pub(crate) fn admit(admit: &wire::Admit, hits: &mut Vec<Hit>) -> Result<(), Invalid> {
    hits.clear();
    let came = admit.hit.len();
    if !(1..=HITS_MAX).contains(&came) {
        return Err(invalid("admit.hit", &format!("1 to {HITS_MAX} hits"), came));
    }
    for (at, wire) in admit.hit.iter().enumerate() {
        let field = |name: &str| format!("admit.hit[{at}].{name}");
        hits.push(Hit {
            bucket: digest(|| field("bucket"), &wire.bucket)?,
            quota: wire.quota,
            window_s: window_s(|| field("window_s"), wire.window_s)?,
            cost: wire.cost,
            reserve: reserve(|| field("reserve"), wire.reserve)?,
            shadow: wire.shadow,
            refundable: wire.refundable,
        });
    }
    Ok(())
}

pub(crate) fn charge(wire: &wire::Charge) -> Result<Charge, Invalid> {
    let field = |name: &str| format!("charge.{name}");
    Ok(Charge {
        bucket: digest(|| field("bucket"), &wire.bucket)?,
        quota: wire.quota,
        window_s: window_s(|| field("window_s"), wire.window_s)?,
        hits: wire.hits,
        age_ms: wire.age_ms,
        reserve: reserve(|| field("reserve"), wire.reserve)?,
    })
}

pub(crate) fn refund(wire: &wire::Refund) -> Result<Refund, Invalid> {
    let field = |name: &str| format!("refund.{name}");
    window_s(|| field("window_s"), wire.window_s)?;
    Ok(Refund {
        bucket: digest(|| field("bucket"), &wire.bucket)?,
        cost: wire.cost,
        window_start_ms: wire.window_start_ms,
    })
}

pub(crate) fn claim(wire: &wire::Claim, replay_bytes_max: u32) -> Result<ClaimCall, Invalid> {
    let field = |name: &str| format!("claim.{name}");
    let ttl_ms = within(|| field("ttl_ms"), wire.ttl_ms, &TTL_MS)?;
    let remember_ms = ttl_ms..=*TTL_MS.end();
    Ok(ClaimCall {
        key: digest(|| field("key"), &wire.key)?,
        claim: Claim {
            claim_id: digest(|| field("claim_id"), &wire.claim_id)?,
            fingerprint: digest(|| field("fingerprint"), &wire.fingerprint)?,
            lease_ms: within(|| field("lease_ms"), wire.lease_ms, &LEASE_MS)?,
            ttl_ms,
            remember_ms: within(|| field("remember_ms"), wire.remember_ms, &remember_ms)?,
            execute_unknown: wire.execute_unknown,
        },
        replay_bytes_max,
        wait_ms: within(|| field("wait_ms"), wire.wait_ms, &WAIT_MS)?,
    })
}

pub(crate) fn complete(wire: wire::Complete) -> Result<Complete, Invalid> {
    use wire::complete::Outcome;
    let resolution = match wire.outcome {
        Some(Outcome::Response(wire)) => Resolution::Response(response(wire)?),
        Some(Outcome::Tombstone(wire)) => Resolution::Tombstone {
            status: status("complete.tombstone.status", wire.status)?,
        },
        Some(Outcome::Unknown(wire)) => Resolution::Unknown {
            status: match wire.status {
                0 => 0,
                told => status("complete.unknown.status", told)?,
            },
        },
        None => {
            let expected = "response, tombstone or unknown";
            return Err(invalid("complete.outcome", expected, "none of them"));
        }
    };
    Ok(Complete {
        key: digest(|| "complete.key".to_owned(), &wire.key)?,
        claim_id: digest(|| "complete.claim_id".to_owned(), &wire.claim_id)?,
        resolution,
    })
}

pub(crate) fn abandon(wire: &wire::Abandon) -> Result<Abandon, Invalid> {
    let field = |name: &str| format!("abandon.{name}");
    Ok(Abandon {
        key: digest(|| field("key"), &wire.key)?,
        claim_id: digest(|| field("claim_id"), &wire.claim_id)?,
        lease_ms: within(|| field("lease_ms"), wire.lease_ms, &LEASE_MS)?,
    })
}

fn response(wire: wire::Response) -> Result<Response, Invalid> {
    const FIELD: &str = "complete.response.field";
    let status = status("complete.response.status", wire.status)?;
    let came = wire.field.len();
    if came > FIELDS_MAX {
        return Err(invalid(FIELD, &format!("at most {FIELDS_MAX} lines"), came));
    }
    let lines = wire.field.iter();
    let bytes: usize = lines.map(|line| line.name.len() + line.value.len()).sum();
    if bytes > FIELD_BYTES_MAX {
        let expected = format!("at most {FIELD_BYTES_MAX} bytes in all lines");
        return Err(invalid(FIELD, &expected, format!("{bytes} bytes")));
    }
    let came = wire.body.len();
    if came > BODY_BYTES_MAX {
        let expected = format!("at most {BODY_BYTES_MAX} bytes");
        return Err(invalid(
            "complete.response.body",
            &expected,
            format!("{came} bytes"),
        ));
    }
    let mut fields: Vec<(Bytes, Bytes)> = Vec::with_capacity(wire.field.len());
    for (at, line) in wire.field.into_iter().enumerate() {
        if line.name.is_empty() || line.name.iter().any(u8::is_ascii_uppercase) {
            let came = String::from_utf8_lossy(&line.name);
            let expected = "a name in lower case";
            return Err(invalid(
                format!("{FIELD}[{at}].name"),
                expected,
                format!("`{came}`"),
            ));
        }
        fields.push((line.name, line.value));
    }
    Ok(Response {
        status,
        fields,
        body: wire.body,
    })
}

pub(crate) fn status(field: &str, came: u32) -> Result<u16, Invalid> {
    let told = u16::try_from(came).ok().filter(|_| STATUS.contains(&came));
    told.ok_or_else(|| invalid(field, "200 to 599", came))
}

pub(crate) fn digest<const N: usize>(
    field: impl FnOnce() -> String,
    came: &[u8],
) -> Result<[u8; N], Invalid> {
    came.try_into().map_err(|_| {
        let came = format!("{} bytes", came.len());
        invalid(field(), &format!("{N} bytes"), came)
    })
}

fn window_s(field: impl FnOnce() -> String, came: u32) -> Result<NonZeroU32, Invalid> {
    NonZeroU32::new(came)
        .filter(|length| length.get() <= LENGTH_S_MAX)
        .ok_or_else(|| invalid(field(), &format!("1 to {LENGTH_S_MAX}"), came))
}

fn reserve(field: impl FnOnce() -> String, came: u32) -> Result<u8, Invalid> {
    u8::try_from(came)
        .ok()
        .filter(|_| (1..=RESERVE_MAX).contains(&came))
        .ok_or_else(|| invalid(field(), &format!("1 to {RESERVE_MAX}"), came))
}

fn within(
    field: impl FnOnce() -> String,
    came: u64,
    bounds: &RangeInclusive<u64>,
) -> Result<u64, Invalid> {
    if bounds.contains(&came) {
        Ok(came)
    } else {
        let expected = format!("{} to {}", bounds.start(), bounds.end());
        Err(invalid(field(), &expected, came))
    }
}

fn invalid(field: impl Into<String>, expected: &str, came: impl std::fmt::Display) -> Invalid {
    Invalid {
        field: field.into(),
        message: format!("expected {expected}, came {came}"),
    }
}
