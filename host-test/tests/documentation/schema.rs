//! docs/configuration.schema.json is what the document's types say, and what is shipped meets it. `PORCH_BLESS=1 cargo
//! test -p porch-host --test documentation` writes it anew.

use std::{env, fs};

use anyhow::Context as _;
use jsonschema::Validator;
use porch_core::config::Settings;
use porch_core::config::schema::schema;
use porch_host::harness::EnvoyConfig;
use serde_json::{Value, json};

use crate::page::{blocks, file, text, yaml};

const CHECKED_IN: &str = "docs/configuration.schema.json";

/// Both the schema and the parser take it.
pub(crate) fn is_taken(validator: &Validator, document: &Value) -> anyhow::Result<()> {
    if let Err(error) = validator.validate(document) {
        anyhow::bail!(
            "the schema refuses {document}: {}: {error}",
            error.instance_path()
        );
    }
    Settings::parse(document.to_string().as_bytes())
        .with_context(|| format!("the parser refuses {document}"))?;
    Ok(())
}

#[test]
fn the_schema_is_fresh() -> anyhow::Result<()> {
    let made = format!("{}\n", serde_json::to_string_pretty(&schema())?);
    if env::var_os("PORCH_BLESS").is_some() {
        fs::write(file(CHECKED_IN), &made)?;
    }
    assert!(
        text(CHECKED_IN)? == made,
        "{CHECKED_IN} is stale: run `PORCH_BLESS=1 cargo test -p porch-host --test documentation` and commit it"
    );
    Ok(())
}

#[test]
fn what_is_shipped_meets_it() -> anyhow::Result<()> {
    let validator = jsonschema::validator_for(&schema())?;
    let mut shipped = EnvoyConfig::shipped()?;
    is_taken(&validator, &shipped.limiter()?.clone())?;
    is_taken(&validator, &shipped.idempotency()?.clone())?;
    Ok(())
}

#[test]
fn what_readme_shows_meets_it() -> anyhow::Result<()> {
    let validator = jsonschema::validator_for(&schema())?;
    let readme = text("README.md")?;
    let mut shown = 0;
    for block in blocks(&readme, "yaml") {
        for filter in yaml(&block)?["http_filters"]
            .as_array()
            .into_iter()
            .flatten()
        {
            if let Some(value) = filter.pointer("/typed_config/config/configuration/value") {
                is_taken(&validator, value)?;
                shown += 1;
            }
        }
    }
    assert_eq!(shown, 2, "one for each instance");
    Ok(())
}

#[test]
fn a_typo_meets_it_not() -> anyhow::Result<()> {
    let validator = jsonschema::validator_for(&schema())?;
    let store = json!({"cluster": "s", "namespace": "n"});
    let with = |rule: Value| json!({"store": store, "limiter": {"rules": [rule]}});
    let good = json!({"name": "r", "quota": 1, "window": "1s"});
    is_taken(&validator, &with(good))?;
    for wrong in [
        with(json!({"name": "r", "quota": 1, "quotas": 1, "window": "1s"})),
        with(json!({"name": "r", "quota": 1, "window": 1})),
        with(json!({"name": "r", "quota": 1, "window": "1s", "key": ["address"]})),
        json!({"store": store}),
    ] {
        assert!(!validator.is_valid(&wrong), "{wrong}");
        Settings::parse(wrong.to_string().as_bytes()).expect_err("the parser refuses it too");
    }
    Ok(())
}
