//! An orderly stop of the proxy: what is in flight is answered, and kept.

use porch_host::client::Request;
use porch_host::harness::{PATIENCE, eventually};

use crate::support::keyed;

#[test]
fn a_drain_answers_and_keeps_what_is_in_flight() -> anyhow::Result<()> {
    let mut stack = keyed()?.start()?;
    let request =
        |name: &str| Request::post(&format!("/orders/{name}?delay_ms=1500"), "tea").key(name);
    let stays = request("stays").start(stack.envoy.address)?;
    let leaves = request("leaves").start(stack.envoy.address)?;
    eventually("upstream runs both", PATIENCE, || {
        Ok((stack.upstream.rows()? == 2).then_some(()))
    })?;
    drop(leaves);
    stack.envoy.drain()?;
    let first = stays.finish()?;
    assert_eq!((first.status, first.replayed()), (201, false), "{first:?}");
    stack.envoy.terminate()?;
    stack.envoy.start()?;
    for name in ["stays", "leaves"] {
        let again = stack.send(&request(name))?;
        assert!(again.status == 201 && again.replayed(), "{name}: {again:?}");
    }
    assert_eq!(stack.upstream.rows()?, 2);
    Ok(())
}
