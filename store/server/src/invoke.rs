//! How do filters reach the store? The `SharedData` service.

use std::sync::Arc;

use porch_wire::{Call, Calls, Reply, shared_data_server::SharedData};
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap};

use crate::{
    channel::{self, check_protocol},
    desk::{Answered, Desk},
    operation::Operations,
    outlet::ReplyStream,
    reply,
};

/// Metadata of Invoke that carries the protocol's number.
const PROTOCOL_KEY: &str = "porch-protocol";

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Desk>);

#[tonic::async_trait]
impl SharedData for Service {
    type ChannelStream = ReplyStream;

    async fn channel(
        &self,
        calls: Request<Streaming<Calls>>,
    ) -> Result<Response<ReplyStream>, Status> {
        Ok(Response::new(channel::open(&self.0, calls.into_inner())))
    }

    async fn invoke(&self, call: Request<Call>) -> Result<Response<Reply>, Status> {
        check_protocol(protocol(call.metadata())?)?;
        let call = call.into_inner();
        let id = call.id;
        let now_ms = self.0.now_ms();
        let answered = self
            .0
            .ask(|front, caller| Operations::new(u32::MAX).call(front, now_ms, caller, call));
        let outcome = match answered.await? {
            Answered::AtOnce(outcome) => outcome,
            Answered::Later(outcome) => reply::outcome(outcome),
        };
        self.0.metrics().answered(&outcome);
        Ok(Response::new(Reply {
            id,
            outcome: Some(outcome),
        }))
    }
}

fn protocol(metadata: &MetadataMap) -> Result<u32, Status> {
    let came = metadata.get(PROTOCOL_KEY);
    let number = came.and_then(|came| came.to_str().ok()?.parse().ok());
    number.ok_or_else(|| {
        Status::failed_precondition(format!(
            "expected metadata `{PROTOCOL_KEY}` with the protocol's number, came {came:?}"
        ))
    })
}
