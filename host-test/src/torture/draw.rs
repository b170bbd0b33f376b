//! What is drawn from a seed? Every choice of a torture, so that a seed repeats it.

use bytes::Bytes;
use porch_wire::complete::Outcome;
use porch_wire::{Field, Response, Tombstone};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// A source of choices for one part of a torture.
pub(super) fn source(seed: u64, part: u64) -> StdRng {
    StdRng::seed_from_u64(mix(seed ^ mix(part)))
}

/// The digest that stands for the `n`-th bucket or key of a kind.
pub(super) fn digest(kind: u64, n: u64) -> Bytes {
    let mut digest = Vec::with_capacity(32);
    for part in 0..4 {
        let word = mix(mix(n ^ (kind << 56)).wrapping_add(part));
        digest.extend_from_slice(&word.to_le_bytes());
    }
    digest.into()
}

/// The `n`-th claim's id.
pub(super) fn claim_id(n: u64) -> Bytes {
    let words = [mix(n), n];
    words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect::<Vec<u8>>()
        .into()
}

/// The one fingerprint of a key's requests.
pub(super) fn fingerprint(key: u64) -> Bytes {
    let mut fingerprint = vec![1];
    fingerprint.extend_from_slice(&digest(9, key));
    fingerprint.into()
}

/// How the `n`-th claim ends, if its request is executed: what upstream would have answered.
pub(super) fn outcome(claim: u64) -> Outcome {
    let mut source = source(claim, 77);
    if source.random_ratio(1, 12) {
        return Outcome::Tombstone(Tombstone { status: 207 });
    }
    let bytes = match source.random_range(0..100) {
        0..20 => 0,
        20..60 => source.random_range(1..2_000),
        60..90 => source.random_range(2_000..20_000),
        90..97 => source.random_range(20_000..60_000),
        _ => source.random_range(66_000..200_000),
    };
    Outcome::Response(response(claim, bytes))
}

/// A response of the `n`-th claim with so many bytes of body.
pub(super) fn response(claim: u64, body_bytes: usize) -> Response {
    let mut body = Vec::with_capacity(body_bytes + 8);
    let mut word = mix(claim);
    while body.len() < body_bytes {
        body.extend_from_slice(&word.to_le_bytes());
        word = mix(word);
    }
    body.truncate(body_bytes);
    let field = |name: &'static str, value: String| Field {
        name: Bytes::from_static(name.as_bytes()),
        value: value.into(),
    };
    Response {
        status: 201,
        field: vec![
            field("location", format!("/orders/{claim}")),
            field("x-item", "a".to_owned()),
            field("x-item", String::new()),
        ],
        body: body.into(),
    }
}

/// The body's length above which a completion goes by Invoke.
pub(super) fn goes_by_invoke(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Response(response) => response.body.len() > porch_wire::CHANNEL_BODY_BYTES_MAX,
        Outcome::Tombstone(_) | Outcome::Unknown(_) => false,
    }
}

/// splitmix64's last step: every bit of the word changes every bit of the result.
pub(super) const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
