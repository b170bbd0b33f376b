//! What does the store make of messages that no filter would send? It refuses each by name, and others go on.

mod bounds;
mod fuzz;
mod garbage;
mod raw;

use std::rc::Rc;

use anyhow::ensure;

use super::audit::audit;
use super::ledger::Slack;
use super::load::{self, Shared};
use super::site::{Running, Site, Wrap};
use super::{Extent, Plan, draw, tell};

/// A store, and somebody who uses it as one should.
struct Scene {
    site: Site,
    running: Running,
    bystander: Rc<Shared>,
}

pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let (messages, buffers) = match plan.extent {
        Extent::Short => (1_500, 50_000),
        Extent::Long => (100_000, 5_000_000),
    };
    super::block_on(async move {
        let site = Site::new()?;
        let running = site.start(&Wrap::default())?;
        let mut scene = Scene {
            site,
            running,
            bystander: Shared::new(),
        };
        scene.others_go_on(plan.seed).await?;
        bounds::each_field(&scene).await?;
        scene.others_go_on(plan.seed + 1).await?;
        garbage::oversized(&scene).await?;
        garbage::wrong_frames(&scene, plan.seed).await?;
        garbage::no_http(&scene, plan.seed).await?;
        scene.others_go_on(plan.seed + 2).await?;
        fuzz::decoder(plan.seed, buffers)?;
        fuzz::channel(&mut scene, plan.seed, messages).await?;
        scene.others_go_on(plan.seed + 3).await?;
        let promises = scene.bystander.ledger.borrow().promises;
        tell(&format!(
            "{promises} promises to somebody else, none broken"
        ));
        scene.running.kill()
    })
}

impl Scene {
    /// Uses the store as one should, and checks each promise.
    async fn others_go_on(&mut self, seed: u64) -> anyhow::Result<()> {
        self.running.still_running()?;
        let before = self.bystander.ledger.borrow().promises;
        let source = draw::source(seed, 60);
        load::client(&self.site.socket(), &self.bystander, source, 10, usize::MAX).await?;
        let mut client = self.running.connect().await?;
        let keys: Vec<u64> = self
            .bystander
            .ledger
            .borrow()
            .keys
            .keys()
            .copied()
            .collect();
        let mut source = draw::source(seed, 61);
        audit(
            &mut client,
            &self.bystander,
            &keys,
            Slack::None,
            &mut source,
        )
        .await?;
        let after = self.bystander.ledger.borrow().promises;
        ensure!(after > before, "nobody else was answered");
        self.running.still_running()
    }
}
