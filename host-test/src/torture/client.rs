//! How does a torture speak to the store? One stream of the shared-data channel, and Invoke beside it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use porch_wire::call::Operation;
use porch_wire::reply::Outcome;
use porch_wire::shared_data_client::SharedDataClient;
use porch_wire::{Call, Calls, MESSAGE_BYTES_MAX, PROTOCOL, Replies, Reply};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

/// Metadata of Invoke that carries the protocol's number.
const PROTOCOL_KEY: &str = "porch-protocol";

/// One stream.
#[derive(Debug)]
pub(super) struct Client {
    service: SharedDataClient<Channel>,
    calls: mpsc::UnboundedSender<Calls>,
    replies: Streaming<Replies>,
    last_id: u64,
    waiting: BTreeMap<u64, Outcome>,
}

impl Client {
    pub(super) async fn connect(socket: &Path) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("unix:{}", socket.display()))?
            .connect()
            .await?;
        let mut service =
            SharedDataClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let (calls, outgoing) = mpsc::unbounded_channel();
        calls.send(Calls {
            call: Vec::new(),
            protocol: PROTOCOL,
        })?;
        let replies = service
            .channel(UnboundedReceiverStream::new(outgoing))
            .await?
            .into_inner();
        Ok(Self {
            service,
            calls,
            replies,
            last_id: 0,
            waiting: BTreeMap::new(),
        })
    }

    /// Sends one message with all these calls; answers their ids.
    pub(super) fn send(&mut self, operations: Vec<Operation>) -> anyhow::Result<Vec<u64>> {
        let mut ids = Vec::with_capacity(operations.len());
        let call = operations.into_iter().map(|operation| {
            self.last_id += 1;
            ids.push(self.last_id);
            Call {
                id: self.last_id,
                operation: Some(operation),
            }
        });
        let call = call.collect();
        self.calls.send(Calls { call, protocol: 0 })?;
        Ok(ids)
    }

    /// The next answer that has come, whichever it is.
    pub(super) async fn next(&mut self) -> anyhow::Result<(u64, Outcome)> {
        loop {
            if let Some(answer) = self.waiting.pop_first() {
                return Ok(answer);
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        let message = self.replies.message().await?;
        for Reply { id, outcome } in message.context("the store ended the stream")?.reply {
            let outcome = outcome.with_context(|| format!("the reply to call {id} is empty"))?;
            if id == 0 || id > self.last_id || self.waiting.insert(id, outcome).is_some() {
                bail!("call {id} was answered twice, or never asked");
            }
        }
        Ok(())
    }

    /// Sends all in one message, and answers their outcomes in their order.
    pub(super) async fn ask_all(
        &mut self,
        operations: Vec<Operation>,
    ) -> anyhow::Result<Vec<Outcome>> {
        let ids = self.send(operations)?;
        let mut outcomes = Vec::with_capacity(ids.len());
        for id in ids {
            loop {
                if let Some(outcome) = self.waiting.remove(&id) {
                    outcomes.push(outcome);
                    break;
                }
                self.read().await?;
            }
        }
        Ok(outcomes)
    }

    /// One call and its answer.
    pub(super) async fn ask(&mut self, operation: Operation) -> anyhow::Result<Outcome> {
        let outcomes = self.ask_all(vec![operation]).await?;
        outcomes.into_iter().next().context("one call, one answer")
    }

    /// One call by Invoke.
    pub(super) async fn invoke(&mut self, operation: Operation) -> anyhow::Result<Outcome> {
        let mut request = Request::new(Call {
            id: 1,
            operation: Some(operation),
        });
        let protocol = PROTOCOL.to_string().parse()?;
        request.metadata_mut().insert(PROTOCOL_KEY, protocol);
        let reply = self.service.invoke(request).await?.into_inner();
        reply.outcome.context("the reply is empty")
    }
}
