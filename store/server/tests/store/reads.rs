//! What becomes of a backup whose operator stalls, or leaves? It ends, and the file stops growing for it.

use std::time::Duration;

use porch_wire::{
    BackupReply, BackupRequest, CheckRequest, MESSAGE_BYTES_MAX, admin_client::AdminClient,
    complete,
};
use tonic::{
    Code, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    client::{claim, completion, response},
    process::{Place, Process},
};

/// A store whose backup does not fit into what is buffered on the way, and its operator.
async fn filled(place: &Place) -> anyhow::Result<(Process, AdminClient<Channel>)> {
    let store = place.start()?;
    let mut client = place.connect().await?;
    for key in 0..200 {
        client.claim(claim(key, 1)).await?;
        let kept = complete::Outcome::Response(response(vec![key; 60_000]));
        client.complete(completion(key, 1, kept)).await?;
    }
    let socket = place.data().join("admin.sock");
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
    let operator = AdminClient::new(endpoint.connect().await?);
    Ok((store, operator.max_decoding_message_size(MESSAGE_BYTES_MAX)))
}

/// A backup that has begun.
async fn begun(
    operator: &mut AdminClient<Channel>,
    time_limit_ms: u64,
) -> anyhow::Result<Streaming<BackupReply>> {
    let backup = operator.backup(BackupRequest { time_limit_ms });
    let mut pieces = backup.await?.into_inner();
    assert!(pieces.message().await?.is_some());
    Ok(pieces)
}

/// How a check ends: with `None` when it looked at everything.
async fn checked(operator: &mut AdminClient<Channel>) -> anyhow::Result<Option<Code>> {
    let check = operator.check(CheckRequest { time_limit_ms: 0 });
    let mut events = check.await?.into_inner();
    loop {
        match events.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(status) => return Ok(Some(status.code())),
        }
    }
}

/// Waits until nobody reads the file any more.
async fn free(operator: &mut AdminClient<Channel>) -> anyhow::Result<()> {
    for _ in 0..600 {
        match checked(operator).await? {
            None => return Ok(()),
            Some(Code::ResourceExhausted) => tokio::time::sleep(Duration::from_millis(50)).await,
            Some(code) => anyhow::bail!("expected a check, came {code}"),
        }
    }
    anyhow::bail!("somebody reads the file all the time")
}

#[tokio::test]
async fn an_operator_who_stalls_is_cut_off_at_the_time_limit() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (_store, mut operator) = filled(&place).await?;
    let mut pieces = begun(&mut operator, 3_000).await?;
    assert_eq!(checked(&mut operator).await?, Some(Code::ResourceExhausted));
    free(&mut operator).await?;
    let ended = loop {
        match pieces.message().await {
            Ok(Some(_)) => {}
            Ok(None) => anyhow::bail!("it was not whole, and ended as if it were"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::DeadlineExceeded, "{ended}");
    Ok(())
}

#[tokio::test]
async fn an_operator_who_leaves_ends_the_read() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (_store, mut operator) = filled(&place).await?;
    let pieces = begun(&mut operator, 0).await?;
    assert_eq!(checked(&mut operator).await?, Some(Code::ResourceExhausted));
    drop(pieces);
    free(&mut operator).await
}

#[tokio::test]
async fn a_store_that_stops_does_not_wait_for_a_read() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (store, mut operator) = filled(&place).await?;
    let mut pieces = begun(&mut operator, 0).await?;
    store.terminate()?;
    let ended = loop {
        match pieces.message().await {
            Ok(Some(_)) => {}
            Ok(None) => anyhow::bail!("it was not whole, and ended as if it were"),
            Err(status) => break status,
        }
    };
    drop(ended);
    place.start()?.terminate()
}
