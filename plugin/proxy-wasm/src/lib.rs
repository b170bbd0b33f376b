//! The proxy-wasm filter: it translates between the host's callbacks and porch-core, and decides nothing.
//!
//! Never panics by its own doing: a panic in one callback can leave other clients' requests hanging.

#![expect(missing_docs, reason = "the entry point that the SDK's macro makes")]

mod codec;
mod configuration;
mod host;
mod instance;
mod metrics;
mod request;
mod root;

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|id| Box::new(root::Root::new(id)));
}}
