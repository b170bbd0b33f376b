//! Who is served over TCP, and who gets nothing?

use std::{fs, io::Write as _, net::TcpStream, os::unix::fs::MetadataExt as _, time::Duration};

use anyhow::Context as _;
use porch_wire::{
    Admit, Call, MESSAGE_BYTES_MAX, PROTOCOL, call::Operation, shared_data_client::SharedDataClient,
};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;
use tonic::{
    Request,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{client::hit, process::Place};

/// An authority for certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
struct Proof {
    cert: String,
    key: String,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key)?;
        Ok(Self {
            pem: cert.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> anyhow::Result<Proof> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["store.example".to_owned()])?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Proof {
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// A place that listens on a port with mutual TLS, and the authorities on both sides.
struct Guarded {
    place: Place,
    servers: Authority,
    clients: Authority,
    _files: TempDir,
}

impl Guarded {
    fn new() -> anyhow::Result<Self> {
        let files = tempfile::tempdir()?;
        let (servers, clients) = (Authority::new()?, Authority::new()?);
        let proof = servers.issue(|_| ())?;
        let write = |name: &str, text: &str| -> anyhow::Result<String> {
            let path = files.path().join(name);
            fs::write(&path, text)?;
            Ok(path.display().to_string())
        };
        let mut place = Place::with(&[
            "--tls-cert",
            &write("cert.pem", &proof.cert)?,
            "--tls-key",
            &write("key.pem", &proof.key)?,
            "--tls-client-ca",
            &write("ca.pem", &clients.pem)?,
        ])?;
        place.listen = Some("tcp:127.0.0.1:0".to_owned());
        Ok(Self {
            place,
            servers,
            clients,
            _files: files,
        })
    }

    async fn connect(&self, proof: Option<&Proof>) -> anyhow::Result<Channel> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.servers.pem))
            .domain_name("store.example");
        if let Some(proof) = proof {
            tls = tls.identity(Identity::from_pem(&proof.cert, &proof.key));
        }
        let endpoint = endpoint(&self.place, "https")?.tls_config(tls)?;
        Ok(endpoint.connect().await?)
    }
}

fn endpoint(place: &Place, scheme: &str) -> anyhow::Result<Endpoint> {
    let listen = place.told("listen")?;
    let address = listen.strip_prefix("tcp:").context("a port")?;
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?;
    // A caller that is refused is told at once; who is not told would wait for ever.
    Ok(endpoint.timeout(Duration::from_secs(20)))
}

/// Whether a channel counts a hit.
async fn counts(channel: Channel) -> anyhow::Result<()> {
    let mut service = SharedDataClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let operation = Operation::Admit(Admit {
        hit: vec![hit(1, 10, 1)],
    });
    let mut request = Request::new(Call {
        id: 1,
        operation: Some(operation),
    });
    let protocol = PROTOCOL.to_string().parse()?;
    request.metadata_mut().insert("porch-protocol", protocol);
    service.invoke(request).await?;
    Ok(())
}

#[tokio::test]
async fn only_a_caller_with_a_valid_certificate_is_served() -> anyhow::Result<()> {
    let guarded = Guarded::new()?;
    let _store = guarded.place.start()?;
    assert!(fs::read_to_string(guarded.place.log())?.contains("mutual-tls"));
    let good = guarded.clients.issue(|_| ())?;
    counts(guarded.connect(Some(&good)).await?).await?;

    let served = async |proof: Option<&Proof>| match guarded.connect(proof).await {
        // TLS 1.3: a client hears of its refusal when it first reads.
        Ok(channel) => counts(channel).await,
        Err(refused) => Err(refused),
    };
    let none = served(None).await;
    assert!(none.is_err(), "without a certificate");
    let other = Authority::new()?.issue(|_| ())?;
    assert!(served(Some(&other)).await.is_err(), "of another authority");
    let expired = guarded.clients.issue(|params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    })?;
    assert!(served(Some(&expired)).await.is_err(), "an expired one");
    let server_only = guarded.clients.issue(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    })?;
    assert!(
        served(Some(&server_only)).await.is_err(),
        "for servers only"
    );
    let plain = match endpoint(&guarded.place, "http")?.connect().await {
        Ok(channel) => counts(channel).await,
        Err(refused) => Err(refused.into()),
    };
    assert!(plain.is_err(), "plaintext");

    // None of them has counted, and who may is served as before.
    let listen = guarded.place.told("listen")?;
    let address = listen.strip_prefix("tcp:").context("a port")?;
    let mut silent = TcpStream::connect(address)?;
    silent.write_all(b"\x16")?;
    counts(guarded.connect(Some(&good)).await?).await?;
    let seen = crate::commands::json(&guarded.place, &["stats"])?;
    let totals = seen["totals"].as_array().context("totals")?;
    let admitted = totals.iter().find(|total| total["label"] == "admitted");
    assert_eq!(admitted.context("admits")?["value"], 2);
    Ok(())
}

#[tokio::test]
async fn a_port_without_tls_has_to_be_asked_for_and_is_told() -> anyhow::Result<()> {
    let mut place = Place::new()?;
    place.listen = Some("tcp:127.0.0.1:0".to_owned());
    let (status, told) = place.refused()?;
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(
        told.contains("expected --tls-cert, --tls-key and --tls-client-ca, or --insecure"),
        "{told}"
    );
    assert!(!place.data().exists(), "nothing was made");
    place.options = vec!["--insecure".to_owned()];
    let _store = place.start()?;
    let log = fs::read_to_string(place.log())?;
    assert!(log.contains("WARN") && log.contains("--insecure"), "{log}");
    counts(endpoint(&place, "http")?.connect().await?).await
}

#[test]
fn tls_options_that_do_not_fit_are_told() -> anyhow::Result<()> {
    let refused = |listen: Option<&str>, options: &[&str]| -> anyhow::Result<String> {
        let mut place = Place::with(options)?;
        place.listen = listen.map(str::to_owned);
        let (status, told) = place.refused()?;
        assert!(!status.success(), "{options:?}");
        Ok(told)
    };
    let port = Some("tcp:127.0.0.1:0");
    let told = refused(port, &["--tls-cert", "c", "--tls-key", "k"])?;
    assert!(told.contains("came --tls-cert and --tls-key"), "{told}");
    let told = refused(None, &["--insecure"])?;
    assert!(told.contains("--listen-mode"), "{told}");
    let missing = [
        "--tls-cert",
        "/none",
        "--tls-key",
        "/none",
        "--tls-client-ca",
        "/none",
    ];
    let told = refused(port, &missing)?;
    assert!(told.contains("--tls-cert: cannot read /none"), "{told}");
    let files = tempfile::tempdir()?;
    let path = files.path().join("garbage.pem");
    fs::write(&path, "garbage")?;
    let path = path.to_str().context("a path in UTF-8")?;
    let told = refused(
        port,
        &[
            "--tls-cert",
            path,
            "--tls-key",
            path,
            "--tls-client-ca",
            path,
        ],
    )?;
    assert!(
        told.contains("cannot use --tls-cert") && told.contains(path),
        "{told}"
    );
    let told = refused(port, &["--insecure", "--tls-cert", path])?;
    assert!(told.contains("cannot be used with"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_sockets_group_is_set_by_name_or_number() -> anyhow::Result<()> {
    let probe = tempfile::tempdir()?;
    let own = fs::metadata(probe.path())?.gid();
    let place = Place::with(&["--listen-group", &own.to_string(), "--listen-mode", "660"])?;
    let _store = place.start()?;
    assert_eq!(fs::metadata(place.socket())?.gid(), own);
    let place = Place::with(&["--listen-group", "no-such-group"])?;
    let (status, told) = place.refused()?;
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(
        told.contains("--listen-group") && told.contains("no-such-group"),
        "{told}"
    );
    if own == 0 {
        // Who may give files away can name another group.
        let place = Place::with(&["--listen-group", "daemon", "--listen-mode", "660"])?;
        let _store = place.start()?;
        assert_ne!(fs::metadata(place.socket())?.gid(), own);
    }
    Ok(())
}
