//! The host's functions, declared by ourselves: the SDK's wrappers panic on statuses that a host may return.
//!
//! Each one answers `None` or `false` where the host says anything but Ok.

use porch_core::http::Field;

/// Header maps of the proxy-wasm ABI 0.2.1.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Map {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

/// Buffers of the proxy-wasm ABI 0.2.1.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    CallResponseBody = 4,
    GrpcReceive = 5,
    PluginConfiguration = 7,
}

/// Log levels of the proxy-wasm ABI 0.2.1.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Level {
    Warn = 3,
    Error = 4,
}

const OK: u32 = 0;
const STREAM_REQUEST: u32 = 0;
const STREAM_RESPONSE: u32 = 1;

const CLOCK_MONOTONIC: u32 = 1;

#[expect(unsafe_code, reason = "the host's ABI")]
mod abi {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer: u32,
            start: usize,
            max_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_header_map_pairs(
            map: u32,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_header_map_value(
            map: u32,
            name: *const u8,
            name_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_add_header_map_value(
            map: u32,
            name: *const u8,
            name_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_replace_header_map_value(
            map: u32,
            name: *const u8,
            name_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_remove_header_map_value(
            map: u32,
            name: *const u8,
            name_size: usize,
        ) -> u32;
        pub(super) fn proxy_get_property(
            path: *const u8,
            path_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_property(
            path: *const u8,
            path_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_record_metric(id: u32, value: u64) -> u32;
        pub(super) fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_size: usize,
            body: *const u8,
            body_size: usize,
            fields: *const u8,
            fields_size: usize,
            grpc_status: i32,
        ) -> u32;
        pub(super) fn proxy_continue_stream(stream: u32) -> u32;
        pub(super) fn proxy_set_effective_context(context: u32) -> u32;
        pub(super) fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
        pub(super) fn proxy_grpc_send(token: u32, message: *const u8, size: usize, end: u32)
        -> u32;
        pub(super) fn proxy_grpc_cancel(token: u32) -> u32;
        pub(super) fn proxy_grpc_close(token: u32) -> u32;
        pub(super) fn proxy_define_metric(
            kind: u32,
            name: *const u8,
            size: usize,
            id: *mut u32,
        ) -> u32;
        pub(super) fn proxy_increment_metric(id: u32, by: i64) -> u32;
        pub(super) fn proxy_done() -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
        pub(super) fn random_get(buffer: *mut u8, size: usize) -> u32;
    }
}

/// Writes a line to the proxy's log.
pub(crate) fn log(level: Level, message: &str) {
    // SAFETY: the host reads `message.len()` bytes and keeps nothing. There is nobody to tell of a failure.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let _status = unsafe { abi::proxy_log(level as u32, message.as_ptr(), message.len()) };
}

/// Milliseconds of the host's monotonic clock.
pub(crate) fn monotonic_ms() -> u64 {
    let mut nanoseconds = 0;
    // SAFETY: the host writes one u64. Where it has no clock, time stands still and nothing expires.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let _status = unsafe { abi::clock_time_get(CLOCK_MONOTONIC, 1_000_000, &raw mut nanoseconds) };
    nanoseconds / 1_000_000
}

/// 16 fresh random bytes; `None` when the host has none to give.
pub(crate) fn random() -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: the host writes `bytes.len()` bytes.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::random_get(bytes.as_mut_ptr(), bytes.len()) };
    (status == OK).then_some(bytes)
}

/// The first `size` bytes of a buffer.
pub(crate) fn buffer(buffer: Buffer, size: usize) -> Option<Vec<u8>> {
    // SAFETY: the host allocates through our own allocator and writes pointer and size of it.
    #[expect(unsafe_code, reason = "the host's ABI")]
    returned(|data, got| unsafe { abi::proxy_get_buffer_bytes(buffer as u32, 0, size, data, got) })
}

/// The first value of a header.
pub(crate) fn header(map: Map, name: &str) -> Option<Vec<u8>> {
    // SAFETY: the host reads the name, allocates through our own allocator and writes pointer and size of it.
    #[expect(unsafe_code, reason = "the host's ABI")]
    returned(|data, size| unsafe {
        abi::proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), data, size)
    })
}

/// All header lines, in order.
pub(crate) fn headers(map: Map) -> Vec<Field> {
    // SAFETY: the host allocates through our own allocator and writes pointer and size of it.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let pairs =
        returned(|data, size| unsafe { abi::proxy_get_header_map_pairs(map as u32, data, size) });
    pairs
        .and_then(|pairs| read_pairs(&pairs))
        .unwrap_or_default()
}

/// Adds a header line.
pub(crate) fn add_header(map: Map, name: &[u8], value: &[u8]) -> bool {
    // SAFETY: the host reads name and value and keeps nothing of ours.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe {
        abi::proxy_add_header_map_value(
            map as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    };
    status == OK
}

/// Sets a header to one line.
pub(crate) fn set_header(map: Map, name: &str, value: &str) -> bool {
    // SAFETY: the host reads name and value and keeps nothing of ours.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe {
        abi::proxy_replace_header_map_value(
            map as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    };
    status == OK
}

/// Removes all lines of a header.
pub(crate) fn remove_header(map: Map, name: &str) -> bool {
    // SAFETY: the host reads the name and keeps nothing of ours.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status =
        unsafe { abi::proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) };
    status == OK
}

/// A property of the stream. `path` has its parts separated by NUL.
pub(crate) fn property(path: &str) -> Option<Vec<u8>> {
    // SAFETY: the host reads the path, allocates through our own allocator and writes pointer and size of it.
    #[expect(unsafe_code, reason = "the host's ABI")]
    returned(|data, size| unsafe { abi::proxy_get_property(path.as_ptr(), path.len(), data, size) })
}

/// Sets a property of the stream, which the access log reads as `%FILTER_STATE(wasm.NAME:PLAIN)%`.
pub(crate) fn set_property(name: &str, value: &str) -> bool {
    // SAFETY: the host reads name and value and keeps nothing of ours.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status =
        unsafe { abi::proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
    status == OK
}

/// Answers the effective context's client. Only a gRPC caller sees `grpc_status`.
pub(crate) fn answer(
    status: u16,
    grpc_status: Option<u32>,
    details: &str,
    fields: &[Field],
    body: &[u8],
) -> bool {
    let grpc_status = grpc_status
        .and_then(|status| i32::try_from(status).ok())
        .unwrap_or(-1);
    let fields = write_pairs(fields);
    // SAFETY: the host reads all four ranges and keeps nothing of ours.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe {
        abi::proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            fields.as_ptr(),
            fields.len(),
            grpc_status,
        )
    };
    status == OK
}

/// Lets the effective context's request go on.
pub(crate) fn resume_request() -> bool {
    // SAFETY: no memory is passed.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_continue_stream(STREAM_REQUEST) };
    status == OK
}

/// Lets the effective context's response go on.
pub(crate) fn resume_response() -> bool {
    // SAFETY: no memory is passed.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_continue_stream(STREAM_RESPONSE) };
    status == OK
}

/// Makes a context the one that the next calls are about. Ok does not mean that it lives.
pub(crate) fn enter(context: u32) -> bool {
    // SAFETY: no memory is passed.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_set_effective_context(context) };
    status == OK
}

/// Asks for a tick every `ms` milliseconds.
pub(crate) fn tick_every(ms: u32) -> bool {
    // SAFETY: no memory is passed.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_set_tick_period_milliseconds(ms) };
    status == OK
}

/// Sends a message on a gRPC stream.
pub(crate) fn grpc_send(token: u32, message: &[u8]) -> bool {
    // SAFETY: the host reads the message and keeps nothing of ours.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_grpc_send(token, message.as_ptr(), message.len(), 0) };
    status == OK
}

/// Resets a gRPC stream: no callback follows.
pub(crate) fn grpc_cancel(token: u32) -> bool {
    // SAFETY: no memory is passed.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_grpc_cancel(token) };
    status == OK
}

/// Frees what the host keeps of a gRPC stream that has ended.
pub(crate) fn grpc_close(token: u32) -> bool {
    // SAFETY: no memory is passed.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_grpc_close(token) };
    status == OK
}

/// Kinds of metrics of the proxy-wasm ABI 0.2.1.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Metric {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

/// Defines a metric.
pub(crate) fn metric(kind: Metric, name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the host reads the name and writes one u32.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status =
        unsafe { abi::proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id) };
    (status == OK).then_some(id)
}

/// Adds a value to a histogram.
pub(crate) fn record(id: u32, value: u64) {
    // SAFETY: no memory is passed. A value that is not taken is nobody's to repair.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let _status = unsafe { abi::proxy_record_metric(id, value) };
}

/// Adds to a counter or a gauge.
pub(crate) fn add(id: u32, by: i64) {
    // SAFETY: no memory is passed. A count that is not taken is nobody's to repair.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let _status = unsafe { abi::proxy_increment_metric(id, by) };
}

/// Tells the host that a root that was asked to end has ended.
pub(crate) fn done() -> bool {
    // SAFETY: no memory is passed.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let status = unsafe { abi::proxy_done() };
    status == OK
}

/// Calls a host function that returns bytes, which it allocated through our exported allocator.
fn returned(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<Vec<u8>> {
    let mut data: *mut u8 = std::ptr::null_mut();
    let mut size = 0_usize;
    let status = call(&raw mut data, &raw mut size);
    if status != OK || data.is_null() {
        return None;
    }
    // SAFETY: the host got `data` from `proxy_on_memory_allocate`, which made a boxed slice of `size` bytes; nobody
    // else has it.
    #[expect(unsafe_code, reason = "the host's ABI")]
    let slice = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)) };
    Some(slice.into_vec())
}

/// Header lines as the ABI writes them: a count, the sizes, then names and values, each ended by NUL.
fn write_pairs(fields: &[Field]) -> Vec<u8> {
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let bytes: usize = fields
        .iter()
        .map(|field| field.name.len() + field.value.len() + 10)
        .sum();
    let mut pairs = Vec::with_capacity(4 + bytes);
    pairs.extend_from_slice(
        &u32::try_from(fields.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    for field in fields {
        pairs.extend_from_slice(&size(&field.name));
        pairs.extend_from_slice(&size(&field.value));
    }
    for field in fields {
        pairs.extend_from_slice(&field.name);
        pairs.push(0);
        pairs.extend_from_slice(&field.value);
        pairs.push(0);
    }
    pairs
}

/// The reverse of [`write_pairs`]; `None` when the bytes do not add up.
fn read_pairs(pairs: &[u8]) -> Option<Vec<Field>> {
    let number = |at: usize| {
        let bytes = pairs.get(at..at.checked_add(4)?)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let count = number(0)?;
    let mut at = count.checked_mul(8)?.checked_add(4)?;
    let mut fields = Vec::with_capacity(count.min(pairs.len() / 8));
    for index in 0..count {
        let sizes = index.checked_mul(8)?.checked_add(4)?;
        let (name_size, value_size) = (number(sizes)?, number(sizes.checked_add(4)?)?);
        let name = pairs.get(at..at.checked_add(name_size)?)?;
        at = at.checked_add(name_size)?.checked_add(1)?;
        let value = pairs.get(at..at.checked_add(value_size)?)?;
        at = at.checked_add(value_size)?.checked_add(1)?;
        fields.push(Field::received(name.to_vec(), value.to_vec()));
    }
    Some(fields)
}
