// One interface for MPI libraries of every ABI, loaded at run time. Most functions call the MPI
// function of the same name. All of them check the error code that MPI returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mccl/error.h"
#include "mccl/types.h"

namespace mccl::mpi {

/// An MPI handle of a communicator, type, operation or request. It is wide enough for every ABI.
using Handle = std::uintptr_t;

/// MPI's thread levels. Their numbers differ between ABIs.
enum class ThreadLevel { single, funneled, serialized, multiple };
std::string_view name_of(ThreadLevel level);

/// Those of MPI's predefined reductions that MCCL uses.
enum class Predefined { sum, product, min, max, band, bor, bxor };
inline constexpr int kPredefinedCount = 7;

/// The result of a receive.
struct Arrival {
  int source = -1;
  std::int64_t bytes = 0;
  bool cancelled = false;
};

/// MPI's constants in one ABI.
struct Constants {
  Handle world = 0;
  Handle self = 0;
  Handle errors_return = 0;
  Handle no_request = 0;
  Handle byte = 0;
  Handle types[kDTypeCount] = {};  ///< Indexed by DType. 16-bit floats use u16, bool uses u8.
  Handle predefined[kPredefinedCount] = {};
  void* in_place = nullptr;
  int any_source = 0;
  int tag_bound = 0;  ///< Key of the attribute MPI_TAG_UB.
  int truncated = 0;  ///< MPI_ERR_TRUNCATE.
  int levels[4] = {};
};

/// Identifies the library by its version, such as "Open MPI 4.1.4", its file and its ABI.
struct Identity {
  std::string version;
  std::string path;
  std::string abi;
  std::string describe() const { return version + " (" + path + ", " + abi + ")"; }
};

/// Shortens "Open MPI v4.1.4, package: …" to "Open MPI 4.1.4", and "MPICH Version:\t4.0.2\n…" to
/// "MPICH 4.0.2".
std::string short_version(std::string_view text);

/// Error of an MPI call, with MPI's own text.
class LibraryError : public Error {
 public:
  LibraryError(const std::string& what, bool truncated) : Error(what), truncated_(truncated) {}
  /// True if a message was longer than the buffer for it.
  bool truncated() const { return truncated_; }

 private:
  bool truncated_;
};

/// Thread-safe as far as the thread level of MPI allows. Functions throw LibraryError if MPI fails.
class Library {
 public:
  virtual ~Library() = default;

  const Identity& identity() const { return identity_; }
  const Constants& constants() const { return constants_; }
  Handle type_of(DType dtype) const { return constants_.types[static_cast<int>(dtype)]; }

  virtual bool initialized() = 0;
  virtual bool finalized() = 0;
  virtual ThreadLevel init(ThreadLevel wanted) = 0;
  virtual ThreadLevel level() = 0;
  virtual void finalize() = 0;
  /// Ends all ranks of the job with this status, without MPI_Finalize. May not return.
  virtual void abort(int status) = 0;

  virtual int rank(Handle comm) = 0;
  virtual int size(Handle comm) = 0;
  virtual int largest_tag(Handle comm) = 0;
  /// Makes MPI return later errors on `comm` instead of aborting the job.
  virtual void return_errors(Handle comm) = 0;
  /// The error handler of `comm`. Saved and restored around MCCL's calls on a communicator of the
  /// program.
  virtual Handle error_handler(Handle comm) = 0;
  virtual void set_error_handler(Handle comm, Handle handler) = 0;
  virtual Handle duplicate(Handle comm) = 0;
  /// Creates a communicator of `count` ranks of `comm`, all of which must call this. Blocks.
  virtual Handle create_group(Handle comm, const int* ranks, int count, int tag) = 0;
  virtual void free_comm(Handle comm) = 0;
  virtual Handle create_op(void (*function)(void*, void*, int*, void*)) = 0;
  /// Creates a type whose element has `bytes` bytes, for a message whose size exceeds the range of
  /// int.
  virtual Handle create_long_type(std::size_t bytes) = 0;
  virtual void free_type(Handle type) = 0;

  // Each of the following functions starts a nonblocking call and returns its request. If `waits`
  // is true, it makes MPI's blocking call instead and returns no_request. All ranks must use the
  // same form, because MPI does not match one form with the other.
  virtual Handle ibarrier(Handle comm) = 0;
  virtual Handle bcast(void* data, int count, Handle type, int root, Handle comm, bool waits) = 0;
  virtual Handle allreduce(const void* in, void* out, int count, Handle type, Handle op,
                           Handle comm, bool waits) = 0;
  virtual Handle reduce(const void* in, void* out, int count, Handle type, Handle op, int root,
                        Handle comm, bool waits) = 0;
  virtual Handle allgather(const void* in, int in_count, void* out, int out_count, Handle type,
                           Handle comm, bool waits) = 0;
  virtual Handle allgatherv(const void* in, int in_count, void* out, const int* counts,
                            const int* offsets, Handle type, Handle comm, bool waits) = 0;
  virtual Handle gather(const void* in, int in_count, void* out, int out_count, Handle type,
                        int root, Handle comm, bool waits) = 0;
  virtual Handle gatherv(const void* in, int in_count, void* out, const int* counts,
                         const int* offsets, Handle type, int root, Handle comm, bool waits) = 0;
  virtual Handle scatter(const void* in, int in_count, void* out, int out_count, Handle type,
                         int root, Handle comm, bool waits) = 0;
  virtual Handle scatterv(const void* in, const int* counts, const int* offsets, void* out,
                          int out_count, Handle type, int root, Handle comm, bool waits) = 0;
  virtual Handle reduce_scatter_block(const void* in, void* out, int count, Handle type, Handle op,
                                      Handle comm, bool waits) = 0;
  virtual Handle reduce_scatter(const void* in, void* out, const int* counts, Handle type,
                                Handle op, Handle comm, bool waits) = 0;
  virtual Handle alltoall(const void* in, int in_count, void* out, int out_count, Handle type,
                          Handle comm, bool waits) = 0;
  virtual Handle isend(const void* data, int count, Handle type, int peer, int tag,
                       Handle comm) = 0;
  virtual Handle irecv(void* data, int count, Handle type, int peer, int tag, Handle comm) = 0;

  /// Returns true if the request has completed. MPI has then released it, `request` is reset, and
  /// `arrival` is filled in unless it is null. If this throws, the request has completed with an
  /// error.
  virtual bool test(Handle& request, Arrival* arrival) = 0;
  virtual void cancel(Handle request) = 0;

 protected:
  Identity identity_;
  Constants constants_;
};

}  // namespace mccl::mpi
