// An MPI library that was loaded at run time, seen through one interface whatever its ABI. Every
// function is MPI's of that name; every code that it returns is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mccl/error.h"
#include "mccl/types.h"

namespace mccl::mpi {

/// MPI's handle of a communicator, type, operation or request, as whole as the ABI has it.
using Handle = std::uintptr_t;

/// MPI's of these names; what numbers they are differs by ABI.
enum class ThreadLevel { single, funneled, serialized, multiple };
std::string_view name_of(ThreadLevel level);

/// The reductions that MPI computes by itself.
enum class Predefined { sum, product, min, max, band, bor, bxor };
inline constexpr int kPredefinedCount = 7;

/// What ends a receive.
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
  Handle types[kDTypeCount] = {};  ///< 16-bit floats are u16, and bool is u8.
  Handle predefined[kPredefinedCount] = {};
  void* in_place = nullptr;
  int any_source = 0;
  int tag_bound = 0;  ///< The attribute MPI_TAG_UB.
  int truncated = 0;  ///< MPI_ERR_TRUNCATE.
  int levels[4] = {};
};

/// Which library this is: "Open MPI 4.1.4", from which file, by which ABI.
struct Identity {
  std::string version;
  std::string path;
  std::string abi;
  std::string describe() const { return version + " (" + path + ", " + abi + ")"; }
};

/// A call of MPI's that failed, with MPI's own words.
class LibraryError : public Error {
 public:
  LibraryError(const std::string& what, bool truncated) : Error(what), truncated_(truncated) {}
  /// A message was longer than the memory for it.
  bool truncated() const { return truncated_; }

 private:
  bool truncated_;
};

/// As thread-safe as the level that MPI was initialised with. Throws LibraryError.
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
  /// From now on what fails on `comm` is returned, and ends nothing.
  virtual void return_errors(Handle comm) = 0;
  /// The same for as long as a call of ours on the program's own communicator takes.
  virtual Handle error_handler(Handle comm) = 0;
  virtual void set_error_handler(Handle comm, Handle handler) = 0;
  virtual Handle duplicate(Handle comm) = 0;
  /// A collective of the `count` ranks of `comm` that are named. Blocks.
  virtual Handle create_group(Handle comm, const int* ranks, int count, int tag) = 0;
  virtual void free_comm(Handle comm) = 0;
  virtual Handle create_op(void (*function)(void*, void*, int*, void*)) = 0;
  /// One element of `bytes` bytes, for a message longer than an int counts.
  virtual Handle create_long_type(std::size_t bytes) = 0;
  virtual void free_type(Handle type) = 0;

  // Each begins a call and returns its request, or with `waits` makes MPI's call that waits for its
  // end, and returns no_request. The two do not match each other.
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

  /// Whether it has ended; then the request is gone, and `arrival`, unless null, is filled.
  virtual bool test(Handle& request, Arrival* arrival) = 0;
  virtual void cancel(Handle request) = 0;

 protected:
  Identity identity_;
  Constants constants_;
};

}  // namespace mccl::mpi
