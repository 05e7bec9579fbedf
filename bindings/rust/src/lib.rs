//! Safe Rust interface of MCCL: blocking collectives on slices.
//!
//! Buffers are slices, which a call borrows until it returns. Every call therefore blocks until it
//! is done. Only the C interface, `mccl/c.h`, has asynchronous calls, compression and settings.
//!
//! ```no_run
//! let context = mccl::Context::from_environment()?;
//! let world = context.world()?;
//! let mut x = [world.rank() as f32 + 1.0; 4];
//! world.all_reduce(&mut x, mccl::Op::Sum)?;
//! # Ok::<(), mccl::Error>(())
//! ```

mod ffi;

use std::ffi::{c_void, CStr, CString};
use std::{fmt, ptr};

use ffi::Handle;

/// The error of a failed call. The message names the rank, the peer and the call, and says what to
/// do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Status of the C interface, such as 3 for a peer that died.
    pub status: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Op {
    Sum = 0,
    Avg = 1,
    Product = 2,
    Min = 3,
    Max = 4,
    BitAnd = 5,
    BitOr = 6,
    BitXor = 7,
}

/// The type of an element.
///
/// # Safety
/// `CODE` must be the number of this type in `mccl/c.h`, and every bit pattern must be a valid
/// value of this type.
pub unsafe trait Element: Copy {
    const CODE: i32;
}

macro_rules! elements {
    ($($type:ty = $code:literal),*) => { $(unsafe impl Element for $type { const CODE: i32 = $code; })* };
}
elements!(u8 = 1, i8 = 2, u16 = 3, i16 = 4, u32 = 5, i32 = 6, u64 = 7, i64 = 8, f32 = 11, f64 = 12);

/// The version of the library that is loaded.
pub fn version() -> String {
    text(unsafe { ffi::mccl_version() })
}

/// A store for ranks that are threads of one process.
pub struct Store(Handle);

impl Store {
    pub fn in_memory() -> Result<Store> {
        made(|handle| unsafe { ffi::mccl_store_memory(handle) }).map(Store)
    }
}

/// This process's membership in a job.
pub struct Context(Handle);

impl Context {
    /// Joins the job that the environment variables of a launcher such as `mccl launch` describe.
    pub fn from_environment() -> Result<Context> {
        made(|handle| unsafe { ffi::mccl_context_from_environment(ptr::null_mut(), handle) })
            .map(Context)
    }

    /// Joins the other ranks that use the same store.
    pub fn new(rank: i32, size: i32, store: &Store) -> Result<Context> {
        let options = ffi::ContextOptions {
            struct_size: std::mem::size_of::<ffi::ContextOptions>() as u32,
            rank,
            size,
            flags: 0,
            store: store.0,
            config: ptr::null_mut(),
        };
        made(|handle| unsafe { ffi::mccl_context_create(&options, handle) }).map(Context)
    }

    /// The group of all ranks. Its calls fail once the context is dropped.
    pub fn world(&self) -> Result<Group> {
        made(|handle| unsafe { ffi::mccl_context_world(self.0, handle) }).map(Group)
    }
}

/// Ranks that communicate together. All ranks of a group must make matching calls.
pub struct Group(Handle);

impl Group {
    pub fn rank(&self) -> usize {
        unsafe { ffi::mccl_group_rank(self.0) as usize }
    }

    pub fn size(&self) -> usize {
        unsafe { ffi::mccl_group_size(self.0) as usize }
    }

    /// Replaces `data` by the reduction of all ranks' `data`.
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: Op) -> Result<()> {
        let buffer = address_mut(data);
        check(unsafe {
            ffi::mccl_all_reduce(
                self.0, buffer, buffer, data.len(), T::CODE, op as i32, NONE, NO_WORK,
            )
        })
    }

    /// Replaces `data` by root's `data`.
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        check(unsafe {
            ffi::mccl_broadcast(
                self.0, address_mut(data), data.len(), T::CODE, rank_of(root), NONE, NO_WORK,
            )
        })
    }

    /// Fills `output` with every rank's `input`, in the order of the ranks.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.require("all_gather", output.len(), input.len())?;
        check(unsafe {
            ffi::mccl_all_gather(
                self.0, address(input), address_mut(output), input.len(), T::CODE, NONE, NO_WORK,
            )
        })
    }

    /// Fills `output` with this rank's part of the reduction of all ranks' `input`.
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<()> {
        self.require("reduce_scatter", input.len(), output.len())?;
        check(unsafe {
            ffi::mccl_reduce_scatter(
                self.0, address(input), address_mut(output), output.len(), T::CODE, op as i32,
                NONE, NO_WORK,
            )
        })
    }

    /// Sends part j of `input` to rank j, and receives part i of `output` from rank i.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let count = input.len() / self.size().max(1);
        self.require("all_to_all", input.len(), count)?;
        self.require("all_to_all", output.len(), count)?;
        check(unsafe {
            ffi::mccl_all_to_all(
                self.0, address(input), address_mut(output), count, T::CODE, NONE, NO_WORK,
            )
        })
    }

    /// Returns once every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        check(unsafe { ffi::mccl_barrier(self.0, NONE, NO_WORK) })
    }

    /// Sends a message, which the peer must receive with the same tag.
    pub fn send<T: Element>(&self, data: &[T], peer: usize, tag: u32) -> Result<()> {
        check(unsafe {
            ffi::mccl_send(
                self.0, address(data), data.len(), T::CODE, rank_of(peer), tag, NONE, NO_WORK,
            )
        })
    }

    /// Receives the oldest message that the peer has sent with this tag. Its size must be that of
    /// `data`.
    pub fn recv<T: Element>(&self, data: &mut [T], peer: usize, tag: u32) -> Result<()> {
        check(unsafe {
            ffi::mccl_recv(
                self.0, address_mut(data), data.len(), T::CODE, rank_of(peer), tag, NONE, NO_WORK,
            )
        })
    }

    /// Divides the group: ranks with the same color form a new group, ordered by key. Returns None
    /// for a negative color.
    pub fn split(&self, color: i32, key: i32) -> Result<Option<Group>> {
        let part = made(|handle| unsafe { ffi::mccl_group_split(self.0, color, key, handle) })?;
        Ok(if part.is_null() { None } else { Some(Group(part)) })
    }

    /// Makes a group of the surviving ranks after other ranks have died.
    pub fn shrink(&self) -> Result<Group> {
        made(|handle| unsafe { ffi::mccl_group_shrink(self.0, 0, handle) }).map(Group)
    }

    /// Fails all calls of the group on every rank.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        check(unsafe { ffi::mccl_group_abort(self.0, reason.as_ptr()) })
    }

    /// Returns an error if `whole` is not `part` times the number of ranks. The C interface takes
    /// only one count, so the lengths of both slices are compared here.
    fn require(&self, call: &str, whole: usize, part: usize) -> Result<()> {
        if part.checked_mul(self.size()) == Some(whole) {
            return Ok(());
        }
        Err(Error {
            status: 1,
            message: format!(
                "{call} on rank {}: one slice has {whole} elements and the other {part}; the \
                 longer slice must have {} times as many elements as the other",
                self.rank(),
                self.size()
            ),
        })
    }
}

macro_rules! handles {
    ($($type:ident: $destroy:ident),*) => { $(
        // All functions of the C interface are thread-safe.
        unsafe impl Send for $type {}
        unsafe impl Sync for $type {}
        impl Drop for $type {
            fn drop(&mut self) {
                unsafe { ffi::$destroy(self.0) }
            }
        }
    )* };
}
handles!(Store: mccl_store_destroy, Context: mccl_context_destroy, Group: mccl_group_destroy);

const NONE: *const c_void = ptr::null();
const NO_WORK: *mut Handle = ptr::null_mut();

fn address<T>(data: &[T]) -> *const c_void {
    data.as_ptr().cast()
}

fn address_mut<T>(data: &mut [T]) -> *mut c_void {
    data.as_mut_ptr().cast()
}

/// Converts a rank. If it exceeds an i32, returns i32::MAX, which the C interface refuses.
fn rank_of(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

fn text(text: *const std::os::raw::c_char) -> String {
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn check(status: i32) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    Err(Error { status, message: text(unsafe { ffi::mccl_last_error() }) })
}

fn made(make: impl FnOnce(*mut Handle) -> i32) -> Result<Handle> {
    let mut handle = ptr::null_mut();
    check(make(&mut handle)).map(|()| handle)
}
