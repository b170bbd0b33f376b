//! The harness itself: the shipped configuration without the plugin is a proxy that passes everything.

use porch_host::client::Request;
use porch_host::harness::{Artifacts, Envoy, EnvoyConfig, Upstream};

#[test]
fn bare_envoy_passes_requests() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let upstream = Upstream::start(&Artifacts::find_host()?, directory.path())?;
    let mut config = EnvoyConfig::shipped()?;
    config.remove_plugin()?;
    config.set_upstream(upstream.address)?;
    let binary = Artifacts::find_envoy()?;
    let mut envoy = Envoy::new(&binary, directory.path(), config, 2);
    envoy.start()?;

    let answer = Request::post("/orders", "tea").send(envoy.address)?;
    assert_eq!(
        (answer.status, answer.header("server")),
        (201, Some("envoy"))
    );
    assert_eq!(upstream.rows()?, 1);
    assert_eq!(envoy.stat("cluster.upstream.upstream_rq_total")?, 1);
    assert_eq!(envoy.connections_by_worker()?.iter().sum::<u64>(), 1);

    let address = envoy.address;
    envoy.kill()?;
    Request::get("/").send(address).expect_err("nobody listens");
    envoy.start()?;
    assert_eq!(envoy.address, address, "a restart keeps the port");
    assert_eq!(Request::get("/").send(address)?.status, 200);
    Ok(())
}

#[test]
fn a_refused_configuration_is_an_error_with_the_reason() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut config = EnvoyConfig::shipped()?;
    config.remove_plugin()?;
    config.add_route(&serde_json::json!({"match": {"prefix": "/"}, "rute": {}}))?;
    let binary = Artifacts::find_envoy()?;
    let error = Envoy::new(&binary, directory.path(), config, 1)
        .start()
        .expect_err("no such field");
    assert!(error.to_string().contains("rute"), "{error}");
    Ok(())
}
