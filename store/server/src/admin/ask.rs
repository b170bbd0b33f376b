//! Is an operator's request within its bounds?

use std::time::Duration;

use porch_engine::{Look, Settlement};
use porch_wire::{InspectRequest, settle_request::Outcome};
use tonic::Status;

use crate::parse::{self, Invalid};

/// A SHA-256 that names a bucket or a record.
pub(super) fn digest(field: &str, came: &[u8]) -> Result<[u8; 32], Status> {
    parse::digest(|| field.to_owned(), came).map_err(refused)
}

pub(super) fn look(request: &InspectRequest) -> Result<Look, Status> {
    let named = |field, came: &[u8]| match came {
        [] => Ok(None),
        came => digest(field, came).map(Some),
    };
    Ok(Look {
        bucket: named("bucket", &request.bucket)?,
        record: named("record", &request.record)?,
        body: request.body,
    })
}

pub(super) fn settlement(outcome: Option<Outcome>) -> Result<Settlement, Status> {
    match outcome {
        Some(Outcome::Released(_)) => Ok(Settlement::Released),
        Some(Outcome::Tombstone(tombstone)) => {
            let status = parse::status("tombstone.status", tombstone.status).map_err(refused)?;
            Ok(Settlement::Tombstone { status })
        }
        None => Err(Status::invalid_argument(
            "outcome: expected released or tombstone, came none of them",
        )),
    }
}

/// 0 says nothing.
pub(super) fn read_limit(came_ms: u64, default: Option<Duration>) -> Option<Duration> {
    match came_ms {
        0 => default,
        came_ms => Some(Duration::from_millis(came_ms)),
    }
}

fn refused(invalid: Invalid) -> Status {
    let Invalid { field, message } = invalid;
    Status::invalid_argument(format!("{field}: {message}"))
}
