//! How does the store start, run and stop?

use std::{
    future::IntoFuture as _,
    panic,
    process::{self, ExitCode},
    sync::Arc,
    thread,
    time::Duration,
};

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
use tonic::transport::{Server, server::TcpIncoming};
use tonic_health::{ServingStatus, server::health_reporter};
use tracing::level_filters::LevelFilter;

use crate::{
    admin::{self, DataFile},
    cli::{ListenAddress, ServeArgs, UnixAddress},
    command::walk,
    desk::Desk,
    invoke,
    listen::{self, Listener, Permissions, Port, Socket},
    log,
    metrics::Metrics,
    tls::Security,
    watch::Watched,
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
/// The service's name in gRPC.
const SHARED_DATA: &str = porch_wire::shared_data_server::SERVICE_NAME;
const ADMIN: Permissions<'_> = Permissions {
    mode: 0o600,
    group: None,
};

type WriterResult = Result<Written, ApplyError>;

/// Runs the store until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    log::start(args.log, args.log_format);
    match start(args) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Who reads JSON reads the end of it too.
        Err(error) if args.log_format == log::Format::Json && args.log != LevelFilter::OFF => {
            tracing::error!(error = format!("{error:#}"), "ended");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

fn start(args: &ServeArgs) -> anyhow::Result<()> {
    let security = Security::of(&args.listen, &args.tls)?;
    let options = Options {
        counter_bytes_max: args.max_counter_bytes,
        record_bytes_max: args.max_record_bytes,
        walker: Some(walk::walker),
    };
    let (store, start) = Store::open(&args.data, options)?;
    let listen = match &args.listen {
        ListenAddress::Tcp(address) => Listener::Tcp(listen::tcp(address)?),
        ListenAddress::Unix(path) => {
            let permissions = Permissions {
                mode: args.listen_mode,
                group: args.listen_group.as_deref(),
            };
            Listener::Unix(listen::unix(path, permissions)?)
        }
    };
    let admin_address = args.admin.clone();
    let admin_address = admin_address.unwrap_or_else(|| UnixAddress::admin_in(&args.data));
    let admin = listen::unix(&admin_address.0, ADMIN)?;
    let metrics = args.metrics.as_deref().map(listen::tcp).transpose()?;
    abort_on_panic();
    log_start(start, &store);

    let limits = Limits {
        buckets_max: usize::try_from(args.memory_buckets)
            .context("--memory-buckets: too large for this machine")?,
    };
    let counts = Metrics::new().context("cannot count")?;
    let desk = Arc::new(Desk::new(limits, store.clock(), counts));
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
    let open = Open {
        desk,
        operators,
        listen,
        security,
        admin,
        metrics,
    };
    let result = runtime.block_on(serve(open, writer_done));
    runtime.shutdown_background();
    if result.is_ok() && writer.join().is_err() {
        return Err(anyhow!("the writer's thread ended badly"));
    }
    result
}

/// All that is open before the first call.
struct Open {
    desk: Arc<Desk>,
    operators: admin::Service,
    listen: Listener,
    security: Security,
    admin: Socket,
    metrics: Option<Port>,
}

async fn serve(open: Open, mut writer_done: oneshot::Receiver<WriterResult>) -> anyhow::Result<()> {
    let Open {
        desk,
        operators,
        listen,
        security,
        admin,
        metrics,
    } = open;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let (stop, stopped) = watch::channel(false);

    let line = Ready::of(&listen, &security, &admin, metrics.as_ref());
    let watched = Watched {
        desk: Arc::clone(&desk),
        file: operators.file.clone(),
    };
    let (health, health_server) = health_reporter();
    health
        .set_serving::<SharedDataServer<invoke::Service>>()
        .await;
    let shared_data = SharedDataServer::new(invoke::Service(Arc::clone(&desk)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let filters = security
        .apply(builder())?
        .add_service(shared_data)
        .add_service(health_server);
    let (mut filters, listen_guard) = match listen {
        Listener::Unix(socket) => {
            let (listener, guard) = socket.into_tokio()?;
            let incoming = UnixListenerStream::new(listener);
            let filters = filters.serve_with_incoming_shutdown(incoming, told(stopped.clone()));
            (tokio::spawn(filters), Some(guard))
        }
        Listener::Tcp(port) => {
            let incoming = TcpIncoming::from(port.into_tokio()?).with_nodelay(Some(true));
            let filters = filters.serve_with_incoming_shutdown(incoming, told(stopped.clone()));
            (tokio::spawn(filters), None)
        }
    };
    let (admin, admin_guard) = admin.into_tokio()?;
    let operators = AdminServer::new(operators).max_encoding_message_size(MESSAGE_BYTES_MAX);
    let operators = builder()
        .add_service(operators)
        .serve_with_incoming_shutdown(UnixListenerStream::new(admin), told(stopped.clone()));
    let mut operators = tokio::spawn(operators);
    if let Some(port) = metrics {
        let watchers = axum::serve(port.into_tokio()?, crate::watch::router(watched))
            .with_graceful_shutdown(told(stopped));
        tokio::spawn(watchers.into_future());
    }
    let keeper = Arc::clone(&desk);
    tokio::spawn(async move { keeper.keep_parked().await });
    line.log();

    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        ended = &mut writer_done => return Err(writer_failed(ended)),
        ended = &mut filters => return Err(anyhow!("the listener ended: {ended:?}")),
        ended = &mut operators => return Err(anyhow!("the admin listener ended: {ended:?}")),
    }

    for service in ["", SHARED_DATA] {
        health
            .set_service_status(service, ServingStatus::NotServing)
            .await;
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

/// What the log says when calls are taken.
struct Ready {
    listen: String,
    security: &'static str,
    admin: String,
    metrics: String,
    insecure: bool,
}

impl Ready {
    fn of(listen: &Listener, security: &Security, admin: &Socket, metrics: Option<&Port>) -> Self {
        Self {
            listen: listen.to_string(),
            security: security.name(),
            admin: admin.path.display().to_string(),
            metrics: metrics.map_or_else(|| "off".to_owned(), |port| port.address.to_string()),
            insecure: matches!(security, Security::Insecure),
        }
    }

    fn log(&self) {
        let Self {
            listen,
            security,
            admin,
            metrics,
            insecure,
        } = self;
        if *insecure {
            tracing::warn!(
                %listen,
                "--insecure: whoever reaches this port may count, claim, and read stored answers"
            );
        }
        tracing::info!(
            %listen,
            %security,
            %admin,
            %metrics,
            protocol = porch_wire::PROTOCOL,
            "ready"
        );
    }
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
        Ok(Err(fatal @ ApplyError::Fatal { .. })) => anyhow!("{fatal}"),
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
