//! How many calls a second does a running store answer? `cargo run --release -p porch-store --example load -- --help`
//!
//! One stream, calls batched as the filter does it: while fewer than two messages are unacknowledged a call goes at
//! once, else it waits and goes along with the others.

use std::{
    io::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::{Parser, ValueEnum};
use hashbrown::HashMap;
use porch_wire::{
    Admit, Call, Calls, Claim, Complete, Hit, MESSAGE_BYTES_MAX, PROTOCOL, Replies, Reply,
    Response, call::Operation, claimed, complete, reply, shared_data_client::SharedDataClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Streaming, transport::Endpoint};

const UNACKNOWLEDGED_MAX: u64 = 2;

/// Loads a running store, and tells how many calls it answered.
#[derive(Debug, Parser)]
struct Args {
    /// The store's listening socket.
    #[arg(long)]
    socket: PathBuf,
    /// What to ask for.
    #[arg(long, value_enum)]
    work: Work,
    /// Calls in flight.
    #[arg(long, default_value_t = 64)]
    in_flight: u64,
    /// How long, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Bytes of a stored body.
    #[arg(long, default_value_t = 1_024)]
    body: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    /// Admits over 10,000 buckets.
    Hot,
    /// Admits, each to a bucket that the store has never seen.
    New,
    /// Claims, each completed.
    Pairs,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut load = Load::connect(args).await?;
    let report = load.run().await?;
    writeln!(std::io::stdout(), "{report}").context("cannot write to stdout")
}

struct Load {
    args: Args,
    calls: mpsc::UnboundedSender<Calls>,
    replies: Streaming<Replies>,
    sent: u64,
    received: u64,
    queue: Vec<Call>,
    last_id: u64,
    since: HashMap<u64, Instant>,
    /// Claims to be completed, by the id of their claim's call.
    claims: HashMap<u64, Bytes>,
    latencies: Vec<Duration>,
    seed: u64,
}

impl Load {
    async fn connect(args: Args) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("unix:{}", args.socket.display()))?;
        let mut service = SharedDataClient::new(endpoint.connect().await?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let (calls, outgoing) = mpsc::unbounded_channel();
        calls.send(Calls {
            call: Vec::new(),
            protocol: PROTOCOL,
        })?;
        let outgoing = UnboundedReceiverStream::new(outgoing);
        let replies = service.channel(outgoing).await?.into_inner();
        let seed = u64::from(std::process::id()) << 40;
        Ok(Self {
            args,
            calls,
            replies,
            sent: 1,
            received: 0,
            queue: Vec::new(),
            last_id: 0,
            since: HashMap::new(),
            claims: HashMap::new(),
            latencies: Vec::new(),
            seed,
        })
    }

    async fn run(&mut self) -> anyhow::Result<String> {
        let begin = Instant::now();
        let end = Duration::from_secs(self.args.seconds);
        for _ in 0..self.args.in_flight {
            self.start();
        }
        self.flush()?;
        while begin.elapsed() < end {
            let message = self.replies.message().await?;
            let message = message.context("the store ended the stream")?;
            self.received = message.received;
            for reply in message.reply {
                self.answered(reply)?;
            }
            self.flush()?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.latencies.sort_unstable();
        let at = |share: usize| {
            let at = self.latencies.len() * share / 100;
            self.latencies.get(at).copied().unwrap_or_default()
        };
        let count = self.latencies.len();
        let rate = f64::from(u32::try_from(count)?) / seconds;
        Ok(format!(
            "{:?}, {} in flight: {rate:.0}/s, p50 {:?}, p99 {:?}",
            self.args.work,
            self.args.in_flight,
            at(50),
            at(99)
        ))
    }

    fn start(&mut self) {
        let operation = match self.args.work {
            Work::Hot => Self::admit(self.last_id % 10_000, 1_000_000, 64),
            Work::New => Self::admit(self.seed + self.last_id, 100, 10),
            Work::Pairs => self.claim(),
        };
        self.push(operation, Instant::now());
    }

    fn push(&mut self, operation: Operation, since: Instant) {
        self.last_id += 1;
        self.since.insert(self.last_id, since);
        self.queue.push(Call {
            id: self.last_id,
            operation: Some(operation),
        });
    }

    fn admit(bucket: u64, quota: u32, reserve: u32) -> Operation {
        let hit = Hit {
            bucket: digest(bucket),
            quota,
            window_s: 3_600,
            cost: 1,
            reserve,
            shadow: false,
            refundable: false,
        };
        Operation::Admit(Admit { hit: vec![hit] })
    }

    fn claim(&mut self) -> Operation {
        let key = digest(self.seed + self.last_id);
        self.claims.insert(self.last_id + 1, key.clone());
        Operation::Claim(Claim {
            claim_id: key.slice(..16),
            key,
            fingerprint: Bytes::from(vec![1; 33]),
            lease_ms: 60_000,
            ttl_ms: 60_000,
            remember_ms: 60_000,
            wait_ms: 0,
            execute_unknown: false,
        })
    }

    fn answered(&mut self, reply: Reply) -> anyhow::Result<()> {
        let since = self.since.remove(&reply.id);
        let since = since.context("an answer to a call that was not made")?;
        match reply.outcome {
            Some(reply::Outcome::Claimed(answer)) => {
                let key = self.claims.remove(&reply.id).context("a claim's key")?;
                if !matches!(answer.outcome, Some(claimed::Outcome::Granted(_))) {
                    bail!("expected a grant, came {answer:?}");
                }
                let body = Bytes::from(vec![7; self.args.body]);
                let response = Response {
                    status: 200,
                    field: Vec::new(),
                    body,
                };
                let complete = Complete {
                    claim_id: key.slice(..16),
                    key,
                    outcome: Some(complete::Outcome::Response(response)),
                };
                self.push(Operation::Complete(complete), since);
            }
            Some(reply::Outcome::Admitted(_) | reply::Outcome::Completed(_)) => {
                self.latencies.push(since.elapsed());
                self.start();
            }
            other => bail!("expected an answer, came {other:?}"),
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if self.sent - self.received < UNACKNOWLEDGED_MAX && !self.queue.is_empty() {
            let call = std::mem::take(&mut self.queue);
            self.sent += 1;
            self.calls.send(Calls { call, protocol: 0 })?;
        }
        Ok(())
    }
}

/// Spreads a number over 32 bytes, as a digest would.
fn digest(number: u64) -> Bytes {
    let mut bytes = Vec::with_capacity(32);
    let mut state = number;
    for _ in 0..4 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    Bytes::from(bytes)
}
