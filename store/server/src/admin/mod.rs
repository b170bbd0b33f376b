//! How do operators reach the store? The `Admin` service.
//!
//! Beside a running store it answers on a socket of its own. On a stopped one, a command opens the data directory and
//! asks it within its own process; so both ways do the same.

mod answer;
mod ask;
mod read;

use std::{path::PathBuf, sync::Arc, time::Duration};

use porch_engine::{Caller, Front, Look, Options, Outcome, Reader, Store};
use porch_wire::{
    BackupReply, BackupRequest, CheckReply, CheckRequest, ForgetReply, ForgetRequest, InspectReply,
    InspectRequest, ResetReply, ResetRequest, SettleReply, SettleRequest, StatsReply, StatsRequest,
    admin_server::Admin,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::desk::{Answered, Desk};

/// A backup or a check beside a running store has so long, unless its operator says otherwise: meanwhile the file
/// grows by all that is written.
pub(crate) const READ_LIMIT: Duration = Duration::from_mins(5);

/// What operators are told of the data file.
#[derive(Debug, Clone)]
pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    pub(crate) limit_bytes: u64,
}

impl DataFile {
    pub(crate) fn of(store: &Store, options: Options) -> Self {
        Self {
            path: store.path().to_owned(),
            limit_bytes: options.map_bytes(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) desk: Arc<Desk>,
    pub(crate) reader: Reader,
    pub(crate) file: DataFile,
    /// How long a read of the whole file may take when nobody says.
    pub(crate) read_limit: Option<Duration>,
}

impl Service {
    async fn ask(
        &self,
        call: impl FnOnce(&mut Front, Caller) -> Option<Outcome>,
    ) -> Result<Outcome, Status> {
        let (Answered::AtOnce(outcome) | Answered::Later(outcome)) = self.desk.ask(call).await?;
        match outcome {
            Outcome::Refused(refusal) => Err(answer::refused(refusal)),
            Outcome::Admitted { .. }
            | Outcome::Charged
            | Outcome::Refunded { .. }
            | Outcome::Claimed(_)
            | Outcome::Completed { .. }
            | Outcome::Abandoned { .. }
            | Outcome::Inspected(_)
            | Outcome::Forgotten(_)
            | Outcome::Settled(_)
            | Outcome::Reset(_) => Ok(outcome),
        }
    }
}

#[tonic::async_trait]
impl Admin for Service {
    type BackupStream = ReceiverStream<Result<BackupReply, Status>>;
    type CheckStream = ReceiverStream<Result<CheckReply, Status>>;

    async fn inspect(
        &self,
        request: Request<InspectRequest>,
    ) -> Result<Response<InspectReply>, Status> {
        let look = ask::look(request.get_ref())?;
        let outcome = self.ask(|front, caller| front.inspect(caller, look));
        let reply = answer::inspected(outcome.await?, self.desk.now_ms())?;
        Ok(Response::new(reply))
    }

    async fn stats(&self, _: Request<StatsRequest>) -> Result<Response<StatsReply>, Status> {
        let look = Look::default();
        let outcome = self.ask(|front, caller| front.inspect(caller, look));
        let reply = answer::stats(outcome.await?, &self.desk, &self.file)?;
        Ok(Response::new(reply))
    }

    async fn forget(
        &self,
        request: Request<ForgetRequest>,
    ) -> Result<Response<ForgetReply>, Status> {
        let key = ask::digest("record", &request.get_ref().record)?;
        let outcome = self.ask(|front, caller| front.forget(caller, key));
        Ok(Response::new(answer::forgotten(outcome.await?)?))
    }

    async fn settle(
        &self,
        request: Request<SettleRequest>,
    ) -> Result<Response<SettleReply>, Status> {
        let request = request.into_inner();
        let key = ask::digest("record", &request.record)?;
        let settlement = ask::settlement(request.outcome)?;
        let outcome = self.ask(|front, caller| front.settle(caller, key, settlement));
        Ok(Response::new(answer::settled(outcome.await?)?))
    }

    async fn reset(&self, request: Request<ResetRequest>) -> Result<Response<ResetReply>, Status> {
        let bucket = ask::digest("bucket", &request.get_ref().bucket)?;
        let now_ms = self.desk.now_ms();
        let outcome = self.ask(|front, caller| front.reset(now_ms, caller, bucket));
        Ok(Response::new(answer::reset(outcome.await?)?))
    }

    async fn backup(
        &self,
        request: Request<BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let limit = ask::read_limit(request.get_ref().time_limit_ms, self.read_limit);
        tracing::info!(?limit, "a backup begins");
        Ok(Response::new(read::backup(self.reader.clone(), limit)))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<Self::CheckStream>, Status> {
        let limit = ask::read_limit(request.get_ref().time_limit_ms, self.read_limit);
        tracing::info!(?limit, "a check begins");
        Ok(Response::new(read::check(self.reader.clone(), limit)))
    }
}
