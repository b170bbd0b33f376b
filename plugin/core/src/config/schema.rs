//! The configuration's JSON Schema, made of the document's types.

use serde_json::Value;

use super::document::Document;

/// The schema of one instance's configuration, in JSON Schema 2020-12.
pub fn schema() -> Value {
    schemars::schema_for!(Document).to_value()
}
