//! What became of an execution, by what is certain: released, kept, or unknown.

use crate::http::{self, Field, Response};

/// What the adapter saw of a detached execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The proxy refused to dispatch it: nothing was sent.
    NotDispatched,
    /// The proxy gave up without a whole answer: reset in mid-body, its own timeout, or too large an answer.
    Failed,
    /// A whole answer came: upstream's, or one that the proxy made in its place.
    Answered {
        /// With the marker fields of the inner hop, if it set them.
        response: Response,
        /// The answer had trailers, which cannot be passed on.
        trailers: bool,
    },
}

/// The inner hop's word for how the answer came about: Envoy's response code details.
const OUTCOME: &str = "x-porch-outcome";
/// How many bytes of the request were sent to upstream.
const SENT: &str = "x-porch-sent";

/// What is certain about an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Upstream did not process the request: a retry executes.
    NotProcessed,
    /// Upstream answered.
    Processed,
    /// It cannot be known.
    Unknown,
}

/// Judges an answer by its status and the inner hop's marker. The first row that matches holds.
pub fn certainty(status: u16, fields: &[Field], release_statuses: &[u16]) -> Certainty {
    let nothing_sent = single(fields, SENT).is_some_and(|sent| sent == b"0" || sent == b"-");
    match single(fields, OUTCOME) {
        Some(b"via_upstream") => answered(status, fields, release_statuses),
        Some(_) if nothing_sent => Certainty::NotProcessed,
        Some(_) | None => Certainty::Unknown,
    }
}

/// Judges a response of a request that was forwarded, by its status and the proxy's word for how it came about (Envoy's
/// response code details). Only one attempt was made.
pub fn forwarded_certainty(
    status: u16,
    fields: &[Field],
    details: Option<&[u8]>,
    release_statuses: &[u16],
) -> Certainty {
    match details {
        Some(b"via_upstream") => answered(status, fields, release_statuses),
        Some(details)
            if NOTHING_SENT
                .iter()
                .any(|known| details.starts_with(known.as_bytes())) =>
        {
            Certainty::NotProcessed
        }
        Some(_) | None => Certainty::Unknown,
    }
}

/// How Envoy's details begin when nothing was sent to upstream, or upstream said that it did not look at it.
const NOTHING_SENT: [&str; 10] = [
    "cluster_not_found",
    "direct_response",
    "maintenance_mode",
    "no_healthy_upstream",
    "route_not_found",
    "upstream_reset_before_response_started{connection_timeout",
    "upstream_reset_before_response_started{local_connection_failure",
    "upstream_reset_before_response_started{overflow",
    "upstream_reset_before_response_started{remote_connection_failure",
    "upstream_reset_before_response_started{remote_refused_stream_reset",
];

fn answered(status: u16, fields: &[Field], release_statuses: &[u16]) -> Certainty {
    if release_statuses.contains(&status) || (status == 503 && has(fields, "retry-after")) {
        Certainty::NotProcessed
    } else if matches!(status, 502..=504) {
        Certainty::Unknown
    } else {
        Certainty::Processed
    }
}

fn has(fields: &[Field], name: &str) -> bool {
    fields.iter().any(|field| field.is(name))
}

/// The marker's value; the inner hop overwrites what upstream may have forged, so there is one line or none.
fn single<'a>(fields: &'a [Field], name: &'a str) -> Option<&'a [u8]> {
    let mut values = http::values(fields, name);
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::Certainty::{NotProcessed, Processed, Unknown};
    use super::*;

    const RELEASE: [u16; 6] = [401, 407, 408, 421, 425, 429];

    fn judged(
        status: u16,
        outcome: Option<&'static str>,
        sent: &'static str,
        retry_after: bool,
    ) -> Certainty {
        let mut fields = vec![];
        if let Some(outcome) = outcome {
            fields.push(Field::new(OUTCOME, outcome.as_bytes()));
            fields.push(Field::new(SENT, sent.as_bytes()));
        }
        if retry_after {
            fields.push(Field::new("retry-after", &b"1"[..]));
        }
        certainty(status, &fields, &RELEASE)
    }

    #[test]
    fn outcomes_by_certainty() {
        let upstream = Some("via_upstream");
        for (status, outcome, sent, retry_after, expected) in [
            (201, upstream, "120", false, Processed),
            (404, upstream, "120", false, Processed),
            (500, upstream, "120", false, Processed),
            (429, upstream, "120", false, NotProcessed),
            (401, upstream, "120", false, NotProcessed),
            (503, upstream, "120", true, NotProcessed),
            (503, upstream, "120", false, Unknown),
            (502, upstream, "120", true, Unknown),
            (504, upstream, "120", false, Unknown),
            (
                503,
                Some("upstream_reset_before_response_started{remote_connection_failure}"),
                "0",
                false,
                NotProcessed,
            ),
            (503, Some("no_healthy_upstream"), "0", false, NotProcessed),
            (503, Some("cluster_not_found"), "0", false, NotProcessed),
            (404, Some("route_not_found"), "0", false, NotProcessed),
            (
                503,
                Some("upstream_reset_before_response_started{connection_termination}"),
                "120",
                false,
                Unknown,
            ),
            (
                503,
                Some("upstream_reset_before_response_started{connection_termination}"),
                "120",
                true,
                Unknown,
            ),
            (504, Some("response_timeout"), "120", false, Unknown),
            (504, None, "", false, Unknown),
            (200, None, "", false, Unknown),
            (429, None, "", false, Unknown),
        ] {
            assert_eq!(
                judged(status, outcome, sent, retry_after),
                expected,
                "{status} {outcome:?} {sent}"
            );
        }
    }

    #[test]
    fn a_forwarded_request_is_judged_by_the_proxys_details() {
        let judged = |status, details: Option<&str>| {
            forwarded_certainty(status, &[], details.map(str::as_bytes), &RELEASE)
        };
        assert_eq!(judged(201, Some("via_upstream")), Processed);
        assert_eq!(judged(429, Some("via_upstream")), NotProcessed);
        assert_eq!(judged(503, Some("via_upstream")), Unknown);
        assert_eq!(judged(503, Some("no_healthy_upstream")), NotProcessed);
        let reset = |why: &str| format!("upstream_reset_before_response_started{{{why}}}");
        assert_eq!(
            judged(503, Some(&reset("remote_connection_failure|refused"))),
            NotProcessed
        );
        assert_eq!(judged(503, Some(&reset("connection_termination"))), Unknown);
        assert_eq!(judged(504, Some("response_timeout")), Unknown);
        assert_eq!(judged(200, None), Unknown);
    }

    #[test]
    fn a_doubled_marker_is_not_believed() {
        let fields = [
            Field::new(OUTCOME, &b"via_upstream"[..]),
            Field::new(OUTCOME, &b"via_upstream"[..]),
        ];
        assert_eq!(certainty(200, &fields, &RELEASE), Unknown);
    }
}
