//! Which header lines of an answer are kept and replayed: all, less a named list.

use crate::http::Field;

/// Hop-by-hop fields (RFC 9110, section 7.6.1), and length, which the proxy computes anew.
const HOP: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that belong to the exchange in which they were sent, and are made anew for a replay.
const EXCHANGE: [&str; 9] = [
    "date",
    "ratelimit",
    "ratelimit-policy",
    "server",
    "traceparent",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-request-id",
];

/// The field that says that an answer is a replay. Only porch sets it.
pub const REPLAYED: &str = "idempotent-replayed";

/// The lines of upstream's answer that the first caller gets: all but those of the hop, and our own.
pub fn first_answer(fields: Vec<Field>) -> Vec<Field> {
    let nominated = nominated(&fields);
    retain(fields, |name| !of_the_hop(name, &nominated))
}

/// The lines of the first answer that a replay repeats. A cookie is of one exchange too, unless it is to be kept.
pub fn replayed(fields: &[Field], set_cookie: bool) -> Vec<Field> {
    fields
        .iter()
        .filter(|field| !among(&field.name, &EXCHANGE) && (set_cookie || !field.is("set-cookie")))
        .cloned()
        .collect()
}

/// The lines of a request that go to upstream through the execute cluster.
pub fn executed(fields: &[Field]) -> Vec<Field> {
    let nominated = nominated(fields);
    fields
        .iter()
        .filter(|field| !of_the_hop(&field.name, &nominated) && *field.name != *b"expect")
        .cloned()
        .collect()
}

fn of_the_hop(name: &[u8], nominated: &[Vec<u8>]) -> bool {
    among(name, &HOP)
        || nominated.iter().any(|other| other == name)
        || name == REPLAYED.as_bytes()
        || name == b":status"
        || name.starts_with(b"x-envoy-")
        || name.starts_with(b"x-porch-")
}

/// Names that a Connection field makes hop-by-hop.
fn nominated(fields: &[Field]) -> Vec<Vec<u8>> {
    crate::http::values(fields, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect()
}

fn among(name: &[u8], list: &[&str]) -> bool {
    list.iter().any(|known| known.as_bytes() == name)
}

fn retain(mut fields: Vec<Field>, keep: impl Fn(&[u8]) -> bool) -> Vec<Field> {
    fields.retain(|field| keep(&field.name));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pairs: &[(&'static str, &'static str)]) -> Vec<Field> {
        pairs
            .iter()
            .map(|(name, value)| Field::new(name, value.as_bytes()))
            .collect()
    }

    #[test]
    fn order_and_repeats_are_kept() {
        let all = lines(&[
            (":status", "201"),
            ("x-item", "2"),
            ("date", "now"),
            ("location", "/7"),
            ("x-item", "1"),
            ("set-cookie", "a=b"),
            ("x-empty", ""),
            ("transfer-encoding", "chunked"),
            ("idempotent-replayed", "true"),
            ("x-porch-outcome", "forged"),
            ("connection", "X-Hop, close"),
            ("x-hop", "1"),
        ]);
        let first = first_answer(all);
        assert_eq!(
            first,
            lines(&[
                ("x-item", "2"),
                ("date", "now"),
                ("location", "/7"),
                ("x-item", "1"),
                ("set-cookie", "a=b"),
                ("x-empty", "")
            ])
        );
        assert_eq!(
            replayed(&first, false),
            lines(&[
                ("x-item", "2"),
                ("location", "/7"),
                ("x-item", "1"),
                ("x-empty", "")
            ])
        );
    }

    #[test]
    fn cookies_are_kept_when_they_are_to_be() {
        let two = lines(&[
            ("set-cookie", "a=1; expires=Tue, 01 Dec 2026 00:00:00 GMT"),
            ("set-cookie", "b=2"),
        ]);
        assert_eq!(replayed(&two, true), two);
        assert_eq!(replayed(&two, false), []);
    }

    #[test]
    fn a_request_goes_on_with_its_key_and_without_forgeries() {
        let sent = executed(&lines(&[
            (":method", "POST"),
            ("idempotency-key", "k"),
            ("content-length", "3"),
            ("expect", "100-continue"),
            ("x-porch-outcome", "forged"),
            ("idempotent-replayed", "true"),
            ("x-forwarded-for", "1.2.3.4"),
        ]));
        assert_eq!(
            sent,
            lines(&[
                (":method", "POST"),
                ("idempotency-key", "k"),
                ("x-forwarded-for", "1.2.3.4")
            ])
        );
    }
}
