//! The shipped `verify` script: it passes on a set-up that works, and fails on one that does not.

use std::path::Path;
use std::process::{Command, Output};

use porch_host::harness::Stack;

use crate::support::keyed;

#[test]
fn verify_tells_a_working_set_up_from_bare_envoy() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let output = verify(&stack)?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(stack.upstream.rows()?, 1, "the service ran once");

    let mut setup = keyed()?;
    setup.config.remove_plugin()?;
    let bare = setup.start()?;
    let output = verify(&bare)?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    for missing in [
        "FAIL  the limiter tells the limit",
        "FAIL  sent again",
        "FAIL  another body",
    ] {
        assert!(said.contains(missing), "expected {missing}: {said}");
    }
    Ok(())
}

fn verify(stack: &Stack) -> anyhow::Result<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy/local/verify");
    Ok(Command::new(script)
        .arg(format!("http://{}", stack.envoy.address))
        .output()?)
}
