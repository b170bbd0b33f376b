//! What becomes of bytes that are no message?

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use porch_wire::{Calls, MESSAGE_BYTES_MAX, PROTOCOL};
use prost::Message as _;
use rand::RngExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Scene;
use super::raw::{CHANNEL, Came, Connection, INVOKE, frame, framed_as};
use crate::harness::PATIENCE;
use crate::torture::{draw, tell};

/// What memory may grow by while oversized messages are refused, in KiB: less than one of them.
const GROWTH_KIB_MAX: u64 = 2_048;

fn hello() -> Bytes {
    let hello = Calls {
        call: Vec::new(),
        protocol: PROTOCOL,
    };
    frame(&hello.encode_to_vec())
}

/// A message that says it is too large is refused by its first five bytes.
pub(super) async fn oversized(scene: &Scene) -> anyhow::Result<()> {
    let limit = u32::try_from(MESSAGE_BYTES_MAX)?;
    let before = scene.running.memory_kib("RssAnon")?;
    let connection = Connection::open(&scene.site.socket()).await?;
    for _ in 0..8 {
        for (path, length) in [
            (CHANNEL, limit + 1),
            (INVOKE, limit + 1),
            (CHANNEL, u32::MAX),
            (INVOKE, 1 << 30),
        ] {
            let mut stream = connection.stream(path).await?;
            if path == CHANNEL {
                stream.send(hello(), false);
            }
            stream.send(framed_as(0, length, &[0; 1_024]), false);
            let told = stream.end().await;
            let told = told.with_context(|| format!("{path}, {length} bytes announced"))?;
            ensure!(
                told.code != 0 && told.message.contains(&MESSAGE_BYTES_MAX.to_string()),
                "{path}, {length} bytes announced: expected a refusal that names the limit, came {told:?}"
            );
        }
    }
    let grown = scene.running.memory_kib("RssAnon")?.saturating_sub(before);
    ensure!(
        grown < GROWTH_KIB_MAX,
        "expected less than {GROWTH_KIB_MAX} KiB for what is refused, came {grown}"
    );
    largest(&connection).await?;
    tell(&format!(
        "32 oversized messages were refused by their length; {grown} KiB of memory more"
    ));
    Ok(())
}

/// Exactly the largest message is read.
async fn largest(connection: &Connection) -> anyhow::Result<()> {
    let mut stream = connection.stream(CHANNEL).await?;
    stream.send(hello(), false);
    // Field 15, of bytes, which the store does not know and passes over.
    let mut message = vec![0x7a];
    let rest = MESSAGE_BYTES_MAX - 5;
    prost::encoding::encode_varint(u64::try_from(rest)?, &mut message);
    message.resize(MESSAGE_BYTES_MAX, 0);
    stream.send(frame(&message), false);
    loop {
        let came = stream.next().await?;
        let Came::Message(replies) = came else {
            anyhow::bail!("the largest message: expected an acknowledgement, came {came:?}");
        };
        if porch_wire::Replies::decode(replies)?.received == 2 {
            return Ok(());
        }
    }
}

/// Streams whose frames are wrong are closed with a status.
pub(super) async fn wrong_frames(scene: &Scene, seed: u64) -> anyhow::Result<()> {
    let mut source = draw::source(seed, 62);
    let mut noise = [0_u8; 300];
    source.fill(&mut noise[..]);
    let frames = [
        ("no protobuf", frame(&[0xff; 64])),
        ("noise", frame(&noise)),
        ("a group that never ends", frame(&[0x0b, 0x0b, 0x0b])),
        ("a length beyond the end", frame(&[0x0a, 0xff, 0x7f, 0x01])),
        (
            "compressed, though nobody agreed to it",
            framed_as(1, 3, b"abc"),
        ),
        ("a flag that gRPC does not have", framed_as(7, 3, b"abc")),
        ("less than announced", framed_as(0, 1_000, b"abc")),
        ("half a prefix", Bytes::from_static(&[0, 0])),
    ];
    let connection = Connection::open(&scene.site.socket()).await?;
    for path in [CHANNEL, INVOKE] {
        for (what, bytes) in &frames {
            let mut stream = connection.stream(path).await?;
            if path == CHANNEL {
                stream.send(hello(), false);
            }
            stream.send(bytes.clone(), true);
            let told = stream
                .end()
                .await
                .with_context(|| format!("{path}: {what}"))?;
            ensure!(
                told.code != 0,
                "{path}: {what}: expected a refusal, came {told:?}"
            );
        }
    }
    Ok(())
}

/// A connection that does not speak HTTP/2 is closed, or stays silent; nobody else notices.
pub(super) async fn no_http(scene: &Scene, seed: u64) -> anyhow::Result<()> {
    let mut source = draw::source(seed, 63);
    let mut closed = 0;
    for n in 0..20 {
        let mut socket = UnixStream::connect(scene.site.socket()).await?;
        let mut noise = vec![0_u8; 4_096];
        source.fill(&mut noise[..]);
        if n % 2 == 0 {
            // As it begins, and then not.
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
            noise[..preface.len()].copy_from_slice(preface);
        }
        // It may be closed while it is written.
        drop(socket.write_all(&noise).await);
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
        closed += u32::from(read.is_ok());
    }
    ensure!(
        closed == 20,
        "expected each connection of noise to be closed, {closed} of 20 were"
    );
    Ok(())
}
