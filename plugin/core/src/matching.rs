//! Which requests a rule or a policy is for.

/// A condition on method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    path_prefix: Vec<u8>,
    methods: Option<Vec<Vec<u8>>>,
}

impl Match {
    /// Matches paths below `path_prefix`, and these methods; all methods when there is no list.
    pub fn new(path_prefix: &str, methods: Option<&[String]>) -> Self {
        Self {
            path_prefix: path_prefix.as_bytes().to_vec(),
            methods: methods
                .map(|names| names.iter().map(|name| name.as_bytes().to_vec()).collect()),
        }
    }

    /// Whether a request with this method is meant, on some path.
    pub fn may_match(&self, method: &[u8]) -> bool {
        self.methods
            .as_ref()
            .is_none_or(|methods| methods.iter().any(|known| known == method))
    }

    /// Whether a request with this method and path (without its query) is meant. A prefix ends at a segment:
    /// `/orders` is for `/orders` and `/orders/7`, not for `/ordersX`.
    pub fn matches(&self, method: &[u8], path: &[u8]) -> bool {
        self.may_match(method)
            && path
                .strip_prefix(self.path_prefix.as_slice())
                .is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with(b"/") || self.path_prefix.ends_with(b"/")
                })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_segment() {
        let orders = Match::new("/orders", None);
        assert!(orders.matches(b"GET", b"/orders"));
        assert!(orders.matches(b"GET", b"/orders/7"));
        assert!(!orders.matches(b"GET", b"/ordersX"));
        assert!(!orders.matches(b"GET", b"/order"));
        let all = Match::new("/", None);
        assert!(all.matches(b"GET", b"/") && all.matches(b"GET", b"/a/b"));
        assert!(!all.matches(b"OPTIONS", b"*"));
        let below = Match::new("/orders/", None);
        assert!(below.matches(b"GET", b"/orders/7") && !below.matches(b"GET", b"/orders"));
    }

    #[test]
    fn methods_are_case_sensitive() {
        let post = Match::new("/", Some(&["POST".to_owned()]));
        assert!(post.matches(b"POST", b"/"));
        assert!(!post.matches(b"post", b"/") && !post.matches(b"GET", b"/"));
    }
}
