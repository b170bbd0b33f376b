//! What becomes of messages that were right, and then had some bytes changed?

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use porch_wire::call::Operation;
use porch_wire::{Call, Calls, Code, PROTOCOL, Replies, reply};
use prost::Message as _;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::Scene;
use super::raw::{CHANNEL, Came, Connection, Stream, frame};
use crate::torture::ledger::{Deed, Ledger, Spec};
use crate::torture::{draw, tell};

/// Far from the numbers that others use.
const FIRST: u64 = 50_000_000;

/// A right message: some calls of each kind.
fn right(ledger: &Ledger, source: &mut StdRng) -> Calls {
    let calls = source.random_range(1..6);
    let call = (1..=calls).map(|id| {
        let (key, claim) = (
            FIRST + source.random_range(0..20_u64),
            FIRST + source.random_range(0..40_u64),
        );
        let deed = match source.random_range(0..6) {
            0 => Deed::Admit(vec![(0, 1), (1, source.random_range(0..5))]),
            1 => Deed::Charge { bucket: 0, hits: 3 },
            2 => Deed::Refund {
                bucket: 1,
                cost: 1,
                window_start_ms: source.random(),
            },
            3 => Deed::Claim { key, claim },
            4 => Deed::Complete { key, claim },
            _ => Deed::Abandon { key, claim },
        };
        // Now and then an operation of a later protocol, which arrives as none.
        let known = source.random_ratio(11, 12);
        Call {
            id,
            operation: known.then(|| ledger.operation(&deed)),
        }
    });
    Calls {
        call: call.collect(),
        protocol: 0,
    }
}

fn ledger() -> Ledger {
    Ledger::new([Spec::long(FIRST, 1_000, 5), Spec::short(FIRST + 1, 9, 1, 1)])
}

/// Changes, adds, removes or doubles some bytes.
fn spoil(message: &mut Vec<u8>, source: &mut StdRng) {
    for _ in 0..source.random_range(1..3) {
        let at = source.random_range(0..=message.len().saturating_sub(1));
        match source.random_range(0..6) {
            0 if !message.is_empty() => message[at] ^= 1 << source.random_range(0..8),
            1 if !message.is_empty() => message[at] = source.random(),
            2 => message.insert(at.min(message.len()), source.random()),
            3 if !message.is_empty() => {
                message.remove(at);
            }
            4 => message.truncate(at),
            _ => {
                let end = (at + source.random_range(1..40)).min(message.len());
                let again = message[at.min(end)..end].to_vec();
                message.splice(at..at, again);
            }
        }
    }
}

/// The decoder itself: whatever comes, it ends, and what it reads it writes the same again.
pub(super) fn decoder(seed: u64, buffers: u64) -> anyhow::Result<()> {
    let (ledger, mut source) = (ledger(), draw::source(seed, 70));
    let mut read = 0;
    let mut bytes = Vec::new();
    for n in 0..buffers {
        if n % 8 == 0 {
            bytes = right(&ledger, &mut source).encode_to_vec();
        }
        spoil(&mut bytes, &mut source);
        if let Ok(calls) = Calls::decode(&bytes[..]) {
            read += 1;
            let again = Calls::decode(&calls.encode_to_vec()[..]);
            ensure!(
                again.as_ref() == Ok(&calls),
                "buffer {n}: read and written again: expected {calls:?}, came {again:?}"
            );
        }
    }
    ensure!(
        read > buffers / 50 && read < buffers,
        "expected some buffers to be messages and some not, {read} of {buffers} were"
    );
    tell(&format!(
        "{buffers} spoiled buffers, {read} of them still messages"
    ));
    Ok(())
}

/// A live store: each call of a spoiled message is answered, or its stream is closed with a status.
pub(super) async fn channel(scene: &mut Scene, seed: u64, messages: u64) -> anyhow::Result<()> {
    let (ledger, mut source) = (ledger(), draw::source(seed, 71));
    let connection = Connection::open(&scene.site.socket()).await?;
    let mut open: Option<Stream> = None;
    let (mut closed, mut invalid, mut unknown) = (0_u64, 0_u64, 0_u64);
    for n in 0..messages {
        let mut stream = match open.take() {
            Some(stream) => stream,
            None => begin(&connection).await?,
        };
        let mut bytes = right(&ledger, &mut source).encode_to_vec();
        spoil(&mut bytes, &mut source);
        let calls = Calls::decode(&bytes[..]).ok();
        stream.send(frame(&bytes), false);
        let told = || format!("message {n}, seed {seed}: {bytes:02x?}");
        let Some(calls) = calls else {
            let status = stream.end().await.with_context(told)?;
            ensure!(status.code != 0, "{}: no message, and {status:?}", told());
            closed += 1;
            continue;
        };
        if calls.call.iter().any(waits) {
            // Its answer may take as long as it asked for.
            continue;
        }
        let answers = answers(&mut stream, calls.call.len())
            .await
            .with_context(told)?;
        for error in answers {
            ensure!(
                !error.message.is_empty(),
                "{}: an error without a message: {error:?}",
                told()
            );
            match error.code() {
                Code::InvalidArgument => {
                    ensure!(!error.field.is_empty(), "{}: {error:?}", told());
                    invalid += 1;
                }
                Code::Unimplemented => unknown += 1,
                Code::Unavailable => {}
                other => bail!("{}: came {other:?}: {error:?}", told()),
            }
        }
        open = Some(stream);
        if n % 500 == 499 {
            scene.others_go_on(seed + n).await?;
        }
    }
    ensure!(
        closed > 0 && invalid > 0 && unknown > 0,
        "expected closed streams, invalid fields and unknown operations, came {closed}, {invalid}, {unknown}"
    );
    tell(&format!(
        "{messages} spoiled messages: {closed} closed their stream, {invalid} calls were invalid, {unknown} unknown"
    ));
    Ok(())
}

fn waits(call: &Call) -> bool {
    matches!(&call.operation, Some(Operation::Claim(claim)) if claim.wait_ms > 0)
}

async fn begin(connection: &Connection) -> anyhow::Result<Stream> {
    let mut stream = connection.stream(CHANNEL).await?;
    let hello = Calls {
        call: Vec::new(),
        protocol: PROTOCOL,
    };
    stream.send(frame(&hello.encode_to_vec()), false);
    Ok(stream)
}

/// Waits for so many replies; answers the errors among them.
async fn answers(stream: &mut Stream, calls: usize) -> anyhow::Result<Vec<porch_wire::Error>> {
    let (mut replies, mut errors) = (0, Vec::new());
    while replies < calls {
        let message: Bytes = match stream.next().await? {
            Came::Message(message) => message,
            Came::End(status) => bail!("expected {calls} answers, came {replies} and {status:?}"),
        };
        for reply in Replies::decode(message)?.reply {
            replies += 1;
            if let Some(reply::Outcome::Error(error)) = reply.outcome {
                errors.push(error);
            }
        }
    }
    ensure!(replies == calls, "expected {calls} answers, came {replies}");
    Ok(errors)
}
