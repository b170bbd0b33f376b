//! What is left after the power goes away?
//!
//! A store runs under `strace` while clients note what it acknowledges, and when. From the recorded writes and flushes the
//! states are built that a disk may be in if the power had gone away then; each is opened by the real store, which has to hold
//! all that was acknowledged until then.

mod disk;
mod recording;

use std::fs;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use porch_wire::reply::Outcome;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::task::LocalSet;

use self::disk::{Loss, State};
use self::recording::{Event, What};
use super::audit::audit;
use super::ledger::Slack;
use super::load::{self, Shared};
use super::site::{Site, Started, Wrap};
use super::watch::{Seen, Watch};
use super::{Extent, Plan, draw, tell};

/// What one run left: what the disk was told, and what the clients were.
struct Run {
    events: Vec<Event>,
    seen: Vec<Seen>,
    claims: u64,
    keys: u64,
}

impl Run {
    /// The call by which the first start was done.
    fn opened(&self) -> anyhow::Result<usize> {
        let marker = self
            .events
            .iter()
            .position(|event| event.what == What::Marker);
        marker.context("expected the marker to be flushed, and it was not")
    }

    /// The commits that first completions alone have waited for, and the call that was next after the answer.
    fn commits_of_completions(&self) -> Vec<(usize, usize)> {
        let durable = |event: &Event| matches!(event.what, What::Durable { .. });
        let mut found = Vec::new();
        for answered in &self.seen {
            let Some(Outcome::Completed(_)) = answered.answer else {
                continue;
            };
            let same = self.seen.iter().filter(|seen| seen.deed == answered.deed);
            let [sent, _] = same.collect::<Vec<_>>()[..] else {
                continue; // It was sent twice.
            };
            let next = self
                .events
                .iter()
                .position(|event| event.returned > answered.at);
            let next = next.unwrap_or(self.events.len());
            let Some(commit) = self.events[..next].iter().rposition(durable) else {
                continue;
            };
            let earlier = self.events[..commit].iter().rposition(durable);
            let began = earlier.map_or(Duration::ZERO, |earlier| self.events[earlier].returned);
            if (began..self.events[commit].returned).contains(&sent.at) {
                found.push((commit, next));
            }
        }
        found
    }
}

/// Builds all states and opens each.
pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let (states, messages) = match plan.extent {
        Extent::Short => (150, 25),
        Extent::Long => (1_500, 120),
    };
    super::block_on(async move {
        let run = record(plan, messages).await?;
        let mut source = draw::source(plan.seed, 3);
        let opened = run.opened()?;
        let mut acknowledged = 0;
        for n in 0..states {
            let loss = Loss::nth(n);
            let cut = source.random_range(opened..=run.events.len());
            let state = disk::after(&run.events, cut, loss, &[], &mut source);
            let told = format!(
                "state {n}, cut at call {cut} of {}, {loss:?} of what was not flushed is lost, seed {}",
                run.events.len(),
                plan.seed
            );
            acknowledged += check(&run, cut, &state, &mut source)
                .await
                .with_context(|| told)?;
        }
        let flushes = count(&run.events, |what| *what == What::Flush);
        tell(&format!(
            "{states} states of a run of {} writes and {flushes} flushes; none corrupt, none of {} promises a state lost",
            run.events.len() - flushes,
            acknowledged / states as u64,
        ));
        lies(&run, &mut source).await
    })
}

/// The power goes away during the very first start, before anything was promised: the next start is as good as the first.
pub(super) fn first_start(plan: Plan) -> anyhow::Result<()> {
    super::block_on(async move {
        let run = record(plan, 1).await?;
        let mut source = draw::source(plan.seed, 4);
        let (mut failed, mut tried) = (Vec::new(), 0);
        for cut in 0..=run.opened()? {
            for n in 0..7 {
                let loss = Loss::nth(n);
                let state = disk::after(&run.events, cut, loss, &[], &mut source);
                tried += 1;
                if let Err(error) = check(&run, cut, &state, &mut source).await {
                    failed.push(format!("call {cut}, {loss:?} lost: {error:#}"));
                }
            }
        }
        tell(&format!("{tried} states of a first start"));
        ensure!(
            failed.is_empty(),
            "{} of {tried} do not open:\n{}",
            failed.len(),
            failed.join("\n")
        );
        Ok(())
    })
}

/// A disk that loses what it said was flushed must be found out; else this torture proves nothing.
async fn lies(run: &Run, source: &mut StdRng) -> anyhow::Result<()> {
    let commits = run.commits_of_completions();
    let (mut tried, mut found_out) = (0, 0);
    for (commit, cut) in commits.iter().step_by(commits.len().div_ceil(12).max(1)) {
        let flush = |before: usize| {
            let flush = |event: &Event| event.what == What::Flush;
            run.events[..before].iter().rposition(flush)
        };
        let last = flush(*commit).unwrap_or(0);
        let pages = flush(last).map_or(0, |earlier| earlier + 1)..*commit;
        // The commit's meta page; the pages that it names.
        for forget in [vec![*commit], pages.collect()] {
            tried += 1;
            let state = disk::after(&run.events, *cut, Loss::All, &forget, source);
            found_out += usize::from(check(run, *cut, &state, source).await.is_err());
        }
    }
    tell(&format!(
        "a disk that loses flushed writes was found out {found_out} times of {tried}"
    ));
    ensure!(
        tried >= 8 && found_out == tried,
        "expected to find out each of at least 8 lies, found out {found_out} of {tried}"
    );
    Ok(())
}

async fn record(plan: Plan, messages: u64) -> anyhow::Result<Run> {
    let site = Site::new()?;
    let shared = Shared::new();
    *shared.watch.borrow_mut() = Watch::keeping();
    let running = site.start(&recording::recorder(&site))?;
    let local = LocalSet::new();
    local
        .run_until(async {
            // One caller, so that each answer stands on a commit of its own; then many, so that they share commits.
            let alone = draw::source(plan.seed, 1);
            load::pairs(&site.socket(), &shared, 12).await?;
            load::client(&site.socket(), &shared, alone, messages * 4, 1).await?;
            let clients: Vec<_> = (0..4)
                .map(|part| {
                    let (socket, shared) = (site.socket(), Rc::clone(&shared));
                    let source = draw::source(plan.seed, 10 + part);
                    local.spawn_local(async move {
                        load::client(&socket, &shared, source, messages, usize::MAX).await
                    })
                })
                .collect();
            for client in clients {
                client.await.context("a client panicked")??;
            }
            anyhow::Ok(())
        })
        .await?;
    running.kill()?;
    let mut events = Vec::new();
    // The recorder ends after the store.
    let whole = crate::harness::eventually("the trace is whole", Duration::from_secs(10), || {
        let before = events.len();
        events = recording::read(&site)?;
        Ok((before == events.len()).then_some(()))
    });
    whole?;
    let seen = shared.watch.borrow_mut().take();
    let (claims, keys) = (*shared.claims.borrow(), *shared.keys.borrow());
    Ok(Run {
        events,
        seen,
        claims,
        keys,
    })
}

/// The ledger as it was when call `cut` was under way: everything may have been sent, and what was answered before that call
/// returned is promised.
fn ledger_at(run: &Run, cut: usize) -> anyhow::Result<Rc<Shared>> {
    let until = run.events.get(cut).map(|event| event.returned);
    let shared = Shared::new();
    *shared.claims.borrow_mut() = run.claims;
    *shared.keys.borrow_mut() = run.keys;
    {
        let mut ledger = shared.ledger.borrow_mut();
        for seen in &run.seen {
            match &seen.answer {
                None => ledger.sent(&seen.deed),
                Some(answer) if until.is_none_or(|until| seen.at < until) => {
                    ledger.answered(&seen.deed, answer)?;
                }
                Some(_) => {}
            }
        }
    }
    Ok(shared)
}

/// Opens a state, and answers how many promises it kept.
async fn check(run: &Run, cut: usize, state: &State, source: &mut StdRng) -> anyhow::Result<u64> {
    let shared = ledger_at(run, cut)?;
    let site = Site::new()?;
    if !state.file.is_empty() || state.marker {
        fs::create_dir(site.data())?;
        fs::write(site.file(), &state.file)?;
    }
    if state.marker {
        fs::write(site.data().join("porch.marker"), "here\n")?;
    }
    let running = match site.try_start(&Wrap::default())? {
        Started::Listens(running) => running,
        Started::Ended(ended) => {
            bail!("expected it to open, came {}: {}", ended.status, ended.told)
        }
    };
    let mut client = running.connect().await?;
    let keys: Vec<u64> = shared.ledger.borrow().keys.keys().copied().collect();
    audit(&mut client, &shared, &keys, Slack::Reserve, source).await?;
    let promises = shared.ledger.borrow().promises;
    // It also goes on from there.
    load::client(
        &site.socket(),
        &shared,
        draw::source(source.random(), 0),
        3,
        usize::MAX,
    )
    .await?;
    audit(&mut client, &shared, &[], Slack::None, source).await?;
    running.kill()?;
    Ok(promises)
}

fn count(events: &[Event], kind: impl Fn(&What) -> bool) -> usize {
    events.iter().filter(|event| kind(&event.what)).count()
}
