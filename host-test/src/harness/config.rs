//! The shipped Envoy configuration, and the few places where a run differs from it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::artifacts::project_root;

/// envoy/local/envoy.yaml as a tree.
#[derive(Clone, Debug)]
pub struct EnvoyConfig(Value);

const LISTENERS: [&str; 2] = ["main", "porch_execute"];

impl EnvoyConfig {
    /// Reads the shipped file.
    ///
    /// # Errors
    /// When it cannot be read or is no YAML.
    pub fn shipped() -> anyhow::Result<Self> {
        let path = project_root().join("envoy/local/envoy.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        Ok(Self(
            serde_saphyr::from_str(&text).with_context(|| format!("{}", path.display()))?,
        ))
    }

    /// The limiter instance's plugin configuration.
    ///
    /// # Errors
    /// When the file has none.
    pub fn limiter(&mut self) -> anyhow::Result<&mut Value> {
        at(
            self.filter("porch.limiter")?,
            "/typed_config/config/configuration/value",
        )
    }

    /// The idempotency instance's plugin configuration.
    ///
    /// # Errors
    /// When the file has none.
    pub fn idempotency(&mut self) -> anyhow::Result<&mut Value> {
        at(
            self.filter("porch.idempotency")?,
            "/typed_config/config/configuration/value",
        )
    }

    /// Sets a field of both instances' store section.
    ///
    /// # Errors
    /// When the file has no such section.
    pub fn set_store(&mut self, field: &str, value: &Value) -> anyhow::Result<()> {
        for filter in ["porch.limiter", "porch.idempotency"] {
            let store = at(
                self.filter(filter)?,
                "/typed_config/config/configuration/value/store",
            )?;
            store
                .as_object_mut()
                .context("store: expected a mapping")?
                .insert(field.to_owned(), value.clone());
        }
        Ok(())
    }

    /// Sets how long upstream may take (on both listeners) and how long a detached execution may take.
    ///
    /// # Errors
    /// When the file has no route or no execution.
    pub fn set_timeouts(&mut self, route: &str, execute: &str) -> anyhow::Result<()> {
        *at(self.idempotency()?, "/idempotency/execute/detached/timeout")? = json!(execute);
        for listener in LISTENERS {
            let manager = self.connection_manager(listener)?;
            *at(
                manager,
                "/route_config/virtual_hosts/0/routes/0/route/timeout",
            )? = json!(route);
        }
        Ok(())
    }

    /// Puts a route before the others, on the main and the inner listener alike.
    ///
    /// # Errors
    /// When a listener has no routes.
    pub fn add_route(&mut self, route: &Value) -> anyhow::Result<()> {
        for listener in LISTENERS {
            let routes = at(
                self.connection_manager(listener)?,
                "/route_config/virtual_hosts/0/routes",
            )?;
            routes
                .as_array_mut()
                .context("routes: expected a list")?
                .insert(0, route.clone());
        }
        Ok(())
    }

    /// Takes both instances of the plugin out: bare Envoy.
    ///
    /// # Errors
    /// When the main listener has no filters.
    pub fn remove_plugin(&mut self) -> anyhow::Result<()> {
        let filters = at(self.connection_manager("main")?, "/http_filters")?;
        let filters = filters
            .as_array_mut()
            .context("http_filters: expected a list")?;
        filters.retain(|filter| !name(filter).starts_with("porch."));
        Ok(())
    }

    /// Takes the idempotency instance out: the limiter alone.
    ///
    /// # Errors
    /// When the main listener has no filters.
    pub fn remove_idempotency(&mut self) -> anyhow::Result<()> {
        let filters = at(self.connection_manager("main")?, "/http_filters")?;
        let filters = filters
            .as_array_mut()
            .context("http_filters: expected a list")?;
        filters.retain(|filter| name(filter) != "porch.idempotency");
        Ok(())
    }

    /// Whether the file loads the plugin.
    pub fn has_plugin(&self) -> bool {
        self.clone().limiter().is_ok()
    }

    /// Takes the client's address from X-Forwarded-For, as set by so many trusted proxies in front.
    ///
    /// # Errors
    /// When the file has no main listener.
    pub fn trust_hops(&mut self, hops: u32) -> anyhow::Result<()> {
        let manager = self.connection_manager("main")?;
        manager
            .as_object_mut()
            .context("main: expected a mapping")?
            .insert("xff_num_trusted_hops".to_owned(), json!(hops));
        Ok(())
    }

    /// Takes the access logs out: a measurement is not about them.
    ///
    /// # Errors
    /// When a listener is missing.
    pub fn remove_access_logs(&mut self) -> anyhow::Result<()> {
        for listener in LISTENERS {
            if let Some(manager) = self.connection_manager(listener)?.as_object_mut() {
                manager.remove("access_log");
            }
        }
        Ok(())
    }

    /// Sets a field of the main listener's connection manager.
    ///
    /// # Errors
    /// When the file has no main listener.
    pub fn set_on_main(&mut self, field: &str, value: &Value) -> anyhow::Result<()> {
        let manager = self.connection_manager("main")?;
        manager
            .as_object_mut()
            .context("main: expected a mapping")?
            .insert(field.to_owned(), value.clone());
        Ok(())
    }

    /// Puts a filter before another on the main listener.
    ///
    /// # Errors
    /// When the main listener lacks that one.
    pub fn add_filter(&mut self, before: &str, filter: &Value) -> anyhow::Result<()> {
        let filters = at(self.connection_manager("main")?, "/http_filters")?;
        let filters = filters
            .as_array_mut()
            .context("http_filters: expected a list")?;
        let place = filters.iter().position(|known| name(known) == before);
        let place = place.with_context(|| format!("envoy.yaml: no filter named {before:?}"))?;
        filters.insert(place, filter.clone());
        Ok(())
    }

    /// Lets the trailers of HTTP/1.1 through, on every hop (without this Envoy drops them, and says nothing), and
    /// clients of HTTP/1.0.
    ///
    /// # Errors
    /// When a listener or a cluster is missing.
    pub fn accept_all_of_http1(&mut self) -> anyhow::Result<()> {
        let passed = json!({"enable_trailers": true});
        let accepted = json!({"enable_trailers": true, "accept_http_10": true});
        for listener in LISTENERS {
            let manager = self.connection_manager(listener)?;
            manager
                .as_object_mut()
                .context("a listener: expected a mapping")?
                .insert("http_protocol_options".to_owned(), accepted.clone());
        }
        for cluster in ["upstream", "porch_execute"] {
            let cluster = named(at(&mut self.0, "/static_resources/clusters")?, cluster)?;
            let options = "/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicit_http_config/http_protocol_options";
            *at(cluster, options)? = passed.clone();
        }
        Ok(())
    }

    /// Names the module that both instances run.
    ///
    /// # Errors
    /// When the file does not load the plugin.
    pub fn set_wasm(&mut self, wasm: &Path) -> anyhow::Result<()> {
        let filters = at(self.connection_manager("main")?, "/http_filters")?;
        let filters = filters
            .as_array_mut()
            .context("http_filters: expected a list")?;
        for filter in filters
            .iter_mut()
            .filter(|filter| name(filter).starts_with("porch."))
        {
            *at(filter, "/typed_config/config/vm_config/code/local/filename")? = json!(wasm);
        }
        Ok(())
    }

    /// Names the service behind the proxy.
    ///
    /// # Errors
    /// When the file has no cluster `upstream`.
    pub fn set_upstream(&mut self, service: SocketAddr) -> anyhow::Result<()> {
        *self.endpoint("upstream")? = socket_address(service);
        Ok(())
    }

    /// Names the store's socket.
    ///
    /// # Errors
    /// When the file has no cluster `porch_store`.
    pub fn set_store_socket(&mut self, socket: &Path) -> anyhow::Result<()> {
        *at(self.endpoint("porch_store")?, "/pipe/path")? = json!(socket);
        Ok(())
    }

    /// Sets what the main listener and the admin listener bind to; port 0 takes a free one.
    ///
    /// # Errors
    /// When the file has no such listener.
    pub fn set_ports(&mut self, main: SocketAddr, admin: SocketAddr) -> anyhow::Result<()> {
        *at(self.listener("main")?, "/address")? = socket_address(main);
        *at(&mut self.0, "/admin/address")? = socket_address(admin);
        Ok(())
    }

    /// The file's text, for Envoy: JSON is YAML.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    fn listener(&mut self, listener: &str) -> anyhow::Result<&mut Value> {
        named(at(&mut self.0, "/static_resources/listeners")?, listener)
    }

    fn connection_manager(&mut self, listener: &str) -> anyhow::Result<&mut Value> {
        at(
            self.listener(listener)?,
            "/filter_chains/0/filters/0/typed_config",
        )
    }

    fn filter(&mut self, filter: &str) -> anyhow::Result<&mut Value> {
        named(
            at(self.connection_manager("main")?, "/http_filters")?,
            filter,
        )
    }

    fn endpoint(&mut self, cluster: &str) -> anyhow::Result<&mut Value> {
        let cluster = named(at(&mut self.0, "/static_resources/clusters")?, cluster)?;
        at(
            cluster,
            "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address",
        )
    }
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

fn name(value: &Value) -> &str {
    value
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn at<'a>(value: &'a mut Value, pointer: &str) -> anyhow::Result<&'a mut Value> {
    let owner = name(value).to_owned();
    value.pointer_mut(pointer).with_context(|| {
        format!("envoy.yaml: expected {pointer} in {owner:?}, and it is not there")
    })
}

fn named<'a>(list: &'a mut Value, wanted: &str) -> anyhow::Result<&'a mut Value> {
    let Some(list) = list.as_array_mut() else {
        bail!("envoy.yaml: expected a list with {wanted:?}")
    };
    list.iter_mut()
        .find(|item| name(item) == wanted)
        .with_context(|| {
            format!("envoy.yaml: expected an entry named {wanted:?}, and there is none")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> EnvoyConfig {
        EnvoyConfig::shipped().expect("the shipped file reads")
    }

    #[test]
    fn both_instances_share_one_vm_and_one_route_table() {
        let mut config = shipped();
        let vm = |config: &mut EnvoyConfig, filter| {
            at(
                config.filter(filter).expect("there"),
                "/typed_config/config/vm_config",
            )
            .expect("there")
            .clone()
        };
        assert_eq!(
            vm(&mut config, "porch.limiter"),
            vm(&mut config, "porch.idempotency")
        );
        let routes = |config: &mut EnvoyConfig, listener| {
            at(
                config.connection_manager(listener).expect("there"),
                "/route_config",
            )
            .expect("there")
            .clone()
        };
        assert_eq!(
            routes(&mut config, "main"),
            routes(&mut config, "porch_execute")
        );
    }

    #[test]
    fn the_inner_route_ends_before_the_execution_and_that_before_the_stream() {
        let mut config = shipped();
        let seconds = |value: &Value| -> u64 {
            let text = value
                .as_str()
                .expect("a duration")
                .strip_suffix('s')
                .expect("in seconds");
            text.parse().expect("whole seconds")
        };
        let execute = seconds(
            at(
                config.idempotency().expect("there"),
                "/idempotency/execute/detached/timeout",
            )
            .expect("there"),
        );
        for listener in LISTENERS {
            let manager = config.connection_manager(listener).expect("there");
            assert!(execute < seconds(at(manager, "/stream_idle_timeout").expect("there")));
            assert!(
                seconds(
                    at(
                        manager,
                        "/route_config/virtual_hosts/0/routes/0/route/timeout"
                    )
                    .expect("there")
                ) < execute
            );
        }
    }

    #[test]
    fn envoy_holds_twice_what_the_plugin_takes() {
        let mut config = shipped();
        let max_request_bytes = 1 << 20;
        let idempotency = config.idempotency().expect("there");
        assert_eq!(
            idempotency.pointer("/idempotency/max_request_bytes"),
            None,
            "the default holds"
        );
        let listener = config.listener("main").expect("there");
        assert_eq!(
            listener["per_connection_buffer_limit_bytes"],
            json!(2 * max_request_bytes)
        );
        let manager = config.connection_manager("main").expect("there");
        let window = at(
            manager,
            "/http2_protocol_options/initial_stream_window_size",
        )
        .expect("there");
        assert_eq!(
            *window,
            json!(2 * max_request_bytes),
            "the limit of an HTTP/2 stream"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut config =
            EnvoyConfig(json!({"static_resources": {"listeners": [{"name": "main"}]}}));
        let error = config.limiter().expect_err("no filter chain").to_string();
        assert!(
            error.contains("/filter_chains/0/filters/0/typed_config"),
            "{error}"
        );
        let error = config
            .add_route(&json!({}))
            .expect_err("no route")
            .to_string();
        assert!(error.contains("envoy.yaml"), "{error}");
    }
}
