//! The configuration as the host hands it over: JSON text, or a `google.protobuf.Struct` in its binary form (which is
//! what Envoy 1.40 makes of a Struct in its configuration).

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::{Map, Number, Value as Json};

/// The configuration as JSON text. What is neither form is handed on as it came: the parser will say what is wrong.
pub(crate) fn as_json(written: Vec<u8>) -> Vec<u8> {
    if serde_json::from_slice::<serde::de::IgnoredAny>(&written).is_ok() {
        return written;
    }
    match Struct::decode(written.as_slice()) {
        Ok(document) if !document.fields.is_empty() => object(document).to_string().into_bytes(),
        Ok(_) | Err(_) => written,
    }
}

fn object(document: Struct) -> Json {
    Json::Object(
        document
            .fields
            .into_iter()
            .map(|(name, of)| (name, value(of)))
            .collect::<Map<_, _>>(),
    )
}

fn value(of: Value) -> Json {
    match of.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(truth)) => Json::Bool(truth),
        Some(Kind::StringValue(text)) => Json::String(text),
        Some(Kind::NumberValue(number)) => self::number(number),
        Some(Kind::StructValue(document)) => object(document),
        Some(Kind::ListValue(list)) => Json::Array(list.values.into_iter().map(value).collect()),
    }
}

/// A Struct has only floating-point numbers: a whole one is meant as an integer.
fn number(number: f64) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole, and within the range of exact integers"
        )]
        Json::from(number as i64)
    } else {
        Number::from_f64(number).map_or(Json::Null, Json::Number)
    }
}
