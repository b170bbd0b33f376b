//! Every field and every named value of the configuration, as the schema has them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Map, Value};

/// A field, for example `store.timeout`, or a value that has a name, for example `limiter.on_store_failure.local`.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its own schema.
    pub(crate) schema: Value,
    /// A value of the enumeration that stands at the path without its last part.
    pub(crate) is_value: bool,
    pub(crate) required: bool,
}

/// All of them by path. The elements of a list are `[]`.
pub(crate) fn fields(schema: &Value) -> anyhow::Result<BTreeMap<String, Field>> {
    let mut all = BTreeMap::new();
    let whole = Field {
        schema: schema.clone(),
        is_value: false,
        required: true,
    };
    walk(schema, schema, "", &mut all)?;
    all.insert(".".to_owned(), whole);
    Ok(all)
}

/// A schema with what it refers to put in; its own words go before those.
fn resolved(root: &Value, schema: &Value) -> anyhow::Result<Value> {
    let mut own = schema
        .as_object()
        .context("a schema that is no mapping")?
        .clone();
    // An optional field of another type is that, or null.
    if let Some(Value::Array(of)) = own.get("anyOf")
        && let [only, null] = of.as_slice()
        && null.get("type") == Some(&Value::from("null"))
    {
        let only = only
            .as_object()
            .context("a schema that is no mapping")?
            .clone();
        own.remove("anyOf");
        own.extend(only);
    }
    let Some(reference) = own.remove("$ref") else {
        return Ok(Value::Object(own));
    };
    let pointer = reference
        .as_str()
        .and_then(|text| text.strip_prefix('#'))
        .context("a reference")?;
    let of = root
        .pointer(pointer)
        .with_context(|| format!("nothing at {pointer}"))?;
    let Value::Object(mut whole) = resolved(root, of)? else {
        return Ok(of.clone());
    };
    whole.extend(own);
    Ok(Value::Object(whole))
}

fn walk(
    root: &Value,
    schema: &Value,
    path: &str,
    all: &mut BTreeMap<String, Field>,
) -> anyhow::Result<()> {
    let schema = resolved(root, schema)?;
    if let Some(items) = schema.get("items") {
        walk(root, items, &format!("{path}[]"), all)?;
    }
    properties(root, &schema, path, false, all)?;
    for variant in schema
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(Value::String(name)) = variant.get("const") {
            let value = Field {
                schema: schema.clone(),
                is_value: true,
                required: false,
            };
            all.insert(below(path, name), value);
        }
        properties(root, variant, path, true, all)?;
    }
    Ok(())
}

fn properties(
    root: &Value,
    schema: &Value,
    path: &str,
    is_value: bool,
    all: &mut BTreeMap<String, Field>,
) -> anyhow::Result<()> {
    let none = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    for (name, of) in properties {
        let required = schema.get("required").and_then(Value::as_array);
        let mut own = resolved(root, of)?;
        if let (true, Some(description)) = (is_value, schema.get("description")) {
            own["description"] = description.clone();
        }
        let field = Field {
            schema: own,
            is_value,
            required: required.is_some_and(|names| names.iter().any(|known| known == name)),
        };
        let path = below(path, name);
        walk(root, of, &path, all)?;
        all.insert(path, field);
    }
    Ok(())
}

pub(crate) fn below(path: &str, name: &str) -> String {
    if path.is_empty() || path == "." {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
