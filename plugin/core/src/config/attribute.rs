//! What the settings need of a request beside its head: values that the proxy knows. An adapter reads them, in the
//! order of [`super::Settings::attributes`].

use super::check;
use super::document::Principal;
use super::error::ConfigError;
use crate::principal;

/// A value that the proxy knows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The name of the route that was chosen.
    RouteName,
    /// The text `rules` in the route's metadata `porch`: names, separated by commas.
    RouteRules,
    /// The text `policies` in the route's metadata `porch`: names, separated by commas.
    RoutePolicies,
    /// A claim of the token that Envoy's `jwt_authn` filter has verified.
    JwtClaim {
        /// Under which name that filter puts the token's payload.
        payload: String,
        /// The claim.
        claim: String,
    },
    /// The name in the client's certificate: its first URI, else its first DNS name.
    San,
}

/// Attributes as they are asked for while a configuration is read: each once.
#[derive(Debug)]
pub(super) struct Attributes {
    jwt_payload: String,
    list: Vec<Attribute>,
}

impl Attributes {
    pub(super) fn new(jwt_payload: Option<&str>) -> Result<Self, ConfigError> {
        let jwt_payload = check::text("jwt_payload", jwt_payload.unwrap_or("jwt_payload"), 128)?;
        Ok(Self {
            jwt_payload,
            list: vec![],
        })
    }

    pub(super) fn into_list(self) -> Vec<Attribute> {
        self.list
    }

    pub(super) fn route_name(&mut self) -> usize {
        self.index(Attribute::RouteName)
    }

    pub(super) fn rules_of_the_route(&mut self) {
        self.index(Attribute::RouteRules);
    }

    pub(super) fn policies_of_the_route(&mut self) {
        self.index(Attribute::RoutePolicies);
    }

    pub(super) fn principal(
        &mut self,
        path: &str,
        written: Principal,
    ) -> Result<principal::Source, ConfigError> {
        Ok(match written {
            Principal::None => principal::Source::None,
            Principal::Header(name) => {
                principal::Source::Header(check::header_name(&format!("{path}.header"), &name)?)
            }
            Principal::JwtClaim(claim) => {
                let claim = check::text(&format!("{path}.jwt_claim"), &claim, 128)?;
                let payload = self.jwt_payload.clone();
                principal::Source::Attribute(self.index(Attribute::JwtClaim { payload, claim }))
            }
            Principal::San => principal::Source::Attribute(self.index(Attribute::San)),
            Principal::Cookie(name) => {
                principal::Source::Cookie(check::text(&format!("{path}.cookie"), &name, 128)?)
            }
            Principal::AuthorizationDigest => principal::Source::Authorization,
        })
    }

    fn index(&mut self, attribute: Attribute) -> usize {
        if let Some(index) = self.list.iter().position(|known| *known == attribute) {
            return index;
        }
        self.list.push(attribute);
        self.list.len().saturating_sub(1)
    }
}
