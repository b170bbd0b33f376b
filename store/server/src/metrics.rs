//! What is counted while the store runs?
//!
//! Plain atomic counters, counted where an answer leaves; what the file and the memory hold is asked for when somebody
//! looks.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use porch_engine::{Batch, FORMAT, Usage};
use porch_wire::{Code, PROTOCOL, Reply, Total, claimed, reply};
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

/// Bounds of the commit latency's buckets, in seconds: a sync takes 0.1 ms on a good disk, and seconds on a sick one.
const COMMIT_SECONDS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];
/// Bounds of the batch size's buckets, in operations; a batch has at most 1,024.
const BATCH_OPERATIONS: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0,
];

/// The store's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    admitted: IntCounter,
    refused: IntCounter,
    charges: IntCounter,
    refunds: IntCounter,
    late_refunds: IntCounter,
    granted: IntCounter,
    replayed: IntCounter,
    too_large: IntCounter,
    in_flight: IntCounter,
    mismatched: IntCounter,
    tombstones: IntCounter,
    unknown: IntCounter,
    completed: IntCounter,
    fenced: IntCounter,
    released: IntCounter,
    nothing_released: IntCounter,
    invalid: IntCounter,
    unimplemented: IntCounter,
    unavailable: IntCounter,
    data_loss: IntCounter,
    corrupt_rows: IntCounter,
    commit_seconds: Histogram,
    batch_operations: Histogram,
    commits_failed: IntCounter,
    ceilings: IntCounter,
    held: Held,
    /// One look at a time, so that what is encoded belongs together.
    looking: Mutex<()>,
}

/// What is held now.
#[derive(Debug)]
struct Held {
    rows: IntGaugeVec,
    table_bytes: IntGaugeVec,
    file_bytes: IntGauge,
    limit_bytes: IntGauge,
    live_buckets: IntGauge,
    channels: IntGauge,
    full: IntGauge,
}

/// What the store holds when somebody looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    pub(crate) usage: Usage,
    pub(crate) file_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) live_buckets: usize,
}

impl Metrics {
    /// All counters at zero.
    ///
    /// # Errors
    /// When a metric's name or bounds are none: the program is wrong then.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, label: &str| {
            let counters = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(move |value: &str| {
                counters.get_metric_with_label_values(&[value])
            })
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let histogram = |name: &str, help: &str, bounds: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(bounds.to_vec());
            let histogram = Histogram::with_opts(options)?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let admits = counters(
            "porch_store_admits_total",
            "Requests that were checked against their rules' buckets, by outcome.",
            "outcome",
        )?;
        let refunds = counters(
            "porch_store_refunds_total",
            "Hits that were to be given back, by whether their window was still open.",
            "outcome",
        )?;
        let claims = counters(
            "porch_store_claims_total",
            "Claims on idempotency keys, by outcome.",
            "outcome",
        )?;
        let completions = counters(
            "porch_store_completions_total",
            "Claims that ended with an outcome: written, or fenced since the record is another claim's.",
            "outcome",
        )?;
        let abandons = counters(
            "porch_store_abandons_total",
            "Claims that were given up, by whether a record was released.",
            "outcome",
        )?;
        let errors = counters(
            "porch_store_errors_total",
            "Calls that were not carried out, by code.",
            "code",
        )?;
        build_info(&registry)?;
        Ok(Self {
            admitted: admits("admitted")?,
            refused: admits("refused")?,
            charges: counter(
                "porch_store_charges_total",
                "Charges for hits that were granted during an outage.",
            )?,
            refunds: refunds("applied")?,
            late_refunds: refunds("late")?,
            granted: claims("granted")?,
            replayed: claims("replay")?,
            too_large: claims("large")?,
            in_flight: claims("in_flight")?,
            mismatched: claims("mismatch")?,
            tombstones: claims("tombstone")?,
            unknown: claims("unknown")?,
            completed: completions("written")?,
            fenced: completions("fenced")?,
            released: abandons("released")?,
            nothing_released: abandons("nothing")?,
            invalid: errors("invalid_argument")?,
            unimplemented: errors("unimplemented")?,
            unavailable: errors("unavailable")?,
            data_loss: errors("data_loss")?,
            corrupt_rows: counter(
                "porch_store_corrupt_rows_total",
                "Times that a row failed its checksum and was refused. Any is a reason to look at the disk.",
            )?,
            commit_seconds: histogram(
                "porch_store_commit_seconds",
                "How long a batch that wrote took, from its first operation to the end of its sync.",
                &COMMIT_SECONDS,
            )?,
            batch_operations: histogram(
                "porch_store_batch_operations",
                "Operations in a batch.",
                &BATCH_OPERATIONS,
            )?,
            commits_failed: counter(
                "porch_store_commits_failed_total",
                "Batches that found no room and were answered UNAVAILABLE.",
            )?,
            ceilings: counter(
                "porch_store_ceilings_raised_total",
                "Ceilings of live buckets that were written: raised, opened, or lowered by a refund.",
            )?,
            held: Held::new(&registry)?,
            registry,
            looking: Mutex::default(),
        })
    }

    /// A reply leaves.
    pub(crate) fn answered_in(&self, reply: &Reply) {
        if let Some(outcome) = &reply.outcome {
            self.answered(outcome);
        }
    }

    /// An answer leaves.
    pub(crate) fn answered(&self, outcome: &reply::Outcome) {
        let counter = match outcome {
            reply::Outcome::Admitted(admitted) if admitted.admitted => &self.admitted,
            reply::Outcome::Admitted(_) => &self.refused,
            reply::Outcome::Charged(_) => &self.charges,
            reply::Outcome::Refunded(refunded) if refunded.applied => &self.refunds,
            reply::Outcome::Refunded(_) => &self.late_refunds,
            reply::Outcome::Claimed(claimed) => match &claimed.outcome {
                Some(claimed::Outcome::Granted(_)) => &self.granted,
                Some(claimed::Outcome::Replay(_)) => &self.replayed,
                Some(claimed::Outcome::Large(_)) => &self.too_large,
                Some(claimed::Outcome::InFlight(_)) => &self.in_flight,
                Some(claimed::Outcome::Mismatch(_)) => &self.mismatched,
                Some(claimed::Outcome::Tombstone(_)) => &self.tombstones,
                Some(claimed::Outcome::Unknown(_)) => &self.unknown,
                None => return,
            },
            reply::Outcome::Completed(completed) if completed.fenced => &self.fenced,
            reply::Outcome::Completed(_) => &self.completed,
            reply::Outcome::Abandoned(abandoned) if abandoned.released => &self.released,
            reply::Outcome::Abandoned(_) => &self.nothing_released,
            reply::Outcome::Error(error) => match error.code() {
                Code::InvalidArgument => &self.invalid,
                Code::Unimplemented => &self.unimplemented,
                Code::Unavailable | Code::Unspecified => &self.unavailable,
                Code::DataLoss => {
                    self.corrupt_rows.inc();
                    &self.data_loss
                }
            },
        };
        counter.inc();
    }

    /// A batch is done: what it has written is durable. Who only watches makes no batch that counts.
    pub(crate) fn done(&self, batch: &Batch, wrote: bool, took: Duration) {
        if batch.calls() == 0 {
            return;
        }
        if wrote {
            self.held.full.set(0);
            self.commit_seconds.observe(took.as_secs_f64());
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a batch has at most 1,024 operations"
        )]
        self.batch_operations.observe(batch.calls() as f64);
        self.ceilings
            .inc_by(u64::try_from(batch.ceilings()).unwrap_or(u64::MAX));
    }

    /// A batch found no room.
    pub(crate) fn no_room(&self) {
        self.commits_failed.inc();
        self.held.full.set(1);
    }

    /// A batch refused new rows, since their kind is at its limit.
    pub(crate) fn at_limit(&self) {
        self.held.full.set(1);
    }

    /// Whether the last batch found no room.
    pub(crate) fn is_full(&self) -> bool {
        self.held.full.get() != 0
    }

    /// All metrics in Prometheus' text format. Without `holding` the store did not say in time what it holds, and
    /// what it said before stands.
    ///
    /// # Errors
    /// When they cannot be encoded.
    pub(crate) fn encode(
        &self,
        holding: Option<&Holding>,
        channels: usize,
    ) -> Result<String, prometheus::Error> {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let held = &self.held;
        held.channels.set(gauge(channels));
        if let Some(holding) = holding {
            for (name, table) in holding.usage.tables() {
                held.rows.with_label_values(&[name]).set(gauge(table.rows));
                held.table_bytes
                    .with_label_values(&[name])
                    .set(gauge(table.bytes));
            }
            held.file_bytes.set(gauge(holding.file_bytes));
            held.limit_bytes.set(gauge(holding.limit_bytes));
            held.live_buckets.set(gauge(holding.live_buckets));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// The counters, by name and label.
    pub(crate) fn totals(&self) -> Vec<Total> {
        let mut totals = Vec::new();
        for family in self.registry.gather() {
            for metric in family.get_metric() {
                if family.get_field_type() != prometheus::proto::MetricType::COUNTER {
                    continue;
                }
                let label = metric.get_label().first();
                let value = metric.get_counter().get_value();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a counter of whole numbers, never negative"
                )]
                totals.push(Total {
                    name: family.name().to_owned(),
                    label: label.map_or_else(String::new, |label| label.value().to_owned()),
                    value: value as u64,
                });
            }
        }
        totals
    }
}

impl Held {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let by_table = |name: &str, help: &str| {
            let gauges = IntGaugeVec::new(Opts::new(name, help), &["table"])?;
            registry.register(Box::new(gauges.clone()))?;
            Ok::<_, prometheus::Error>(gauges)
        };
        Ok(Self {
            rows: by_table("porch_store_rows", "Rows in the data file, by table.")?,
            table_bytes: by_table(
                "porch_store_table_bytes",
                "Bytes in use in the data file, by table.",
            )?,
            file_bytes: gauge(
                "porch_store_file_bytes",
                "The data file's size, with what is free in it.",
            )?,
            limit_bytes: gauge(
                "porch_store_file_limit_bytes",
                "The largest size of the data file.",
            )?,
            live_buckets: gauge("porch_store_live_buckets", "Buckets held in memory.")?,
            channels: gauge(
                "porch_store_channels_open",
                "Streams of filters that are open.",
            )?,
            full: gauge(
                "porch_store_full",
                "1 while the last batch found no room for a new row, else 0.",
            )?,
        })
    }
}

fn build_info(registry: &Registry) -> Result<(), prometheus::Error> {
    let (protocol, format) = (PROTOCOL.to_string(), FORMAT.to_string());
    let options = Opts::new(
        "porch_store_build_info",
        "Always 1; its labels name the release, the channel's protocol and the file's format.",
    )
    .const_label("version", env!("CARGO_PKG_VERSION"))
    .const_label("protocol", protocol)
    .const_label("format", format);
    let gauge = IntGauge::with_opts(options)?;
    gauge.set(1);
    registry.register(Box::new(gauge))
}

fn gauge<T: TryInto<i64>>(value: T) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
