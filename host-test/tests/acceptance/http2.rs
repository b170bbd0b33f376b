//! Clients that speak HTTP/2: the same answers, and limits of their own in Envoy.

use std::process::Command;

use anyhow::Context as _;
use porch_host::harness::Stack;

use crate::support::keyed;

const MIB: usize = 1 << 20;

#[test]
fn http2_clients_get_the_same() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for (key, size) in [("small", 3), ("largest", MIB)] {
        let body = stack.directory().join(key);
        std::fs::write(&body, vec![b'x'; size])?;
        let path = format!("/orders/{key}?body=binary&bytes=70000");
        let (first, again) = (curl(&stack, key, &path)?, curl(&stack, key, &path)?);
        assert!(
            first.starts_with(b"HTTP/2 201"),
            "{key}: {}",
            first.escape_ascii()
        );
        assert!(marked(&again) && !marked(&first), "{key}");
        assert_eq!(body_of(&first), body_of(&again), "{key}");
        assert_eq!(
            stack.upstream.rows_of(&format!("/orders/{key}"))?,
            1,
            "{key}"
        );
    }
    // Not much larger: some versions of curl show no answer that comes before they have sent all.
    std::fs::write(stack.directory().join("too-large"), vec![b'x'; MIB + 1])?;
    let refused = curl(&stack, "too-large", "/orders/too-large")?;
    let said = String::from_utf8_lossy(&refused);
    assert!(
        said.starts_with("HTTP/2 413") && said.contains("request-too-large"),
        "{said}"
    );
    assert_eq!(stack.upstream.rows()?, 2);
    Ok(())
}

/// Posts the file named as the key, and gives the whole answer.
fn curl(stack: &Stack, key: &str, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--include",
        "--max-time",
        "30",
        "--http2-prior-knowledge",
    ]);
    curl.args(["--header", &format!("idempotency-key: \"{key}\"")]);
    curl.arg("--data-binary")
        .arg(format!("@{}", stack.directory().join(key).display()));
    let output = curl
        .arg(format!("http://{}{path}", stack.envoy.address))
        .output()
        .context("cannot run curl")?;
    Ok(output.stdout)
}

fn marked(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("\nidempotent-replayed: true\r\n")
}

fn body_of(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    answer.get(end..)
}
