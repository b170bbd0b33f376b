//! Between the core's store operations and the channel's messages.

use bytes::Bytes;
use porch_core::channel::{CallId, Kind, Via};
use porch_core::http::{Field, Response};
use porch_core::store::{
    Abandon, Claim, Claimed, Complete, Error, Hit, Operation, Outcome, Reply, Verdict,
};
use porch_wire as wire;
use porch_wire::call::Operation as WireOperation;
use porch_wire::claimed::Outcome as WireClaimed;
use porch_wire::complete::Outcome as WireCompleted;
use porch_wire::reply::Outcome as WireReply;
use prost::Message;

/// Each stream's first message.
pub(crate) fn hello() -> Vec<u8> {
    wire::Calls {
        call: vec![],
        protocol: wire::PROTOCOL,
    }
    .encode_to_vec()
}

/// What an operation promises, and the way it takes.
pub(crate) fn route(operation: &Operation) -> (Kind, Via) {
    match operation {
        Operation::Admit(_) | Operation::Charge(_) | Operation::Refund(_) => {
            (Kind::Once, Via::Stream)
        }
        Operation::Claim(claim) => {
            let via = if claim.large {
                Via::Invoke
            } else {
                Via::Stream
            };
            (
                Kind::Claim {
                    wait_ms: claim.wait_ms,
                },
                via,
            )
        }
        Operation::Abandon(abandon) => (
            Kind::Abandon {
                lease_ms: abandon.lease_ms,
            },
            Via::Stream,
        ),
        Operation::Complete(complete) => {
            let large = match &complete.outcome {
                Outcome::Response(response) => response.body.len() > wire::CHANNEL_BODY_BYTES_MAX,
                Outcome::Tombstone { .. } | Outcome::Unknown { .. } => false,
            };
            (
                Kind::Complete,
                if large { Via::Invoke } else { Via::Stream },
            )
        }
    }
}

/// A call in the form of its way: on the stream, a batch of one, so that batches are their bytes in a row.
pub(crate) fn encode(id: CallId, operation: Operation, via: Via) -> Vec<u8> {
    let operation = match operation {
        Operation::Admit(hits) => WireOperation::Admit(wire::Admit {
            hit: hits.into_iter().map(hit).collect(),
        }),
        Operation::Charge(of) => WireOperation::Charge(wire::Charge {
            bucket: Bytes::copy_from_slice(&of.bucket.0),
            quota: of.quota,
            window_s: of.window_s,
            hits: of.hits,
            age_ms: of.age_ms,
            reserve: of.reserve,
        }),
        Operation::Refund(of) => WireOperation::Refund(wire::Refund {
            bucket: Bytes::copy_from_slice(&of.bucket.0),
            window_s: of.window_s,
            cost: of.cost,
            window_start_ms: of.window_start_ms,
        }),
        Operation::Claim(of) => WireOperation::Claim(claim(&of)),
        Operation::Complete(of) => WireOperation::Complete(complete(of)),
        Operation::Abandon(Abandon { key, id, lease_ms }) => {
            WireOperation::Abandon(wire::Abandon {
                key: Bytes::copy_from_slice(&key.0),
                claim_id: Bytes::copy_from_slice(&id.0),
                lease_ms,
            })
        }
    };
    let call = wire::Call {
        id,
        operation: Some(operation),
    };
    match via {
        Via::Stream => wire::Calls {
            call: vec![call],
            protocol: 0,
        }
        .encode_to_vec(),
        Via::Invoke => call.encode_to_vec(),
    }
}

fn hit(hit: Hit) -> wire::Hit {
    wire::Hit {
        bucket: Bytes::copy_from_slice(&hit.bucket.0),
        quota: hit.quota,
        window_s: hit.window_s,
        cost: hit.cost,
        reserve: hit.reserve,
        shadow: hit.shadow,
        refundable: hit.refundable,
    }
}

fn claim(claim: &Claim) -> wire::Claim {
    let fingerprint: Vec<u8> = std::iter::once(claim.fingerprint.version)
        .chain(claim.fingerprint.digest)
        .collect();
    wire::Claim {
        key: Bytes::copy_from_slice(&claim.key.0),
        claim_id: Bytes::copy_from_slice(&claim.id.0),
        fingerprint: fingerprint.into(),
        lease_ms: claim.lease_ms,
        ttl_ms: claim.ttl_ms,
        remember_ms: claim.remember_ms,
        wait_ms: claim.wait_ms,
        execute_unknown: claim.execute_unknown,
    }
}

fn complete(complete: Complete) -> wire::Complete {
    let outcome = match complete.outcome {
        Outcome::Response(response) => WireCompleted::Response(wire::Response {
            status: u32::from(response.status),
            field: response.fields.into_iter().map(field).collect(),
            body: response.body.into(),
        }),
        Outcome::Tombstone { status } => WireCompleted::Tombstone(wire::Tombstone {
            status: u32::from(status),
        }),
        Outcome::Unknown { status } => WireCompleted::Unknown(wire::Unknown {
            status: u32::from(status),
        }),
    };
    wire::Complete {
        key: Bytes::copy_from_slice(&complete.key.0),
        claim_id: Bytes::copy_from_slice(&complete.id.0),
        outcome: Some(outcome),
    }
}

fn field(field: Field) -> wire::Field {
    wire::Field {
        name: field.name.into_owned().into(),
        value: field.value.into_owned().into(),
    }
}

/// A message of the stream; `None` when it is none.
pub(crate) fn decode_replies(message: Vec<u8>) -> Option<wire::Replies> {
    wire::Replies::decode(Bytes::from(message)).ok()
}

/// An Invoke's answer; `None` when it is none.
pub(crate) fn decode_reply(message: Vec<u8>) -> Option<wire::Reply> {
    wire::Reply::decode(Bytes::from(message)).ok()
}

/// A reply in the core's terms; `None` when it says nothing that this filter knows.
pub(crate) fn reply(reply: wire::Reply) -> Option<Reply> {
    Some(match reply.outcome? {
        WireReply::Admitted(admitted) => Reply::Admitted {
            admitted: admitted.admitted,
            verdicts: admitted.verdict.iter().map(verdict).collect(),
        },
        WireReply::Claimed(claimed) => Reply::Claimed(self::claimed(claimed)?),
        WireReply::Completed(_) => Reply::Completed,
        WireReply::Abandoned(_) => Reply::Abandoned,
        WireReply::Error(error) => Reply::Error(match error.code() {
            wire::Code::Unavailable => Error::Unavailable,
            wire::Code::DataLoss => Error::DataLoss,
            wire::Code::Unspecified | wire::Code::InvalidArgument | wire::Code::Unimplemented => {
                Error::Refused
            }
        }),
        WireReply::Charged(_) => Reply::Charged,
        WireReply::Refunded(_) => Reply::Refunded,
    })
}

fn verdict(verdict: &wire::Verdict) -> Verdict {
    Verdict {
        refused: verdict.refused,
        remaining: verdict.remaining,
        reset_ms: verdict.reset_ms,
        window_start_ms: verdict.window_start_ms,
        settled: verdict.settled,
    }
}

fn claimed(claimed: wire::Claimed) -> Option<Claimed> {
    Some(match claimed.outcome? {
        WireClaimed::Granted(_) => Claimed::Granted,
        WireClaimed::Large(_) => Claimed::Large,
        WireClaimed::InFlight(_) => Claimed::InFlight,
        WireClaimed::Mismatch(_) => Claimed::Mismatch,
        WireClaimed::Tombstone(tombstone) => Claimed::Tombstone {
            status: status(tombstone.status),
        },
        WireClaimed::Unknown(unknown) => Claimed::Unknown {
            status: status(unknown.status),
        },
        WireClaimed::Replay(response) => {
            let fields = response.field.into_iter();
            Claimed::Replay(Response {
                status: u16::try_from(response.status)
                    .ok()
                    .filter(|status| (200..=599).contains(status))?,
                fields: fields
                    .map(|field| Field::received(field.name.into(), field.value.into()))
                    .collect(),
                body: response.body.into(),
            })
        }
    })
}

fn status(status: u32) -> u16 {
    u16::try_from(status).unwrap_or_default()
}
