//! Do operators' commands do beside a running store and on a stopped one what they say?

use std::{
    fs,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::Path,
    process::Output,
};

use porch_engine::{BucketName, ClientAddress, record_key};
use porch_wire::{Admit, Claim, Hit, call::Operation, claimed, complete, reply};
use serde_json::Value;
use tonic::transport::Endpoint;

use crate::{
    client::{Client, claim, completion, digest, hit, response},
    process::{Place, Process, binary},
};

/// Runs a command against the place's store.
fn command(place: &Place, words: &[&str]) -> anyhow::Result<Output> {
    let mut command = binary();
    command.arg(words[0]).arg("--data").arg(place.data());
    Ok(command.args(&words[1..]).output()?)
}

/// What a command prints as JSON; it is expected to succeed.
pub(crate) fn json(place: &Place, words: &[&str]) -> anyhow::Result<Value> {
    let output = command(place, &[words, &["--json"]].concat())?;
    let told = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{words:?}: {told}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What a command says when it fails.
fn failure(place: &Place, words: &[&str]) -> anyhow::Result<String> {
    let output = command(place, words)?;
    let code = output.status.code();
    anyhow::ensure!(
        code == Some(1),
        "{words:?}: expected exit code 1, came {code:?}"
    );
    Ok(String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned())
}

fn hex(n: u8) -> String {
    format!("{n:02x}").repeat(32)
}

const NAMED: [&str; 12] = [
    "--namespace",
    "shop",
    "--policy",
    "orders",
    "--authority",
    "Shop.Example",
    "--principal",
    "ann",
    "--key",
    "raw-key-4711",
    "--body",
    "--json",
];

fn named() -> Claim {
    let key = record_key(
        "shop",
        "orders",
        b"shop.example",
        Some(b"ann"),
        b"raw-key-4711",
    );
    Claim {
        key: key.0.to_vec().into(),
        ..claim(0, 1)
    }
}

/// A store that has done something of each kind, and still runs.
async fn used(place: &Place) -> anyhow::Result<(Process, Client)> {
    let store = place.start()?;
    let mut client = place.connect().await?;
    for _ in 0..3 {
        client.admit(vec![hit(1, 100, 10)]).await?;
    }
    for key in [1, 2] {
        client.claim(claim(key, 1)).await?;
    }
    let kept = complete::Outcome::Response(response(b"for ann only".to_vec()));
    client.complete(completion(2, 1, kept)).await?;
    let unknown = complete::Outcome::Unknown(porch_wire::Unknown { status: 504 });
    for key in [3, 4] {
        client.claim(claim(key, 1)).await?;
        client.complete(completion(key, 1, unknown.clone())).await?;
    }
    Ok((store, client))
}

#[tokio::test]
async fn a_record_is_named_by_its_parts_and_shows_its_response_only_when_asked()
-> anyhow::Result<()> {
    let place = Place::new()?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    client.claim(named()).await?;
    let kept = complete::Outcome::Response(response(b"for ann only".to_vec()));
    let complete = porch_wire::Complete {
        key: named().key,
        ..completion(0, 1, kept)
    };
    client.complete(complete).await?;
    let look = |words: &[&str]| command(&place, &[&["inspect"], words].concat());

    let seen = |by: &str| -> anyhow::Result<()> {
        let seen: Value = serde_json::from_slice(&look(&NAMED)?.stdout)?;
        assert_eq!(seen["answered_by"], by);
        let record = &seen["record"];
        assert_eq!(record["state"], "done");
        assert_eq!(record["status"], 201);
        assert_eq!(record["response"]["body_base64"], "Zm9yIGFubiBvbmx5");
        assert_eq!(record["response"]["fields"][1][0], "location");
        let without = look(&NAMED[..10])?;
        let text = String::from_utf8(without.stdout)?;
        assert!(text.contains("done, status 201"), "{text}");
        let told = String::from_utf8(without.stderr)?;
        for secret in ["for ann only", "raw-key-4711", "/orders/1"] {
            assert!(!text.contains(secret) && !told.contains(secret), "{text}");
        }
        let asked = by == "running-store";
        assert_eq!(told.contains("asking the running store"), asked, "{told}");
        assert_eq!(told.contains("opened"), !asked, "{told}");
        let raw = String::from_utf8(look(&NAMED[..11])?.stdout)?;
        assert!(raw.ends_with("\n\nfor ann only"), "{raw}");
        Ok(())
    };
    seen("running-store")?;
    store.terminate()?;
    seen("data-directory")?;
    // What was opened is closed.
    place.start()?.terminate()
}

#[tokio::test]
async fn a_bucket_is_named_by_its_parts() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    let name = BucketName::new("shop", "per-client", 60)
        .client_address(ClientAddress::Ip("1.2.3.4".parse()?))
        .header("x-api-key", b"K")
        .literal("all");
    let named = Hit {
        bucket: name.bucket().0.to_vec().into(),
        ..hit(0, 10, 1)
    };
    client.admit(vec![named]).await?;
    let words = [
        "inspect",
        "--namespace",
        "shop",
        "--rule",
        "per-client",
        "--window",
        "60s",
        "--key",
        "client_address=1.2.3.4",
        "--key",
        "header:X-Api-Key=K",
        "--key",
        "literal=all",
    ];
    assert_eq!(json(&place, &words)?["bucket"]["count"], 1);
    assert_eq!(json(&place, &words[..11])?["bucket"]["found"], false);
    Ok(())
}

#[tokio::test]
async fn forget_settle_and_reset_beside_a_running_store() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (store, mut client) = used(&place).await?;
    assert_eq!(json(&place, &["reset", "--bucket", &hex(1)])?["count"], 3);
    let admitted = client.admit(vec![hit(1, 100, 10)]).await?;
    assert_eq!(admitted.verdict[0].remaining, 99);

    let forgotten = json(&place, &["forget", "--record", &hex(1)])?;
    assert_eq!(
        (&forgotten["state"], &forgotten["fenced"]),
        (&"pending".into(), &true.into())
    );
    let late = complete::Outcome::Response(response(Vec::new()));
    assert!(
        client.complete(completion(1, 1, late)).await?,
        "it is fenced"
    );
    let granted = client.claim(claim(1, 2)).await?;
    assert!(
        matches!(granted, claimed::Outcome::Granted(_)),
        "{granted:?}"
    );

    settled(&place, &mut client).await?;
    store.terminate()
}

/// Settles the two records that are unknown, and looks what claims on them are answered.
async fn settled(place: &Place, client: &mut Client) -> anyhow::Result<()> {
    let tombstone = ["settle", "--as", "tombstone", "--status", "201", "--record"];
    let released = ["settle", "--as", "released", "--record"];
    assert_eq!(
        json(place, &[&tombstone[..], &[&hex(3)]].concat())?["settled"],
        true
    );
    assert_eq!(
        json(place, &[&released[..], &[&hex(4)]].concat())?["settled"],
        true
    );
    let told = failure(place, &[&released[..], &[&hex(2)]].concat())?;
    assert!(told.contains("found done"), "{told}");
    let told = failure(place, &[&released[..], &[&hex(9)]].concat())?;
    assert!(told.contains("there is none"), "{told}");
    let retry = client.claim(claim(3, 2)).await?;
    assert!(
        matches!(&retry, claimed::Outcome::Tombstone(tombstone) if tombstone.status == 201),
        "{retry:?}"
    );
    let retry = client.claim(claim(4, 2)).await?;
    assert!(matches!(retry, claimed::Outcome::Granted(_)), "{retry:?}");
    Ok(())
}

#[tokio::test]
async fn forget_settle_and_reset_on_a_stopped_store() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (store, client) = used(&place).await?;
    drop(client);
    store.terminate()?;
    let reset = json(&place, &["reset", "--bucket", &hex(1)])?;
    assert_eq!(
        (&reset["answered_by"], &reset["count"]),
        (&"data-directory".into(), &3.into())
    );
    let again = json(&place, &["reset", "--bucket", &hex(1)])?;
    assert_eq!(again["reset"], false);
    let forgotten = json(&place, &["forget", "--record", &hex(1)])?;
    assert_eq!(forgotten["removed"], true);
    let settled = json(&place, &["settle", "--record", &hex(3), "--as", "released"])?;
    assert_eq!(settled["settled"], true);

    let store = place.start()?;
    let mut client = place.connect().await?;
    let admitted = client.admit(vec![hit(1, 100, 10)]).await?;
    assert_eq!(admitted.verdict[0].remaining, 99);
    for key in [1, 3] {
        let granted = client.claim(claim(key, 2)).await?;
        assert!(
            matches!(granted, claimed::Outcome::Granted(_)),
            "{granted:?}"
        );
    }
    store.terminate()
}

#[tokio::test]
async fn a_backup_beside_a_running_store_opens_and_holds_what_was_acknowledged()
-> anyhow::Result<()> {
    let place = Place::new()?;
    let (store, mut client) = used(&place).await?;
    let copy = Place::new()?;
    let to = copy.data();
    let to = to.to_str().expect("a path in UTF-8");
    let done = json(&place, &["backup", "--to", to])?;
    assert_eq!(done["answered_by"], "running-store");
    assert_eq!(
        done["bytes"],
        fs::metadata(copy.data().join("data.mdb"))?.len()
    );
    let mode = |path: &Path| Ok::<_, std::io::Error>(fs::metadata(path)?.permissions().mode());
    assert_eq!(mode(&copy.data())? & 0o777, 0o700);
    assert_eq!(mode(&copy.data().join("data.mdb"))? & 0o777, 0o600);
    let refused = failure(&place, &["backup", "--to", to])?;
    assert!(refused.contains("new or empty"), "{refused}");
    // What comes later is not in it.
    client.claim(claim(7, 1)).await?;
    store.terminate()?;

    assert_eq!(json(&copy, &["check"])?["wrong"], 0);
    let restored = copy.start()?;
    let mut client = copy.connect().await?;
    let replay = client.claim(claim(2, 9)).await?;
    match replay {
        claimed::Outcome::Replay(kept) => assert_eq!(&kept.body[..], b"for ann only"),
        other => panic!("expected a replay, came {other:?}"),
    }
    // A counter is as after a crash: at its ceiling.
    let peek = Hit {
        cost: 0,
        ..hit(1, 100, 10)
    };
    assert_eq!(client.admit(vec![peek]).await?.verdict[0].remaining, 90);
    let later = client.claim(claim(7, 2)).await?;
    assert!(matches!(later, claimed::Outcome::Granted(_)), "{later:?}");
    restored.terminate()?;

    // A stopped store is copied too.
    let second = Place::new()?;
    let to = second.data();
    let to = to.to_str().expect("a path in UTF-8");
    let output = command(&place, &["backup", "--to", to])?;
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr)?;
    assert!(told.contains("backup: 100 %"), "progress is told: {told}");
    second.start()?.terminate()
}

#[tokio::test]
async fn a_backup_that_is_not_done_in_time_leaves_nothing() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (store, mut client) = used(&place).await?;
    for key in 100..140 {
        client.claim(claim(key, 1)).await?;
        let kept = complete::Outcome::Response(response(vec![key; 60_000]));
        client.complete(completion(key, 1, kept)).await?;
    }
    let copy = Place::new()?;
    let to = copy.data();
    let to = to.to_str().expect("a path in UTF-8");
    let told = failure(&place, &["backup", "--to", to, "--time-limit", "1ns"])?;
    assert!(told.contains("not done within"), "{told}");
    assert!(!copy.data().exists());
    // Whoever comes next finds nobody at it.
    assert_eq!(json(&place, &["check"])?["wrong"], 0);
    client.claim(claim(9, 1)).await?;
    store.terminate()
}

#[tokio::test]
async fn a_check_names_row_and_table_and_ends_with_exit_code_1() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (store, client) = used(&place).await?;
    let whole = command(&place, &["check"])?;
    assert!(whole.status.success(), "{whole:?}");
    assert!(String::from_utf8(whole.stdout)?.contains("nothing is wrong"));
    drop(client);
    store.terminate()?;
    let data = place.data().join("data.mdb");
    let bytes = fs::read(&data)?;
    let file = fs::File::options().write(true).open(&data)?;
    for (at, key) in bytes.windows(32).enumerate() {
        // In `records` the key follows its length in the node's header.
        if key == [2; 32] && bytes[..at].ends_with(&[32, 0]) {
            file.write_at(&[bytes[at + 32] ^ 1], u64::try_from(at)? + 32)?;
        }
    }
    let damaged = |output: Output| -> anyhow::Result<()> {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let seen: Value = serde_json::from_slice(&output.stdout)?;
        assert_eq!(
            seen["wrong"], 2,
            "with the chunk that nobody refers to: {seen}"
        );
        assert_eq!(seen["findings"][0]["table"], "records");
        assert_eq!(seen["findings"][0]["row"], hex(2));
        Ok(())
    };
    damaged(command(&place, &["check", "--json"])?)?;
    let _store = place.start()?;
    damaged(command(&place, &["check", "--json"])?)?;
    let seen = json(&place, &["inspect", "--record", &hex(2)])?;
    let damage = seen["record"]["damage"].as_str().unwrap_or_default();
    assert!(damage.contains("crc32c"), "{seen}");
    Ok(())
}

#[tokio::test]
async fn a_check_survives_any_damaged_page() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (store, mut client) = used(&place).await?;
    for bucket in 0..200 {
        client.admit(vec![hit(bucket, 10, 1)]).await?;
    }
    drop(client);
    store.terminate()?;
    let data = place.data().join("data.mdb");
    let whole = fs::read(&data)?;
    let (mut wrong, mut fatal) = (0, 0);
    for (at, page) in whole.chunks(4_096).enumerate() {
        let file = fs::File::options().write(true).open(&data)?;
        let at = u64::try_from(at * 4_096)?;
        // The page's number stands in its first bytes, and its flags next.
        file.write_all_at(&[0xff; 4_000], at + 16)?;
        let output = command(&place, &["check"])?;
        let told = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "page at {at}: {:?} {told}",
            output.status
        );
        wrong += u32::from(code == Some(1));
        fatal += u32::from(told.contains("damaged: reading it ended a process by signal"));
        // Opening writes: everything is put back.
        file.write_all_at(page, at)?;
        fs::write(&data, &whole)?;
    }
    assert!(
        wrong > 5 && fatal > 0,
        "{wrong} are noticed, {fatal} of them by the end of a process"
    );
    assert!(command(&place, &["check"])?.status.success());
    Ok(())
}

#[tokio::test]
async fn stats_say_how_full_and_how_busy_the_store_is() -> anyhow::Result<()> {
    let place = Place::with(&["--max-counter-bytes", "8MiB", "--max-record-bytes", "32MiB"])?;
    let (store, mut client) = used(&place).await?;
    let invalid = client
        .ask(Operation::Admit(Admit { hit: Vec::new() }))
        .await?;
    assert!(matches!(invalid, reply::Outcome::Error(_)), "{invalid:?}");
    let stats = json(&place, &["stats"])?;
    assert_eq!(stats["tables"]["counters"]["rows"], 1);
    assert_eq!(stats["tables"]["records"]["rows"], 4);
    assert_eq!(stats["limit_bytes"], 60 << 20);
    assert_eq!(
        (&stats["live_buckets"], &stats["channels"]),
        (&1.into(), &1.into())
    );
    let total = |name: &str, label: &str| {
        let totals = stats["totals"].as_array().cloned().unwrap_or_default();
        let mut totals = totals.into_iter();
        totals
            .find(|total| {
                total["name"] == format!("porch_store_{name}_total") && total["label"] == label
            })
            .map(|total| total["value"].clone())
    };
    assert_eq!(total("admits", "admitted"), Some(3.into()));
    assert_eq!(total("claims", "granted"), Some(4.into()));
    assert_eq!(total("completions", "written"), Some(3.into()));
    assert_eq!(total("errors", "invalid_argument"), Some(1.into()));
    store.terminate()?;
    assert_eq!(json(&place, &["stats"])?["tables"]["records"]["rows"], 4);
    Ok(())
}

#[tokio::test]
async fn a_directory_that_is_none_or_that_is_open_elsewhere_is_told() -> anyhow::Result<()> {
    let place = Place::new()?;
    let told = failure(&place, &["stats"])?;
    assert!(told.contains("expected a store's data file"), "{told}");
    assert!(!place.data().exists(), "nothing was made");
    let admin = place.socket().with_extension("admin");
    let admin = format!("unix:{}", admin.display());
    let place = Place::with(&["--admin", &admin])?;
    let _store = place.start()?;
    let told = failure(&place, &["stats"])?;
    assert!(told.contains("name its admin socket by --admin"), "{told}");
    let output = binary().args(["stats", "--admin", &admin]).output()?;
    assert!(output.status.success(), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn an_operators_request_is_within_its_bounds() -> anyhow::Result<()> {
    use porch_wire::{
        ForgetRequest, InspectRequest, ResetRequest, SettleRequest, Tombstone,
        admin_client::AdminClient, settle_request,
    };
    let place = Place::new()?;
    let _store = place.start()?;
    let socket = format!("unix:{}", place.data().join("admin.sock").display());
    let mut admin = AdminClient::new(Endpoint::from_shared(socket)?.connect().await?);
    let short = digest(1).slice(1..);
    let reset = admin.reset(ResetRequest {
        bucket: short.clone(),
    });
    let mut refused = vec![("bucket", reset.await.err())];
    let forget = admin.forget(ForgetRequest {
        record: short.clone(),
    });
    refused.push(("record", forget.await.err()));
    let inspect = admin.inspect(InspectRequest {
        record: short,
        ..InspectRequest::default()
    });
    refused.push(("record", inspect.await.err()));
    let outcome = |outcome| SettleRequest {
        record: digest(1),
        outcome,
    };
    refused.push(("outcome", admin.settle(outcome(None)).await.err()));
    let tombstone = settle_request::Outcome::Tombstone(Tombstone { status: 99 });
    let settle = admin.settle(outcome(Some(tombstone)));
    refused.push(("tombstone.status", settle.await.err()));
    for (field, status) in refused {
        let status = status.unwrap_or_else(|| panic!("{field}: expected a refusal"));
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
        let told = status.message();
        assert!(
            told.starts_with(field) && told.contains("expected") && told.contains("came"),
            "{told}"
        );
    }
    // The channel's socket has no operators' service.
    let socket = format!("unix:{}", place.socket().display());
    let mut channel = AdminClient::new(Endpoint::from_shared(socket)?.connect().await?);
    let refused = channel.inspect(InspectRequest::default()).await;
    let code = refused.map_err(|status| status.code());
    assert_eq!(code.err(), Some(tonic::Code::Unimplemented));
    Ok(())
}

#[test]
fn shells_complete_every_command() -> anyhow::Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let output = binary().args(["completions", shell]).output()?;
        assert!(output.status.success(), "{output:?}");
        let script = String::from_utf8(output.stdout)?;
        for word in ["serve", "backup", "time-limit", "namespace"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    Ok(())
}
