//! How do operators reach the store? The `Admin` service.

use std::sync::Arc;

use porch_engine::Outcome;
use porch_wire::{InspectReply, InspectRequest, admin_server::Admin};
use tonic::{Request, Response, Status};

use crate::{
    desk::{Answered, Desk},
    parse, reply,
};

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Desk>);

#[tonic::async_trait]
impl Admin for Service {
    async fn inspect(
        &self,
        request: Request<InspectRequest>,
    ) -> Result<Response<InspectReply>, Status> {
        let bucket = parse::inspected_bucket(&request.get_ref().bucket).map_err(|invalid| {
            Status::invalid_argument(format!("{}: {}", invalid.field, invalid.message))
        })?;
        let answered = self.0.ask(|front, caller| front.inspect(caller, bucket));
        let (Answered::AtOnce(outcome) | Answered::Later(outcome)) = answered.await?;
        match outcome {
            Outcome::Inspected(inspected) => {
                let now_ms = self.0.now_ms();
                Ok(Response::new(reply::inspected(&inspected, now_ms)))
            }
            Outcome::Refused(refusal) => Err(Status::unavailable(refusal.message)),
            other => Err(Status::internal(format!(
                "expected an inspection, came {other:?}"
            ))),
        }
    }
}
