//! Which requests a rule or a policy is for.

use crate::config::Attribute;
use crate::http::{self, Field, RequestHead};

/// A condition on method, path, authority, header values, and what the route says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// A path, of which a request's is a part. It ends at a segment: `/orders` is for `/orders` and `/orders/7`, not
    /// for `/ordersX`.
    pub path_prefix: Vec<u8>,
    /// These methods; all when there is no list.
    pub methods: Option<Vec<Vec<u8>>>,
    /// These authorities, in lower case, without a default port; all when there is no list.
    pub authorities: Option<Vec<Vec<u8>>>,
    /// All of these.
    pub headers: Vec<HeaderMatch>,
    /// Only where the route's metadata names it.
    pub named_by_route: bool,
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// In lower case.
    pub name: String,
    /// One of its lines has one of these values; when there is no list, it has a line.
    pub values: Option<Vec<Vec<u8>>>,
}

impl HeaderMatch {
    /// Whether header lines meet it.
    pub fn matches(&self, fields: &[Field]) -> bool {
        http::values(fields, &self.name).any(|value| {
            self.values
                .as_ref()
                .is_none_or(|values| values.iter().any(|wanted| wanted == value))
        })
    }
}

impl Match {
    /// Whether a request with this method is meant, on some path.
    pub fn may_match(&self, method: &[u8]) -> bool {
        self.methods
            .as_ref()
            .is_none_or(|methods| methods.iter().any(|known| known == method))
    }

    /// Whether a request with this method and path (without its query) is meant, as far as they go.
    pub fn matches_line(&self, method: &[u8], path: &[u8]) -> bool {
        self.may_match(method)
            && path
                .strip_prefix(self.path_prefix.as_slice())
                .is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with(b"/") || self.path_prefix.ends_with(b"/")
                })
    }

    /// Whether telling takes header lines.
    pub fn needs_fields(&self) -> bool {
        self.authorities.is_some() || !self.headers.is_empty()
    }

    /// Whether a request is meant.
    pub fn matches(&self, head: &RequestHead<'_>) -> bool {
        self.matches_line(head.method, head.path_only())
            && self
                .authorities
                .as_ref()
                .is_none_or(|known| known.contains(&head.authority()))
            && self
                .headers
                .iter()
                .all(|header| header.matches(head.fields))
    }
}

/// Whether the route names a rule or policy, in the attribute of this kind.
pub fn named_by_route(
    attributes: &[Attribute],
    kind: &Attribute,
    head: &RequestHead<'_>,
    name: &str,
) -> bool {
    let index = attributes.iter().position(|attribute| attribute == kind);
    let value = index.and_then(|index| head.attributes.get(index)?.as_deref());
    value.is_some_and(|names| {
        names
            .split(|byte| *byte == b',')
            .any(|known| known.trim_ascii() == name.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path_prefix: &str, methods: Option<&[&str]>) -> Match {
        Match {
            path_prefix: path_prefix.into(),
            methods: methods
                .map(|names| names.iter().map(|name| name.as_bytes().to_vec()).collect()),
            authorities: None,
            headers: vec![],
            named_by_route: false,
        }
    }

    #[test]
    fn a_prefix_ends_at_a_segment() {
        let orders = of("/orders", None);
        assert!(orders.matches_line(b"GET", b"/orders"));
        assert!(orders.matches_line(b"GET", b"/orders/7"));
        assert!(!orders.matches_line(b"GET", b"/ordersX"));
        assert!(!orders.matches_line(b"GET", b"/order"));
        let all = of("/", None);
        assert!(all.matches_line(b"GET", b"/") && all.matches_line(b"GET", b"/a/b"));
        assert!(!all.matches_line(b"OPTIONS", b"*"));
        let below = of("/orders/", None);
        assert!(
            below.matches_line(b"GET", b"/orders/7") && !below.matches_line(b"GET", b"/orders")
        );
    }

    #[test]
    fn methods_are_case_sensitive() {
        let post = of("/", Some(&["POST"]));
        assert!(post.matches_line(b"POST", b"/"));
        assert!(!post.matches_line(b"post", b"/") && !post.matches_line(b"GET", b"/"));
        assert!(post.may_match(b"POST") && !post.may_match(b"GET"));
    }

    #[test]
    fn authorities_and_headers_are_conditions_too() {
        let gold = HeaderMatch {
            name: "x-plan".into(),
            values: Some(vec![b"gold".to_vec(), b"silver".to_vec()]),
        };
        let traced = HeaderMatch {
            name: "x-trace".into(),
            values: None,
        };
        let matching = Match {
            authorities: Some(vec![b"shop.example".to_vec()]),
            headers: vec![gold, traced],
            ..of("/", None)
        };
        let meets = |fields: &[(&'static str, &'static str)]| {
            let fields: Vec<Field> = fields
                .iter()
                .map(|(name, value)| Field::new(name, value.as_bytes()))
                .collect();
            let head = RequestHead {
                fields: &fields,
                ..RequestHead::of(b"GET", b"/x?y")
            };
            matching.matches(&head)
        };
        let full = [
            (":authority", "Shop.Example:80"),
            (":scheme", "http"),
            ("x-plan", "gold"),
            ("x-trace", ""),
        ];
        assert!(meets(&full));
        assert!(!meets(&full[..3]), "a header is missing");
        assert!(!meets(&[full[0], full[1], ("x-plan", "tin"), full[3]]));
        assert!(!meets(&[
            (":authority", "other"),
            full[1],
            full[2],
            full[3]
        ]));
    }

    #[test]
    fn a_route_names_by_whole_names() {
        let attributes = [Attribute::RouteName, Attribute::RouteRules];
        let values = [None, Some(b"a, per-client".to_vec())];
        let head = RequestHead {
            attributes: &values,
            ..RequestHead::of(b"GET", b"/")
        };
        let named = |name| named_by_route(&attributes, &Attribute::RouteRules, &head, name);
        assert!(named("a") && named("per-client"));
        assert!(!named("per") && !named("b"));
        assert!(!named_by_route(
            &attributes,
            &Attribute::RoutePolicies,
            &head,
            "a"
        ));
    }
}
