//! The bounds that the schema states are those that are enforced: at each a configuration is accepted, beyond it refused.

use anyhow::Context as _;
use porch_core::config::Settings;
use porch_core::config::schema::schema;
use serde_json::{Map, Value, json};

use crate::fields::fields;
use crate::reference::complete_example;

/// A value for a field, and whether it is accepted.
type Trial = (Value, bool);

/// The bounds of a field as they are written: numbers, and durations with their units.
pub(crate) fn written(schema: &Value) -> anyhow::Result<Vec<String>> {
    let mut bounds = vec![];
    for of in [Some(schema), schema.get("items")].into_iter().flatten() {
        for word in [
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
        ] {
            bounds.extend(of.get(word).map(ToString::to_string));
        }
        if let Some(most) = most_of_pattern(of) {
            bounds.push(most.to_string());
        }
    }
    bounds.extend(
        durations(schema)?
            .into_iter()
            .flat_map(|(least, most)| [least, most]),
    );
    Ok(bounds)
}

/// The longest text of a pattern that ends with `{1,N}`.
fn most_of_pattern(schema: &Value) -> Option<usize> {
    let pattern = schema.get("pattern")?.as_str()?;
    pattern
        .rsplit_once("{1,")?
        .1
        .strip_suffix("}$")?
        .parse()
        .ok()
}

/// The shortest and the longest duration, as the description has them.
fn durations(schema: &Value) -> anyhow::Result<Option<(String, String)>> {
    let description = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let Some(at) = description.find("a duration ") else {
        return Ok(None);
    };
    let mut words = description[at..].split_whitespace();
    let mut after = |word: &str| {
        words.by_ref().find(|other| *other == word);
        let next = words
            .next()
            .map(|next| next.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()));
        next.map(str::to_owned)
            .with_context(|| format!("nothing after `{word}` in: {description}"))
    };
    Ok(Some((after("from")?, after("to")?)))
}

fn trials(schema: &Value, now: &Value) -> anyhow::Result<Vec<Trial>> {
    let mut trials = vec![];
    let number = |of: &Value, word: &str| of.get(word).and_then(Value::as_i64);
    let size = |of: &Value, word: &str| {
        of.get(word)
            .and_then(Value::as_u64)
            .and_then(|size| usize::try_from(size).ok())
    };
    for (word, step) in [("minimum", -1), ("maximum", 1)] {
        if let Some(bound) = number(schema, word) {
            trials.extend([(json!(bound), true), (json!(bound + step), false)]);
        }
        if let Some(bound) = schema.get("items").and_then(|items| number(items, word)) {
            trials.extend([(json!([bound]), true), (json!([bound + step]), false)]);
        }
    }
    if let Some(most) = size(schema, "maxLength").or_else(|| most_of_pattern(schema)) {
        trials.extend([
            (json!("x"), true),
            (json!("x".repeat(most)), true),
            (json!("x".repeat(most + 1)), false),
            (json!(""), false),
        ]);
    }
    if let Some(most) = schema
        .get("items")
        .and_then(|items| size(items, "maxLength").or_else(|| most_of_pattern(items)))
    {
        trials.extend([
            (json!(["x".repeat(most)]), true),
            (json!(["x".repeat(most + 1)]), false),
            (json!([""]), false),
        ]);
    }
    if let Some(most) = size(schema, "maxItems") {
        let least = size(schema, "minItems").unwrap_or(0);
        let of = |count| repeated(now, count);
        trials.extend([
            (of(most)?, true),
            (of(most + 1)?, false),
            (of(least)?, true),
        ]);
        if let Some(fewer) = least.checked_sub(1) {
            trials.push((of(fewer)?, false));
        }
    }
    if let Some((least, most)) = durations(schema)? {
        if least.starts_with(|letter: char| letter.is_ascii_digit()) {
            trials.extend([(json!(least), true), (json!(shorter(&least)?), false)]);
        }
        trials.extend([(json!(most), true), (json!(format!("{most} 1s")), false)]);
    }
    Ok(trials)
}

fn shorter(duration: &str) -> anyhow::Result<String> {
    if let Some(number) = duration.strip_suffix("ms") {
        return Ok(format!("{}ms", number.parse::<u64>()? - 1));
    }
    let number: u64 = duration.strip_suffix('s').context("seconds")?.parse()?;
    Ok(format!("{}ms", number * 1_000 - 1))
}

/// A list of so many elements like its first one, with names of their own.
fn repeated(list: &Value, count: usize) -> anyhow::Result<Value> {
    let first = list
        .get(0)
        .context("expected a list with an element in the complete example")?;
    let named = |index: usize| {
        let mut element = first.clone();
        if element.get("name").is_some() {
            element["name"] = json!(format!("n-{index}"));
        }
        element
    };
    Ok((0..count).map(named).collect())
}

/// Every place in a document that a path stands for.
fn places(value: &Value, path: &str) -> Vec<String> {
    let mut places = vec![(String::new(), value)];
    for part in path.split('.') {
        let (name, lists) = part
            .split_once("[]")
            .map_or((part, ""), |(name, _)| (name, "[]"));
        places = places
            .into_iter()
            .filter_map(|(place, value)| Some((format!("{place}/{name}"), value.get(name)?)))
            .flat_map(|(place, value)| match value {
                Value::Array(of) if lists == "[]" => of
                    .iter()
                    .enumerate()
                    .map(|(index, value)| (format!("{place}/{index}"), value))
                    .collect(),
                value => vec![(place, value)],
            })
            .collect();
    }
    places.into_iter().map(|(place, _)| place).collect()
}

/// What must change with a field, so that nothing but its own bound refuses it.
fn with(document: &Value, place: &str, value: &Value) -> anyhow::Result<Value> {
    let mut document = document.clone();
    let (parent, name) = place.rsplit_once('/').context("a place")?;
    let parent = document.pointer_mut(parent).context("a parent")?;
    if let Some(of) = parent.as_object_mut() {
        beside(of, name);
        of.insert(name.to_owned(), value.clone());
    } else {
        *parent
            .get_mut(name.parse::<usize>()?)
            .context("an element")? = value.clone();
    }
    Ok(document)
}

fn beside(of: &mut Map<String, Value>, name: &str) {
    match name {
        "ttl" => {
            of.remove("remember");
        }
        "max_held_bytes" => {
            of.insert("max_request_bytes".into(), json!(1));
        }
        _ => {}
    }
}

#[test]
fn the_bounds_are_those_of_the_schema() -> anyhow::Result<()> {
    let validator = jsonschema::validator_for(&schema())?;
    let document = complete_example()?;
    let mut tried = 0;
    for (path, field) in fields(&schema())? {
        for place in places(&document, &path) {
            let now = document.pointer(&place).context("a value")?;
            for (value, accepted) in trials(&field.schema, now)? {
                let trial = with(&document, &place, &value)?;
                let parsed = Settings::parse(trial.to_string().as_bytes());
                let shown = value.to_string().chars().take(60).collect::<String>();
                assert_eq!(
                    parsed.is_ok(),
                    accepted,
                    "{place}: {shown}: {:?}",
                    parsed.err()
                );
                // The schema says of a duration only what it looks like.
                if durations(&field.schema)?.is_none() {
                    assert_eq!(
                        validator.is_valid(&trial),
                        accepted,
                        "{place}: {shown}: the schema"
                    );
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 150, "{tried} were tried");
    Ok(())
}

#[test]
fn the_defaults_are_those_of_the_schema() -> anyhow::Result<()> {
    let least = json!({
        "store": {"cluster": "s", "namespace": "n"},
        "limiter": {"rules": [{"name": "r", "quota": 7, "window": "60s"}]},
        "idempotency": {
            "execute": {"detached": {"cluster": "e", "timeout": "30s"}},
            "policies": [{"name": "p", "principal": "none"}],
        },
    });
    let mut filled = least.clone();
    let mut added = 0;
    for (path, field) in fields(&schema())? {
        let Some(default) = field.schema.get("default") else {
            continue;
        };
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", &path));
        let parents = if parent.is_empty() {
            vec![String::new()]
        } else {
            places(&filled, parent)
        };
        for parent in parents {
            if let Some(of) = filled.pointer_mut(&parent).and_then(Value::as_object_mut) {
                of.insert(name.to_owned(), default.clone());
                added += 1;
            }
        }
    }
    assert!(added > 25, "{added} defaults");
    let settings = |document: &Value| -> anyhow::Result<String> {
        Ok(format!(
            "{:#?}",
            Settings::parse(document.to_string().as_bytes())?
        ))
    };
    assert_eq!(settings(&least)?, settings(&filled)?);
    Ok(())
}
