//! How does the store start, run and stop?

use std::{io::IsTerminal as _, panic, process, sync::Arc, thread, time::Duration};

use anyhow::{Context as _, anyhow};
use porch_engine::{ApplyError, Limits, Options, Start, Store};
use porch_wire::{
    MESSAGE_BYTES_MAX, admin_server::AdminServer, shared_data_server::SharedDataServer,
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::{oneshot, watch},
    time::timeout,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::{
    admin::{self, DataFile},
    cli::{ServeArgs, UnixAddress},
    desk::Desk,
    invoke,
    listen::{self, Socket},
    metrics::Metrics,
    writer::{self, Written},
};

/// A connection that is silent so long is asked whether it lives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// It has so long to say so.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much a caller may send ahead, on one stream and in all.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAMS_MAX: u32 = 1_024;
/// At the end, callers have so long to take their last answers.
const FAREWELL: Duration = Duration::from_secs(2);
const ADMIN_MODE: u32 = 0o600;

type WriterResult = Result<Written, ApplyError>;

/// Runs the store until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let options = Options {
        map_bytes: usize::try_from(u64::from(args.map_size) << 20)
            .context("--map-size: too large for this machine")?,
    };
    let (store, start) = Store::open(&args.data, options)?;
    let listen = listen::unix(&args.listen.0, args.listen_mode)?;
    let admin_address = args.admin.clone();
    let admin_address = admin_address.unwrap_or_else(|| UnixAddress::admin_in(&args.data));
    let admin = listen::unix(&admin_address.0, ADMIN_MODE)?;

    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(args.log)
        .init();
    abort_on_panic();
    log_start(start, &store);

    let limits = Limits {
        buckets_max: usize::try_from(args.memory_buckets)
            .context("--memory-buckets: too large for this machine")?,
    };
    let metrics = Metrics::new().context("cannot count")?;
    let desk = Arc::new(Desk::new(limits, store.clock(), metrics));
    let operators = admin::Service {
        desk: Arc::clone(&desk),
        reader: store.reader(),
        file: DataFile::of(&store, options),
        read_limit: Some(admin::READ_LIMIT),
    };
    let (written, writer_done) = oneshot::channel();
    let writer = {
        let desk = Arc::clone(&desk);
        thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || drop(written.send(writer::run(&desk, store))))
            .context("cannot start the writer's thread")?
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(serve(desk, operators, listen, admin, writer_done));
    runtime.shutdown_background();
    if result.is_ok() && writer.join().is_err() {
        return Err(anyhow!("the writer's thread ended badly"));
    }
    result
}

async fn serve(
    desk: Arc<Desk>,
    operators: admin::Service,
    listen: Socket,
    admin: Socket,
    mut writer_done: oneshot::Receiver<WriterResult>,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let (stop, stopped) = watch::channel(false);

    tracing::info!(
        listen = %listen.path.display(),
        admin = %admin.path.display(),
        protocol = porch_wire::PROTOCOL,
        "ready"
    );
    let (listen, listen_guard) = listen.into_tokio()?;
    let (admin, admin_guard) = admin.into_tokio()?;
    let shared_data = SharedDataServer::new(invoke::Service(Arc::clone(&desk)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let filters = builder()
        .add_service(shared_data)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listen), told(stopped.clone()));
    let operators = builder()
        .add_service(AdminServer::new(operators).max_encoding_message_size(MESSAGE_BYTES_MAX))
        .serve_with_incoming_shutdown(UnixListenerStream::new(admin), told(stopped));
    let keeper = Arc::clone(&desk);
    tokio::spawn(async move { keeper.keep_parked().await });
    let mut filters = tokio::spawn(filters);
    let mut operators = tokio::spawn(operators);

    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        ended = &mut writer_done => return Err(writer_failed(ended)),
        ended = &mut filters => return Err(anyhow!("the listener ended: {ended:?}")),
        ended = &mut operators => return Err(anyhow!("the admin listener ended: {ended:?}")),
    }

    desk.close();
    let written = match writer_done.await {
        Ok(Ok(written)) => written,
        ended => return Err(writer_failed(ended)),
    };
    desk.end();
    drop((listen_guard, admin_guard));
    if stop.send(true).is_ok() {
        let farewell = async { (filters.await, operators.await) };
        if timeout(FAREWELL, farewell).await.is_err() {
            tracing::warn!("some callers did not take their last answers");
        }
    }
    tracing::info!(
        exact_rows = written.exact_rows,
        "stopped: every count is in the file"
    );
    Ok(())
}

fn builder() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
}

async fn told(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, and so is the reason to go on.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

fn writer_failed(ended: Result<WriterResult, oneshot::error::RecvError>) -> anyhow::Error {
    match ended {
        Ok(Err(ApplyError::Full(error))) => anyhow!(
            "no room for the exact counts: {error}; the last rows in the file hold, as after a crash"
        ),
        Ok(Err(fatal @ ApplyError::Fatal(_))) => anyhow!(
            "{fatal}; ending, since what it was told last may not be there. Look at the disk, then start again"
        ),
        Ok(Ok(_)) | Err(_) => anyhow!("the writer ended by itself"),
    }
}

fn log_start(start: Start, store: &Store) {
    let data = store.path().display();
    let now_ms = store.clock().now_ms();
    match start {
        Start::First => tracing::info!(%data, now_ms, "a new data directory"),
        Start::SameBoot => tracing::info!(%data, now_ms, "opened; the clock went on meanwhile"),
        Start::Reboot => {
            tracing::info!(%data, now_ms, "opened after a reboot; the clock follows the wall clock");
        }
        Start::RebootBehind => tracing::warn!(
            %data,
            now_ms,
            "opened after a reboot with a wall clock that lies behind the saved time; going on from the saved time"
        ),
    }
}

/// A panic means that the program is wrong; what it would do next is not to be trusted with the data.
fn abort_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
}
