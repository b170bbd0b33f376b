//! How does a caller speak to the store?

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use porch_wire::{
    Abandon, Admit, Admitted, Call, Calls, Claim, Claimed, Complete, Field, Hit, PROTOCOL, Replies,
    Reply, Response, call::Operation, claimed, complete, reply,
    shared_data_client::SharedDataClient,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Request, Status, Streaming,
    transport::{Channel, Endpoint},
};

/// A reply is given so long before the test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// One stream to the store.
pub(crate) struct Client {
    service: SharedDataClient<Channel>,
    calls: mpsc::UnboundedSender<Calls>,
    replies: Streaming<Replies>,
    last_id: u64,
    sent: u64,
    pub(crate) received: u64,
    waiting: BTreeMap<u64, reply::Outcome>,
}

impl Client {
    /// Connects and says hello.
    pub(crate) async fn connect(socket: &Path) -> anyhow::Result<Self> {
        Self::connect_as(socket, PROTOCOL).await
    }

    pub(crate) async fn connect_as(socket: &Path, protocol: u32) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("unix:{}", socket.display()))?
            .connect()
            .await?;
        let mut service =
            SharedDataClient::new(channel).max_decoding_message_size(porch_wire::MESSAGE_BYTES_MAX);
        let (calls, outgoing) = mpsc::unbounded_channel();
        calls.send(Calls {
            call: Vec::new(),
            protocol,
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
            sent: 1,
            received: 0,
            waiting: BTreeMap::new(),
        })
    }

    /// Sends one message with all these calls; answers their ids.
    pub(crate) fn send(&mut self, operations: Vec<Operation>) -> anyhow::Result<Vec<u64>> {
        let call: Vec<Call> = operations
            .into_iter()
            .map(|operation| {
                self.last_id += 1;
                Call {
                    id: self.last_id,
                    operation: Some(operation),
                }
            })
            .collect();
        let ids = call.iter().map(|call| call.id).collect();
        self.sent += 1;
        self.calls.send(Calls { call, protocol: 0 })?;
        Ok(ids)
    }

    /// Sends a call without an operation, which is how one that the store does not know arrives; answers its id.
    pub(crate) fn send_unknown(&mut self) -> anyhow::Result<u64> {
        self.last_id += 1;
        self.sent += 1;
        let call = Call {
            id: self.last_id,
            operation: None,
        };
        self.calls.send(Calls {
            call: vec![call],
            protocol: 0,
        })?;
        Ok(self.last_id)
    }

    /// Reads one Replies message.
    pub(crate) async fn read(&mut self) -> anyhow::Result<()> {
        let message = timeout(PATIENCE, self.replies.message()).await;
        let message = message.context("the store said nothing")??;
        let message = message.context("the store ended the stream")?;
        if message.received < self.received || message.received > self.sent {
            bail!(
                "received: expected {} to {}, came {}",
                self.received,
                self.sent,
                message.received
            );
        }
        self.received = message.received;
        for Reply { id, outcome } in message.reply {
            let outcome = outcome.context("a reply has an outcome")?;
            if self.waiting.insert(id, outcome).is_some() || id == 0 || id > self.last_id {
                bail!("call {id} was answered twice, or never asked");
            }
        }
        Ok(())
    }

    /// The answer to a call.
    pub(crate) async fn answer(&mut self, id: u64) -> anyhow::Result<reply::Outcome> {
        loop {
            if let Some(outcome) = self.waiting.remove(&id) {
                return Ok(outcome);
            }
            self.read().await?;
        }
    }

    /// Reads until the stream ends; answers with what error, if any did come.
    pub(crate) async fn read_to_end(&mut self) -> Option<Status> {
        loop {
            match timeout(PATIENCE, self.replies.message()).await {
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) | Err(_) => return None,
                Ok(Err(status)) => return Some(status),
            }
        }
    }

    /// What has been answered so far, by id.
    pub(crate) fn answered(&self) -> &BTreeMap<u64, reply::Outcome> {
        &self.waiting
    }

    /// One call and its answer.
    pub(crate) async fn ask(&mut self, operation: Operation) -> anyhow::Result<reply::Outcome> {
        let ids = self.send(vec![operation])?;
        let id = ids.first().copied().context("one call has one id")?;
        self.answer(id).await
    }

    pub(crate) async fn admit(&mut self, hits: Vec<Hit>) -> anyhow::Result<Admitted> {
        match self.ask(Operation::Admit(Admit { hit: hits })).await? {
            reply::Outcome::Admitted(admitted) => Ok(admitted),
            other => bail!("expected an admission, came {other:?}"),
        }
    }

    pub(crate) async fn claim(&mut self, claim: Claim) -> anyhow::Result<claimed::Outcome> {
        match self.ask(Operation::Claim(claim)).await? {
            reply::Outcome::Claimed(Claimed {
                outcome: Some(outcome),
            }) => Ok(outcome),
            other => bail!("expected an answer to a claim, came {other:?}"),
        }
    }

    /// Whether the completion was fenced.
    pub(crate) async fn complete(&mut self, complete: Complete) -> anyhow::Result<bool> {
        match self.ask(Operation::Complete(complete)).await? {
            reply::Outcome::Completed(completed) => Ok(completed.fenced),
            other => bail!("expected an answer to a completion, came {other:?}"),
        }
    }

    /// Whether a record was released.
    pub(crate) async fn abandon(&mut self, key: u8, claim: u8) -> anyhow::Result<bool> {
        let abandon = Abandon {
            key: digest(key),
            claim_id: claim_id(claim),
            lease_ms: 60_000,
        };
        match self.ask(Operation::Abandon(abandon)).await? {
            reply::Outcome::Abandoned(abandoned) => Ok(abandoned.released),
            other => bail!("expected an answer to an abandon, came {other:?}"),
        }
    }

    /// One call by Invoke.
    pub(crate) async fn invoke(
        &mut self,
        operation: Operation,
        protocol: Option<&str>,
    ) -> Result<Option<reply::Outcome>, Status> {
        let mut request = Request::new(Call {
            id: 7,
            operation: Some(operation),
        });
        if let Some(protocol) = protocol {
            let protocol = protocol.parse().map_err(|_| Status::internal("a number"))?;
            request.metadata_mut().insert("porch-protocol", protocol);
        }
        let reply = self.service.invoke(request).await?.into_inner();
        assert_eq!(reply.id, 7, "a reply has its call's id");
        Ok(reply.outcome)
    }
}

pub(crate) fn digest(n: u8) -> Bytes {
    Bytes::from(vec![n; 32])
}

pub(crate) fn claim_id(n: u8) -> Bytes {
    Bytes::from(vec![n; 16])
}

/// A hit of cost 1 on a bucket with a window of a minute.
pub(crate) fn hit(bucket: u8, quota: u32, reserve: u32) -> Hit {
    Hit {
        bucket: digest(bucket),
        quota,
        window_s: 60,
        cost: 1,
        reserve,
        shadow: false,
        refundable: false,
    }
}

pub(crate) fn claim(key: u8, claim: u8) -> Claim {
    Claim {
        key: digest(key),
        claim_id: claim_id(claim),
        fingerprint: Bytes::from(vec![1; 33]),
        lease_ms: 60_000,
        ttl_ms: 60_000,
        remember_ms: 120_000,
        wait_ms: 0,
        execute_unknown: false,
    }
}

pub(crate) fn response(body: Vec<u8>) -> Response {
    let field = |name: &'static str, value: &'static str| Field {
        name: Bytes::from_static(name.as_bytes()),
        value: Bytes::from_static(value.as_bytes()),
    };
    Response {
        status: 201,
        field: vec![
            field("x-item", "a"),
            field("location", "/orders/1"),
            field("x-item", "b"),
        ],
        body: Bytes::from(body),
    }
}

pub(crate) fn completion(key: u8, claim: u8, outcome: complete::Outcome) -> Complete {
    Complete {
        key: digest(key),
        claim_id: claim_id(claim),
        outcome: Some(outcome),
    }
}
