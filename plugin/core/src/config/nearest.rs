//! The known name that a wrong one was probably meant to be.

/// Names longer than this are compared with none.
const NAME_BYTES_MAX: usize = 64;

/// The nearest known name: one letter added, removed, changed or swapped; or one that begins with the wrong one; or as
/// many letters as a third of the wrong one's length, three at most.
pub(super) fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    if wrong.len() > NAME_BYTES_MAX {
        return None;
    }
    let plain = plain(wrong);
    let (name, steps) = known
        .iter()
        .map(|name| (*name, distance(&plain, name.as_bytes())))
        .min_by_key(|(_, steps)| *steps)?;
    let begun = |name: &&&'a str| plain.len() >= 3 && name.as_bytes().starts_with(&plain);
    if steps > 1
        && let Some(begun) = known.iter().find(begun)
    {
        return Some(begun);
    }
    let most = plain.len().div_ceil(3).min(3);
    (steps <= most && steps < plain.len()).then_some(name)
}

/// As names are written here: `keyHeader` and `key-header` are `key_header`.
fn plain(name: &str) -> Vec<u8> {
    let mut plain: Vec<u8> = Vec::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_uppercase() && plain.last().is_some_and(u8::is_ascii_lowercase) {
            plain.push(b'_');
        }
        plain.push(match byte {
            b'-' | b' ' => b'_',
            other => other.to_ascii_lowercase(),
        });
    }
    plain
}

/// Steps from one name to another: a letter added, removed or changed, or two neighbours swapped.
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut before: Vec<usize> = vec![];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut next = vec![row.saturating_add(1)];
        for (column, other) in to.iter().enumerate() {
            let at = |of: &[usize], column: usize| of.get(column).copied().unwrap_or(usize::MAX);
            let after = column.saturating_add(1);
            let changed = at(&last, column).saturating_add(usize::from(letter != other));
            let removed = at(&last, after).saturating_add(1);
            let added = at(&next, column).saturating_add(1);
            let swapped = match (row.checked_sub(1), column.checked_sub(1)) {
                (Some(up), Some(left))
                    if from.get(up) == Some(other) && to.get(left) == Some(letter) =>
                {
                    at(&before, left).saturating_add(1)
                }
                _ => usize::MAX,
            };
            next.push(changed.min(removed).min(added).min(swapped));
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 12] = [
        "name",
        "quota",
        "window",
        "key",
        "match",
        "reserve",
        "cost",
        "cost_header",
        "mode",
        "refund_on",
        "on_store_failure",
        "path_prefix",
    ];

    #[test]
    fn a_typo_names_what_was_meant() {
        for (wrong, meant) in [
            ("qota", "quota"),
            ("quotas", "quota"),
            ("qutoa", "quota"),
            ("Quota", "quota"),
            ("windwo", "window"),
            ("keys", "key"),
            ("costHeader", "cost_header"),
            ("cost-header", "cost_header"),
            ("on_store_fail", "on_store_failure"),
            ("path", "path_prefix"),
            ("refundon", "refund_on"),
        ] {
            assert_eq!(nearest(wrong, &KNOWN), Some(meant), "{wrong}");
        }
    }

    #[test]
    fn what_is_near_to_nothing_gets_no_hint() {
        for wrong in ["", "x", "limit", "burst", "timeout", "requests_per_unit"] {
            assert_eq!(nearest(wrong, &KNOWN), None, "{wrong}");
        }
        assert_eq!(nearest(&"q".repeat(1 << 20), &KNOWN), None);
        assert_eq!(nearest("é\u{0}", &KNOWN), None);
        assert_eq!(nearest("quota", &[]), None);
    }

    #[test]
    fn distances() {
        for (from, to, steps) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("abc", "abd", 1),
            ("abc", "xabc", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(
                distance(from.as_bytes(), to.as_bytes()),
                steps,
                "{from} {to}"
            );
        }
    }
}
