//! The root context: one for each configuration and worker. It reads the configuration and hears from the store and
//! from detached calls.

use porch_core::config::Settings;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::configuration;
use crate::host::{self, Buffer, Level, Map};
use crate::instance::Instance;
use crate::request::Request;

/// Deadlines are kept to within this many milliseconds.
const TICK_MS: u32 = 50;

pub(crate) struct Root {
    id: u32,
    instance: Option<Instance>,
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, instance: None }
    }
}

impl Context for Root {
    fn on_done(&mut self) -> bool {
        self.instance.as_ref().is_none_or(Instance::end)
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        if let Some(instance) = &self.instance {
            instance.stream_message(
                token,
                host::buffer(Buffer::GrpcReceive, size).unwrap_or_default(),
            );
        }
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        if let Some(instance) = &self.instance {
            instance.stream_closed(token, status);
        }
    }

    fn on_grpc_call_response(&mut self, token: u32, status: u32, size: usize) {
        if let Some(instance) = &self.instance {
            let message =
                (status == 0).then(|| host::buffer(Buffer::GrpcReceive, size).unwrap_or_default());
            instance.invoked(token, message);
        }
    }

    fn on_http_call_response(
        &mut self,
        token: u32,
        headers: usize,
        body_size: usize,
        trailers: usize,
    ) {
        if let Some(instance) = &self.instance {
            let answer = (headers > 0).then(|| {
                let body = if body_size > 0 {
                    host::buffer(Buffer::CallResponseBody, body_size)
                } else {
                    None
                };
                (
                    host::headers(Map::CallResponse),
                    body.unwrap_or_default(),
                    trailers > 0,
                )
            });
            instance.executed(token, answer);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        if host::random().is_none() {
            host::log(
                Level::Error,
                "porch: expected a host with random_get of wasi_snapshot_preview1, got none",
            );
            return false;
        }
        let written = host::buffer(Buffer::PluginConfiguration, size).unwrap_or_default();
        match Settings::parse(&configuration::as_json(written)) {
            Ok(settings) => {
                let instance = Instance::new(self.id, settings);
                host::tick_every(TICK_MS);
                instance.tick();
                self.instance = Some(instance);
                true
            }
            Err(error) => {
                host::log(
                    Level::Error,
                    &format!("porch: configuration refused: {error}"),
                );
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(instance) = &self.instance {
            instance.tick();
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let instance = self.instance.clone()?;
        Some(Box::new(Request::new(id, instance)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
