//! The functions of `mccl/c.h` that this crate uses.

use std::ffi::c_void;
use std::os::raw::c_char;

/// A handle of a context, a group or a store. The C interface checks that its type is the expected
/// one.
pub type Handle = *mut c_void;

#[repr(C)]
pub struct ContextOptions {
    pub struct_size: u32,
    pub rank: i32,
    pub size: i32,
    pub flags: u32,
    pub store: Handle,
    pub config: Handle,
}

#[link(name = "mccl")]
extern "C" {
    pub fn mccl_version() -> *const c_char;
    pub fn mccl_last_error() -> *const c_char;

    pub fn mccl_store_memory(store: *mut Handle) -> i32;
    pub fn mccl_store_destroy(store: Handle);

    pub fn mccl_context_create(options: *const ContextOptions, context: *mut Handle) -> i32;
    pub fn mccl_context_from_environment(config: Handle, context: *mut Handle) -> i32;
    pub fn mccl_context_world(context: Handle, group: *mut Handle) -> i32;
    pub fn mccl_context_destroy(context: Handle);

    pub fn mccl_group_rank(group: Handle) -> i32;
    pub fn mccl_group_size(group: Handle) -> i32;
    pub fn mccl_group_split(group: Handle, color: i32, key: i32, part: *mut Handle) -> i32;
    pub fn mccl_group_shrink(group: Handle, timeout_ms: i64, rest: *mut Handle) -> i32;
    pub fn mccl_group_abort(group: Handle, reason: *const c_char) -> i32;
    pub fn mccl_group_destroy(group: Handle);

    // If `options` and `work` are null, these functions block until the call is done.
    pub fn mccl_all_reduce(
        group: Handle, input: *const c_void, output: *mut c_void, count: usize, dtype: i32, op: i32,
        options: *const c_void, work: *mut Handle,
    ) -> i32;
    pub fn mccl_broadcast(
        group: Handle, data: *mut c_void, count: usize, dtype: i32, root: i32,
        options: *const c_void, work: *mut Handle,
    ) -> i32;
    pub fn mccl_all_gather(
        group: Handle, input: *const c_void, output: *mut c_void, count: usize, dtype: i32,
        options: *const c_void, work: *mut Handle,
    ) -> i32;
    pub fn mccl_reduce_scatter(
        group: Handle, input: *const c_void, output: *mut c_void, count: usize, dtype: i32, op: i32,
        options: *const c_void, work: *mut Handle,
    ) -> i32;
    pub fn mccl_all_to_all(
        group: Handle, input: *const c_void, output: *mut c_void, count: usize, dtype: i32,
        options: *const c_void, work: *mut Handle,
    ) -> i32;
    pub fn mccl_barrier(group: Handle, options: *const c_void, work: *mut Handle) -> i32;
    pub fn mccl_send(
        group: Handle, data: *const c_void, count: usize, dtype: i32, peer: i32, tag: u32,
        options: *const c_void, work: *mut Handle,
    ) -> i32;
    pub fn mccl_recv(
        group: Handle, data: *mut c_void, count: usize, dtype: i32, peer: i32, tag: u32,
        options: *const c_void, work: *mut Handle,
    ) -> i32;
}
