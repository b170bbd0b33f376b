//! One request's context: it reads what the settings demand of the request, and tells the instance.

use porch_core::config::Attribute;
use porch_core::exchange::Event;
use porch_core::http::{RequestHead, ResponseHead};
use porch_core::store::ClaimId;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::host::{self, Buffer, Map};
use crate::instance::Instance;

pub(crate) struct Request {
    id: u32,
    instance: Instance,
    /// A rule or a policy is for it.
    tracked: bool,
    body_size: usize,
    response_size: usize,
}

impl Request {
    pub(crate) fn new(id: u32, instance: Instance) -> Self {
        Self {
            id,
            instance,
            tracked: false,
            body_size: 0,
            response_size: 0,
        }
    }

    fn body_end(&self) {
        let body = if self.body_size > 0 {
            host::buffer(Buffer::RequestBody, self.body_size)
        } else {
            None
        };
        let Some(random) = host::random() else {
            // Without randomness no claim can be told from another: the request is held until the proxy gives it up.
            host::log(
                host::Level::Error,
                "porch: the host gives no randomness; a keyed request is not executed",
            );
            return;
        };
        let event = Event::BodyEnd {
            body: body.unwrap_or_default(),
            claim_id: ClaimId(random),
        };
        self.instance.request_event(self.id, event);
    }

    fn response_end(&self, trailers: bool) {
        let body = if self.response_size > 0 {
            host::buffer(Buffer::ResponseBody, self.response_size)
        } else {
            None
        };
        let body = body.unwrap_or_default();
        self.instance
            .request_event(self.id, Event::ResponseEnd { body, trailers });
    }

    fn response_action(&self) -> Action {
        if self.tracked && self.instance.holds_response(self.id) {
            Action::Pause
        } else {
            Action::Continue
        }
    }

    fn action(&self) -> Action {
        if self.instance.passed(self.id) {
            Action::Continue
        } else {
            Action::Pause
        }
    }
}

impl Context for Request {}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _count: usize, end: bool) -> Action {
        let method = host::header(Map::Request, ":method").unwrap_or_default();
        let settings = self.instance.settings();
        if !settings.may_demand(&method) {
            return Action::Continue;
        }
        let path = host::header(Map::Request, ":path").unwrap_or_default();
        let demands = settings.demands(&method, &path);
        if !demands.exchange {
            return Action::Continue;
        }
        let address = if demands.client_address {
            host::property("source\0address")
        } else {
            None
        };
        let fields = if demands.fields {
            host::headers(Map::Request)
        } else {
            vec![]
        };
        let attributes = if demands.attributes {
            settings.attributes.iter().map(attribute).collect()
        } else {
            vec![]
        };
        let content_type = if demands.content_type {
            host::header(Map::Request, "content-type")
        } else {
            None
        };
        self.tracked = true;
        self.instance.open(self.id);
        let head = RequestHead {
            method: &method,
            path: &path,
            client_address: address.as_deref(),
            fields: &fields,
            attributes: &attributes,
            content_type: content_type.as_deref(),
            end,
        };
        self.instance
            .request_event(self.id, Event::RequestHead(head));
        if end && self.instance.wants_body(self.id) {
            self.body_end();
        }
        self.action()
    }

    fn on_http_request_body(&mut self, size: usize, end: bool) -> Action {
        if !self.tracked {
            return Action::Continue;
        }
        if self.instance.wants_body(self.id) {
            self.body_size = size;
            if end {
                self.body_end();
            } else {
                self.instance.request_event(self.id, Event::BodyHeld(size));
            }
        }
        self.action()
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        if !self.tracked {
            return Action::Continue;
        }
        if self.instance.wants_body(self.id) {
            self.body_end();
        }
        self.action()
    }

    fn on_http_response_headers(&mut self, _count: usize, end: bool) -> Action {
        if !self.tracked {
            for name in self.instance.settings().stripped_from_responses() {
                host::remove_header(Map::Response, name);
            }
            return Action::Continue;
        }
        let wanted = self.instance.wants_response(self.id);
        let status = if wanted || self.instance.settings().needs_response_status() {
            host::header(Map::Response, ":status")
        } else {
            None
        };
        let fields = if wanted {
            host::headers(Map::Response)
        } else {
            vec![]
        };
        let details = if wanted {
            host::property("response\0code_details")
        } else {
            None
        };
        let head = ResponseHead {
            status: status
                .and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok())
                .unwrap_or_default(),
            fields: &fields,
            details: details.as_deref(),
            end,
        };
        self.response_size = 0;
        self.instance
            .request_event(self.id, Event::ResponseHead(head));
        self.response_action()
    }

    fn on_http_response_body(&mut self, size: usize, end: bool) -> Action {
        if self.tracked && self.instance.wants_response(self.id) {
            self.response_size = size;
            if end {
                self.response_end(false);
            } else {
                self.instance
                    .request_event(self.id, Event::ResponseHeld(size));
            }
        }
        self.response_action()
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        if self.tracked && self.instance.wants_response(self.id) {
            self.response_end(true);
        }
        self.response_action()
    }

    fn on_log(&mut self) {
        // An answer that the proxy gave in the place of one that is held does not come by here: its status is seen now.
        if self.tracked && self.instance.holds_response(self.id) {
            let status = host::property("response\0code").and_then(|code| {
                let code = u64::from_le_bytes(code.try_into().ok()?);
                u16::try_from(code).ok().filter(|status| *status >= 500)
            });
            if let Some(status) = status {
                let head = ResponseHead::of(status);
                self.instance
                    .request_event(self.id, Event::ResponseHead(head));
            }
        }
        self.instance.leave(self.id);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.instance.leave(self.id);
    }
}

/// Reads a value that the host knows. The parts of a property's path are separated by NUL.
fn attribute(attribute: &Attribute) -> Option<Vec<u8>> {
    const METADATA: &str = "xds\0route_metadata\0filter_metadata\0porch";
    let known = match attribute {
        Attribute::RouteName => host::property("xds\0route_name"),
        Attribute::RouteRules => host::property(&format!("{METADATA}\0rules")),
        Attribute::RoutePolicies => host::property(&format!("{METADATA}\0policies")),
        Attribute::JwtClaim { payload, claim } => host::property(&format!(
            "metadata\0filter_metadata\0envoy.filters.http.jwt_authn\0{payload}\0{claim}"
        )),
        Attribute::San => host::property("connection\0uri_san_peer_certificate")
            .filter(|name| !name.is_empty())
            .or_else(|| host::property("connection\0dns_san_peer_certificate")),
    };
    known.filter(|value| !value.is_empty())
}
