//! How does an answer look on the wire?

use porch_engine::{ClaimAnswer, Code, Outcome, Response, Verdict};
use porch_wire::{self as wire, claimed, reply};

use crate::parse::Invalid;

/// A reply to a call.
pub(crate) fn reply(id: u64, answer: Outcome) -> wire::Reply {
    wire::Reply {
        id,
        outcome: Some(outcome(answer)),
    }
}

/// An answer of the engine.
pub(crate) fn outcome(outcome: Outcome) -> reply::Outcome {
    match outcome {
        Outcome::Admitted {
            admitted: all,
            verdicts,
        } => admitted(all, &verdicts),
        Outcome::Charged => reply::Outcome::Charged(wire::Charged {}),
        Outcome::Refunded { applied } => reply::Outcome::Refunded(wire::Refunded { applied }),
        Outcome::Claimed(answer) => reply::Outcome::Claimed(wire::Claimed {
            outcome: Some(claimed(answer)),
        }),
        Outcome::Completed { fenced } => reply::Outcome::Completed(wire::Completed { fenced }),
        Outcome::Abandoned { released } => reply::Outcome::Abandoned(wire::Abandoned { released }),
        Outcome::Refused(refusal) => {
            let code = match refusal.code {
                Code::Unavailable => wire::Code::Unavailable,
                Code::DataLoss => wire::Code::DataLoss,
            };
            error(code, String::new(), refusal.message)
        }
        // Never asked for on this service.
        Outcome::Inspected(_) | Outcome::Forgotten(_) | Outcome::Settled(_) | Outcome::Reset(_) => {
            unknown_operation()
        }
    }
}

/// An admit that is answered at once.
pub(crate) fn admitted(admitted: bool, verdicts: &[Verdict]) -> reply::Outcome {
    let verdict = verdicts.iter().map(|verdict| wire::Verdict {
        refused: verdict.refused,
        remaining: verdict.remaining,
        reset_ms: verdict.reset_ms,
        window_start_ms: verdict.window_start_ms,
        settled: verdict.settled,
    });
    reply::Outcome::Admitted(wire::Admitted {
        admitted,
        verdict: verdict.collect(),
    })
}

/// A field out of its bounds.
pub(crate) fn invalid(invalid: Invalid) -> reply::Outcome {
    error(wire::Code::InvalidArgument, invalid.field, invalid.message)
}

/// An operation that this protocol does not have.
pub(crate) fn unknown_operation() -> reply::Outcome {
    let protocol = wire::PROTOCOL;
    error(
        wire::Code::Unimplemented,
        "operation".to_owned(),
        format!("expected an operation of protocol {protocol}, came none that this store knows"),
    )
}

fn error(code: wire::Code, field: String, message: String) -> reply::Outcome {
    reply::Outcome::Error(wire::Error {
        code: code.into(),
        field,
        message,
    })
}

fn claimed(answer: ClaimAnswer) -> claimed::Outcome {
    match answer {
        ClaimAnswer::Granted => claimed::Outcome::Granted(wire::Granted {}),
        ClaimAnswer::Replay(response) => claimed::Outcome::Replay(replay(response)),
        ClaimAnswer::Large => claimed::Outcome::Large(wire::Large {}),
        ClaimAnswer::InFlight => claimed::Outcome::InFlight(wire::InFlight {}),
        ClaimAnswer::Mismatch => claimed::Outcome::Mismatch(wire::Mismatch {}),
        ClaimAnswer::Tombstone { status } => claimed::Outcome::Tombstone(wire::Tombstone {
            status: u32::from(status),
        }),
        ClaimAnswer::Unknown { status } => claimed::Outcome::Unknown(wire::Unknown {
            status: u32::from(status),
        }),
    }
}

/// A kept response.
pub(crate) fn replay(response: Response) -> wire::Response {
    let fields = response.fields.into_iter();
    wire::Response {
        status: u32::from(response.status),
        field: fields
            .map(|(name, value)| wire::Field { name, value })
            .collect(),
        body: response.body,
    }
}
