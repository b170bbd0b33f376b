//! docs/configuration.md names every field and every named value, no other, with its default, bounds and an example
//! that is accepted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use porch_core::config::Settings;
use porch_core::config::schema::schema;
use serde_json::{Value, json};

use crate::bounds;
use crate::fields::{Field, below, fields};
use crate::page::{Table, blocks, quoted, sections, tables, text, yaml};
use crate::schema::is_taken;

const PAGE: &str = "docs/configuration.md";

/// A field's or a named value's line in the page.
struct Entry {
    columns: Vec<String>,
    row: Vec<String>,
}

impl Entry {
    fn cell(&self, column: &str) -> anyhow::Result<&str> {
        let table = Table {
            columns: self.columns.clone(),
            rows: vec![],
        };
        table.cell(&self.row, column)
    }
}

/// Every entry by its path. A section's heading names the places that its tables are about.
fn entries() -> anyhow::Result<BTreeMap<String, Entry>> {
    let mut entries = BTreeMap::new();
    for section in sections(&text(PAGE)?) {
        for table in tables(&section.body) {
            let is_about_fields = ["field", "value"].contains(&table.columns[0].as_str());
            for row in table.rows.iter().filter(|_| is_about_fields) {
                let name = quoted(&row[0])
                    .pop()
                    .with_context(|| format!("no name in {row:?}"))?;
                for place in quoted(&section.heading) {
                    let entry = Entry {
                        columns: table.columns.clone(),
                        row: row.clone(),
                    };
                    let path = below(&place, &name);
                    let twice = entries.insert(path.clone(), entry).is_some();
                    assert!(!twice, "{path} is described twice");
                }
            }
        }
    }
    Ok(entries)
}

/// Every field and named value of the schema, with its entry.
fn described() -> anyhow::Result<Vec<(String, Field, Entry)>> {
    let mut entries = entries()?;
    let mut fields = fields(&schema())?;
    fields.remove(".");
    let known: BTreeSet<&String> = fields.keys().collect();
    let written: BTreeSet<&String> = entries.keys().collect();
    let missing: Vec<_> = known.difference(&written).collect();
    let unknown: Vec<_> = written.difference(&known).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "{PAGE}\n  does not describe {missing:?}\n  describes what there is not: {unknown:?}"
    );
    let with_entry = fields.into_iter().filter_map(|(path, field)| {
        let entry = entries.remove(&path)?;
        Some((path, field, entry))
    });
    Ok(with_entry.collect())
}

#[test]
fn every_field_is_described_and_no_other() -> anyhow::Result<()> {
    for (path, field, entry) in described()? {
        let of = || format!("{PAGE}: {path}");
        entry.cell("meaning").with_context(of)?;
        assert!(
            field.schema.get("description").is_some(),
            "{path}: no doc comment"
        );
        if !field.is_value {
            entry.cell("type").with_context(of)?;
            is_default(&field, entry.cell("default").with_context(of)?).with_context(of)?;
            are_bounds(&field, entry.cell("bounds").with_context(of)?).with_context(of)?;
        }
    }
    Ok(())
}

fn is_default(field: &Field, cell: &str) -> anyhow::Result<()> {
    assert_eq!(
        field.required,
        cell == "required",
        "required or not: {field:?}"
    );
    if let Some(default) = field.schema.get("default") {
        let written = quoted(cell).first().map(|text| yaml(text)).transpose()?;
        assert_eq!(written.as_ref(), Some(default), "the default");
    }
    Ok(())
}

fn are_bounds(field: &Field, cell: &str) -> anyhow::Result<()> {
    let words: Vec<&str> = cell
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .collect();
    for bound in bounds::written(&field.schema)? {
        anyhow::ensure!(
            words.contains(&bound.as_str()),
            "expected the bound {bound}, got {cell}"
        );
    }
    Ok(())
}

#[test]
fn every_example_is_accepted() -> anyhow::Result<()> {
    let root = schema();
    for (path, field, entry) in described()? {
        let cell = entry.cell("example").with_context(|| path.clone())?;
        let example = quoted(cell)
            .pop()
            .with_context(|| format!("{path}: no example in {cell}"))?;
        let example = yaml(&example)?;
        let mut own = field.schema.clone();
        if field.is_value {
            let name = path.rsplit('.').next().unwrap_or_default();
            let named = example == name || example.get(name).is_some();
            assert!(
                named,
                "{path}: expected an example of this value, got {example}"
            );
        }
        let value = if field.is_value && example.is_object() {
            example
                .as_object()
                .and_then(|of| of.values().next())
                .cloned()
                .unwrap_or_default()
        } else {
            example
        };
        own["$defs"] = root["$defs"].clone();
        let validator = jsonschema::validator_for(&own)?;
        if let Err(error) = validator.validate(&value) {
            anyhow::bail!("{path}: the schema refuses the example {value}: {error}");
        }
    }
    Ok(())
}

/// The page's blocks that are configurations: all but those of Envoy's own routes.
fn examples() -> anyhow::Result<Vec<Value>> {
    let documents = blocks(&text(PAGE)?, "yaml")
        .iter()
        .map(|block| yaml(block))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(documents
        .into_iter()
        .filter(|document| document.get("routes").is_none())
        .collect())
}

#[test]
fn every_block_is_accepted() -> anyhow::Result<()> {
    let validator = jsonschema::validator_for(&schema())?;
    let examples = examples()?;
    assert!(examples.len() >= 3, "there are examples");
    for mut example in examples {
        if example.get("store").is_none() {
            example["store"] = json!({"cluster": "porch_store", "namespace": "shop"});
        }
        is_taken(&validator, &example)?;
    }
    Ok(())
}

/// The first block: it has every field.
pub(crate) fn complete_example() -> anyhow::Result<Value> {
    examples()?.into_iter().next().context("no example")
}

#[test]
fn the_complete_example_has_every_field() -> anyhow::Result<()> {
    let example = complete_example()?;
    let mut present = BTreeSet::new();
    names(&example, "", &mut present);
    // A list's elements, and the ways to execute, have the same fields wherever they stand.
    let tail = |path: &str| {
        let mut parts: Vec<&str> = path.rsplit('.').take(2).collect();
        parts.reverse();
        parts.join(".")
    };
    let present: BTreeSet<String> = present.iter().map(|path| tail(path)).collect();
    for (path, field) in fields(&schema())? {
        if !field.is_value && path != "." {
            assert!(
                present.contains(&tail(&path)),
                "{path} is not in the complete example"
            );
        }
    }
    Ok(())
}

fn names(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(of) => {
            for (name, value) in of {
                let path = below(path, name);
                names(value, &path, all);
                all.insert(path);
            }
        }
        Value::Array(of) => {
            for value in of {
                names(value, &format!("{path}[]"), all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_refusal_reads_as_shown() -> anyhow::Result<()> {
    let page = text(PAGE)?;
    let shown = blocks(&page, "text")
        .into_iter()
        .find(|block| block.starts_with("{name: "));
    let shown = shown.context("no block of rules and refusals")?;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.len() >= 8, "some are shown");
    for pair in lines.chunks(2) {
        let [rule, refusal] = pair else {
            anyhow::bail!("a rule without its refusal: {pair:?}");
        };
        let store = json!({"cluster": "porch_store", "namespace": "shop"});
        let document = json!({"store": store, "limiter": {"rules": [yaml(rule)?]}});
        let error = Settings::parse(document.to_string().as_bytes())
            .expect_err("refused")
            .to_string();
        let refusal = refusal.trim_start();
        let is_as_shown = refusal
            .strip_suffix(" ...")
            .map_or(error == refusal, |start| error.starts_with(start));
        assert!(is_as_shown, "{rule}\n  shown {refusal}\n  got   {error}");
    }
    Ok(())
}
