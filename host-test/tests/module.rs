//! What the built module asks of its host, and how large it is: both grow only on purpose.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use porch_host::harness::Artifacts;
use wasmparser::{Parser, Payload};

/// The module's bound: 600 KiB.
const MODULE_BYTES_MAX: u64 = 600 * 1024;

/// Every function that dist/porch.wasm imports. The first group is called; the second comes with the default methods of
/// the SDK's traits.
const IMPORTS: &[&str] = &[
    "env.proxy_add_header_map_value",
    "env.proxy_continue_stream",
    "env.proxy_define_metric",
    "env.proxy_done",
    "env.proxy_get_buffer_bytes",
    "env.proxy_get_header_map_pairs",
    "env.proxy_get_header_map_value",
    "env.proxy_get_property",
    "env.proxy_grpc_cancel",
    "env.proxy_grpc_close",
    "env.proxy_grpc_send",
    "env.proxy_increment_metric",
    "env.proxy_log",
    "env.proxy_record_metric",
    "env.proxy_remove_header_map_value",
    "env.proxy_replace_header_map_value",
    "env.proxy_send_local_response",
    "env.proxy_set_effective_context",
    "env.proxy_set_property",
    "env.proxy_set_tick_period_milliseconds",
    "wasi_snapshot_preview1.clock_time_get",
    "wasi_snapshot_preview1.random_get",
    "env.proxy_grpc_call",
    "env.proxy_grpc_stream",
    "env.proxy_http_call",
    // ----
    "env.proxy_call_foreign_function",
    "env.proxy_close_stream",
    "env.proxy_dequeue_shared_queue",
    "env.proxy_enqueue_shared_queue",
    "env.proxy_get_current_time_nanoseconds",
    "env.proxy_get_shared_data",
    "env.proxy_get_status",
    "env.proxy_register_shared_queue",
    "env.proxy_resolve_shared_queue",
    "env.proxy_set_buffer_bytes",
    "env.proxy_set_header_map_pairs",
    "env.proxy_set_shared_data",
];

fn imports(module: &Path) -> anyhow::Result<BTreeSet<String>> {
    let bytes = std::fs::read(module).with_context(|| module.display().to_string())?;
    let mut imports = BTreeSet::new();
    for payload in Parser::new(0).parse_all(&bytes) {
        if let Payload::ImportSection(section) = payload? {
            for import in section.into_imports() {
                let import = import?;
                imports.insert(format!("{}.{}", import.module, import.name));
            }
        }
    }
    Ok(imports)
}

#[test]
fn the_module_imports_what_is_listed_and_nothing_else() -> anyhow::Result<()> {
    let expected: BTreeSet<String> = IMPORTS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(imports(&Artifacts::find()?.wasm)?, expected);
    Ok(())
}

#[test]
fn the_module_stays_within_its_bound() -> anyhow::Result<()> {
    let bytes = std::fs::metadata(Artifacts::find()?.wasm)?.len();
    assert!(
        bytes <= MODULE_BYTES_MAX,
        "expected at most {MODULE_BYTES_MAX} bytes, got {bytes}"
    );
    Ok(())
}
