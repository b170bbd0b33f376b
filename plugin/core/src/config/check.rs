//! Checks that several parts of the configuration share. Each names the field that it refuses.

use super::document;
use super::error::ConfigError;
use crate::matching::{HeaderMatch, Match};

pub(super) const MINUTE_MS: u64 = 60_000;
pub(super) const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// How many values a list may have.
const VALUES_MAX: usize = 256;

/// A rule's or policy's name.
pub(super) fn name(path: &str, name: &str) -> Result<(), ConfigError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        Ok(())
    } else {
        Err(ConfigError::value(
            path,
            "1 to 64 of a-z, 0-9 and `-`",
            name,
        ))
    }
}

/// A header's name, in lower case. RFC 9110, section 5.1: a token.
pub(super) fn header_name(path: &str, text: &str) -> Result<String, ConfigError> {
    if (1..=128).contains(&text.len()) && text.bytes().all(is_token) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(ConfigError::value(
            path,
            "a header's name, 1 to 128 bytes",
            text,
        ))
    }
}

const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// A text of 1 to `most` bytes.
pub(super) fn text(path: &str, text: &str, most: usize) -> Result<String, ConfigError> {
    if (1..=most).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::value(
            path,
            &format!("1 to {most} bytes"),
            text,
        ))
    }
}

/// A duration in milliseconds.
pub(super) fn duration(
    path: &str,
    text: &str,
    least_ms: u64,
    most_ms: u64,
    range: &str,
) -> Result<u64, ConfigError> {
    let wrong = || {
        let expected = format!("a duration such as 250ms, 60s, 24h or 7d, {range}");
        ConfigError::value(path, &expected, text)
    };
    let ms = humantime::parse_duration(text)
        .map_err(|_| wrong())?
        .as_millis();
    let ms = u64::try_from(ms).map_err(|_| wrong())?;
    if (least_ms..=most_ms).contains(&ms) {
        Ok(ms)
    } else {
        Err(wrong())
    }
}

/// A list of response statuses.
pub(super) fn statuses(path: &str, statuses: Vec<u16>) -> Result<Vec<u16>, ConfigError> {
    let wrong = statuses
        .iter()
        .position(|status| !(200..=599).contains(status));
    match wrong.and_then(|index| statuses.get(index).map(|status| (index, status))) {
        Some((index, status)) => Err(ConfigError::value(
            format!("{path}[{index}]"),
            "a status from 200 to 599",
            status,
        )),
        None if statuses.len() > VALUES_MAX => Err(ConfigError::value(
            path,
            &format!("at most {VALUES_MAX} statuses"),
            statuses.len(),
        )),
        None => Ok(statuses),
    }
}

/// Which requests a rule or policy is for. `only` are the methods that it may name; all, when there is no list.
pub(super) fn matching(
    path: &str,
    written: &document::Matching,
    only: Option<&[&str]>,
) -> Result<Match, ConfigError> {
    let prefix = written.path_prefix.as_deref().unwrap_or("/");
    if !prefix.starts_with('/') || prefix.contains(['?', '#']) {
        let expected = "a path that starts with `/`, without a query";
        return Err(ConfigError::value(
            format!("{path}.path_prefix"),
            expected,
            prefix,
        ));
    }
    let authorities = match &written.authorities {
        None => None,
        Some(list) => {
            let path = format!("{path}.authorities");
            bounded(&path, list.len(), "authorities")?;
            let mut authorities = Vec::with_capacity(list.len());
            for (index, authority) in list.iter().enumerate() {
                let authority = text(&format!("{path}[{index}]"), authority, 255)?;
                authorities.push(authority.to_ascii_lowercase().into_bytes());
            }
            Some(authorities)
        }
    };
    Ok(Match {
        path_prefix: prefix.as_bytes().to_vec(),
        methods: methods(&format!("{path}.methods"), written.methods.as_deref(), only)?,
        authorities,
        headers: header_matches(&format!("{path}.headers"), &written.headers)?,
        named_by_route: written.named_by_route,
    })
}

/// Conditions on header values.
pub(super) fn header_matches(
    path: &str,
    written: &[document::HeaderMatch],
) -> Result<Vec<HeaderMatch>, ConfigError> {
    let mut matches = Vec::with_capacity(written.len());
    for (index, written) in written.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let values = match &written.values {
            None => None,
            Some(values) => {
                bounded(&format!("{path}.values"), values.len(), "values")?;
                Some(
                    values
                        .iter()
                        .map(|value| value.as_bytes().to_vec())
                        .collect(),
                )
            }
        };
        let name = header_name(&format!("{path}.name"), &written.name)?;
        matches.push(HeaderMatch { name, values });
    }
    Ok(matches)
}

fn methods(
    path: &str,
    written: Option<&[String]>,
    only: Option<&[&str]>,
) -> Result<Option<Vec<Vec<u8>>>, ConfigError> {
    let all = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let Some(written) = written else {
        return Ok(only.map(all));
    };
    bounded(path, written.len(), "methods")?;
    for (index, method) in written.iter().enumerate() {
        let known = match only {
            Some(all) => all.contains(&method.as_str()),
            None => !method.is_empty() && method.bytes().all(is_token),
        };
        if !known {
            let expected = only.map_or_else(
                || "a method".to_owned(),
                |all| format!("one of {}", all.join(", ")),
            );
            return Err(ConfigError::value(
                format!("{path}[{index}]"),
                &expected,
                method,
            ));
        }
    }
    Ok(Some(
        written
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect(),
    ))
}

fn bounded(path: &str, came: usize, what: &str) -> Result<(), ConfigError> {
    if (1..=VALUES_MAX).contains(&came) {
        Ok(())
    } else {
        Err(ConfigError::value(
            path,
            &format!("1 to {VALUES_MAX} {what}"),
            came,
        ))
    }
}
