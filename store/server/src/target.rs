//! Who answers an operator's command: a store that runs, or its data directory?

use std::{
    fmt, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, anyhow, bail};
use porch_engine::{ApplyError, Limits, OpenError, Options, Store};
use porch_wire::{
    BackupReply, BackupRequest, CheckReply, CheckRequest, ForgetReply, ForgetRequest, InspectReply,
    InspectRequest, MESSAGE_BYTES_MAX, ResetReply, ResetRequest, SettleReply, SettleRequest,
    StatsReply, StatsRequest, admin_client::AdminClient, admin_server::Admin as _,
};
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    admin::{DataFile, Service},
    cli::{StoreArgs, UnixAddress},
    desk::Desk,
    metrics::Metrics,
    writer::{self, Written},
};

/// Who answers.
#[derive(Debug)]
pub(crate) enum Target {
    /// A store that runs, on its admin socket.
    Running(Running),
    /// A data directory that no store has open.
    Stopped(Box<Stopped>),
}

#[derive(Debug)]
pub(crate) struct Running {
    socket: PathBuf,
    client: AdminClient<Channel>,
}

/// A store without sockets, in this process.
#[derive(Debug)]
pub(crate) struct Stopped {
    data: PathBuf,
    service: Service,
    writer: JoinHandle<Result<Written, ApplyError>>,
}

/// Messages that come one after the other.
pub(crate) type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>>>>;

impl Target {
    /// Finds out who answers, and says so on stderr.
    pub(crate) async fn find(args: &StoreArgs) -> anyhow::Result<Self> {
        let target = match (&args.admin, &args.data) {
            (Some(admin), _) => Self::Running(Running::connect(admin).await.map_err(|error| {
                // The layers above the cause only say that something failed.
                let (path, error) = (admin.0.display(), error.root_cause());
                anyhow!(
                    "{path}: no store answers there ({error}); is it running, and is this its admin socket?"
                )
            })?),
            (None, Some(data)) => Self::of_directory(data).await?,
            (None, None) => bail!("expected --admin or --data, came neither"),
        };
        crate::say(&target.to_string());
        Ok(target)
    }

    async fn of_directory(data: &Path) -> anyhow::Result<Self> {
        let socket = UnixAddress::admin_in(data);
        let silent = match Running::connect(&socket).await {
            Ok(running) => return Ok(Self::Running(running)),
            Err(silent) => silent,
        };
        let shown = data.display();
        let file = data.join("data.mdb");
        match file.try_exists() {
            Ok(true) => {}
            Ok(false) => bail!(
                "{}: expected a store's data file, found none; is {shown} a store's data directory?",
                file.display()
            ),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{}: cannot look at it", file.display()));
            }
        }
        match Stopped::open(data) {
            Ok(stopped) => Ok(Self::Stopped(Box::new(stopped))),
            Err(error) if matches!(error.downcast_ref(), Some(OpenError::Locked { .. })) => bail!(
                "{shown}: a store has it open, and does not answer at {} ({}); name its admin socket by --admin",
                socket.0.display(),
                silent.root_cause()
            ),
            Err(error) => Err(error),
        }
    }

    /// For JSON.
    pub(crate) const fn answered_by(&self) -> &'static str {
        match self {
            Self::Running(_) => "running-store",
            Self::Stopped(_) => "data-directory",
        }
    }

    pub(crate) async fn inspect(&mut self, ask: InspectRequest) -> anyhow::Result<InspectReply> {
        let reply = match self {
            Self::Running(running) => running.client.inspect(ask).await,
            Self::Stopped(stopped) => stopped.service.inspect(Request::new(ask)).await,
        };
        self.told(reply)
    }

    pub(crate) async fn stats(&mut self) -> anyhow::Result<StatsReply> {
        let ask = StatsRequest {};
        let reply = match self {
            Self::Running(running) => running.client.stats(ask).await,
            Self::Stopped(stopped) => stopped.service.stats(Request::new(ask)).await,
        };
        self.told(reply)
    }

    pub(crate) async fn forget(&mut self, ask: ForgetRequest) -> anyhow::Result<ForgetReply> {
        let reply = match self {
            Self::Running(running) => running.client.forget(ask).await,
            Self::Stopped(stopped) => stopped.service.forget(Request::new(ask)).await,
        };
        self.told(reply)
    }

    pub(crate) async fn settle(&mut self, ask: SettleRequest) -> anyhow::Result<SettleReply> {
        let reply = match self {
            Self::Running(running) => running.client.settle(ask).await,
            Self::Stopped(stopped) => stopped.service.settle(Request::new(ask)).await,
        };
        self.told(reply)
    }

    pub(crate) async fn reset(&mut self, ask: ResetRequest) -> anyhow::Result<ResetReply> {
        let reply = match self {
            Self::Running(running) => running.client.reset(ask).await,
            Self::Stopped(stopped) => stopped.service.reset(Request::new(ask)).await,
        };
        self.told(reply)
    }

    pub(crate) async fn backup(
        &mut self,
        ask: BackupRequest,
    ) -> anyhow::Result<Messages<BackupReply>> {
        match self {
            Self::Running(running) => {
                let reply = running.client.backup(ask).await;
                Ok(Box::pin(self.told(reply)?))
            }
            Self::Stopped(stopped) => {
                let reply = stopped.service.backup(Request::new(ask)).await;
                Ok(Box::pin(self.told(reply)?))
            }
        }
    }

    pub(crate) async fn check(
        &mut self,
        ask: CheckRequest,
    ) -> anyhow::Result<Messages<CheckReply>> {
        match self {
            Self::Running(running) => {
                let reply = running.client.check(ask).await;
                Ok(Box::pin(self.told(reply)?))
            }
            Self::Stopped(stopped) => {
                let reply = stopped.service.check(Request::new(ask)).await;
                Ok(Box::pin(self.told(reply)?))
            }
        }
    }

    /// An error with the place that it came from.
    pub(crate) fn failed(&self, status: &Status) -> anyhow::Error {
        let place = match self {
            Self::Running(running) => running.socket.display(),
            Self::Stopped(stopped) => stopped.data.display(),
        };
        anyhow!("{place}: {}: {}", status.code(), status.message())
    }

    fn told<T>(&self, reply: Result<Response<T>, Status>) -> anyhow::Result<T> {
        reply
            .map(Response::into_inner)
            .map_err(|status| self.failed(&status))
    }

    /// Closes what was opened; what was changed is durable then.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Running(_) => Ok(()),
            Self::Stopped(stopped) => stopped.close(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(running) => {
                write!(
                    f,
                    "asking the running store at {}",
                    running.socket.display()
                )
            }
            Self::Stopped(stopped) => {
                write!(
                    f,
                    "no store runs: opened {} directly",
                    stopped.data.display()
                )
            }
        }
    }
}

impl Running {
    async fn connect(address: &UnixAddress) -> anyhow::Result<Self> {
        let path = address.0.display();
        let endpoint = Endpoint::from_shared(format!("unix:{path}"))
            .with_context(|| format!("{path}: not a socket's path"))?;
        let client = AdminClient::new(endpoint.connect().await?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self {
            socket: address.0.clone(),
            client,
        })
    }
}

impl Stopped {
    fn open(data: &Path) -> anyhow::Result<Self> {
        let options = Options::default();
        let (store, _) = Store::open(data, options)?;
        let metrics = Metrics::new().context("cannot count")?;
        let desk = Arc::new(Desk::new(Limits::default(), store.clock(), metrics));
        let service = Service {
            desk: Arc::clone(&desk),
            reader: store.reader(),
            file: DataFile::of(&store, options),
            read_limit: None,
        };
        let writer = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || {
                let written = writer::run(&desk, store);
                // Who still waits, waits in vain.
                desk.end();
                written
            })
            .context("cannot start the writer's thread")?;
        Ok(Self {
            data: data.to_owned(),
            service,
            writer,
        })
    }

    fn close(self) -> anyhow::Result<()> {
        let shown = self.data.display();
        self.service.desk.close();
        match self.writer.join() {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error).with_context(|| format!("{shown}: cannot close it")),
            Err(_) => Err(io::Error::other("the writer's thread ended badly"))
                .with_context(|| format!("{shown}: cannot close it")),
        }
    }
}
