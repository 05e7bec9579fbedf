// An MPI library of any supported ABI (see abi.h), loaded at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "backend/mpi/abi.h"
#include "base/library.h"
#include "mccl/error.h"

namespace mccl::mpi {

std::string_view name_of(ThreadLevel level);

/// A message that has arrived and that MPI has not begun to receive.
struct Arrival {
  int source = -1;
  std::size_t bytes = 0;
  Handle message = 0;
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

class MpiLibrary;

/// A function of the library. operator() converts handles to the ABI's form, numbers or pointers.
/// If the function fails, operator() throws an Error with MPI's own text.
template <typename... Arguments>
class Function {
 public:
  Function(const MpiLibrary& library, const char* name);
  void operator()(Arguments... arguments) const;

 private:
  /// Converts an argument to the type of the ABI. `Native` is the ABI's type of handles. The
  /// machine is little-endian, so MPI can write a 32-bit handle to the address of a Handle.
  template <typename Native, typename T>
  static auto native(T argument) {
    if constexpr (std::is_same_v<T, Handle> && std::is_pointer_v<Native>) {
      return reinterpret_cast<Native>(argument);  // NOLINT(performance-no-int-to-ptr)
    } else if constexpr (std::is_same_v<T, Handle>) {
      return static_cast<Native>(argument);
    } else if constexpr (std::is_same_v<T, Handle*>) {
      return reinterpret_cast<Native*>(argument);
    } else {
      return argument;
    }
  }
  template <typename Native>
  int call(Arguments... arguments) const {
    using Pointer = int (*)(decltype(native<Native>(std::declval<Arguments>()))...);
    return reinterpret_cast<Pointer>(address_)(native<Native>(arguments)...);
  }

  const MpiLibrary& library_;
  const char* const name_;
  void* const address_;
};

/// A collective in MPI's nonblocking form (`begins`) and its blocking form (`waits`). The last
/// argument of both is the communicator.
template <typename... Arguments>
struct CollectiveFunction {
  CollectiveFunction(const MpiLibrary& library, const char* beginning, const char* waiting)
      : begins(library, beginning), waits(library, waiting) {}
  Function<Arguments..., Handle, Handle*> begins;
  Function<Arguments..., Handle> waits;
};

/// The functions of an MPI library, with MPI's names without the prefix MPI_. Thread-safe as far as
/// the thread level of MPI allows.
class MpiLibrary {
  using In = const void*;
  using Out = void*;
  using Ints = const int*;
  using Comm = Handle;
  using Type = Handle;
  using Op = Handle;
  using Request = Handle;

 public:
  MpiLibrary(const SharedLibrary& file, const Abi& abi);
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  const SharedLibrary& file() const { return file_; }
  const Abi& abi() const { return abi_; }
  const Identity& identity() const { return identity_; }
  Handle type_of(DType dtype) const { return abi_.types[static_cast<int>(dtype)]; }
  void* in_place() const;

  bool initialized() const { return flag(Initialized); }
  bool finalized() const { return flag(Finalized); }
  ThreadLevel init(ThreadLevel wanted) const;
  ThreadLevel level() const;
  int rank(Comm comm) const;
  int size(Comm comm) const;
  int largest_tag(Comm comm) const;
  /// Makes MPI return later errors on `comm` instead of aborting the job.
  void return_errors(Comm comm) const { Comm_set_errhandler(comm, abi_.errors_return); }
  Comm duplicate(Comm comm) const;
  /// Creates a communicator of `count` ranks of `comm`. Blocks until all these ranks call this.
  Comm create_group(Comm comm, const int* ranks, int count, int tag) const;
  /// Creates a type whose element has `bytes` bytes, for a message whose size exceeds the range of
  /// int.
  Type create_long_type(std::size_t bytes) const;

  /// Creates the MPI_Ops that operation() returns, which are never freed. Must be called after MPI
  /// is initialised.
  void create_operations();
  /// Returns the MPI_Op of a type and a reduction, which supports() must allow. The MPI_Op of avg
  /// and premul_sum is that of sum. MPI's predefined operations are used where they give the same
  /// result as MCCL's kernels. Elsewhere, the kernel is registered with MPI: for all reductions of
  /// 16-bit floats and of bool, and for min and max of all floats, because MCCL's min and max
  /// propagate NaN.
  Op operation(DType dtype, ReduceKind kind) const {
    return operations_[static_cast<int>(dtype)][static_cast<int>(kind)];
  }

  /// Starts a nonblocking call and returns its request. If `waits` is true, makes MPI's blocking
  /// call instead and returns no_request. All ranks must use the same form, because MPI does not
  /// match one form with the other.
  template <typename Call, typename... Arguments>
  Request begin(const Call& call, bool waits, Arguments... arguments) const {
    Request request = 0;
    if (!waits) {
      call.begins(arguments..., &request);
      return request;
    }
    call.waits(arguments...);
    return abi_.no_request;
  }
  /// Returns true if the request has completed. MPI has then released the request and reset
  /// `request`. Throws if the request has completed with an error.
  bool test(Request& request) const;
  /// Returns the first message from `source` (or Abi::any_source) with this tag that has arrived;
  /// std::nullopt if there is none. receive() must be called for it.
  std::optional<Arrival> match(int source, int tag, Comm comm) const;
  /// Begins to receive a message that match() has returned, and returns the request.
  Request receive(Out memory, int count, Type type, Handle message) const;

  /// Throws the error of the MPI function `function`, which has returned `code`.
  [[noreturn]] void fail(const char* function, int code) const;

 private:
  bool flag(const Function<int*>& function) const;
  ThreadLevel level_of(int number) const;

  const SharedLibrary file_;
  const Abi abi_;
  Identity identity_;  ///< Declared before the functions, whose error messages contain it.
  Op operations_[kDTypeCount][kReduceKindCount] = {};

  const Function<int*> Initialized{*this, "MPI_Initialized"};
  const Function<int*> Finalized{*this, "MPI_Finalized"};
  const Function<int*, char***, int, int*> Init_thread{*this, "MPI_Init_thread"};
  const Function<int*> Query_thread{*this, "MPI_Query_thread"};
  const Function<char*, int*> Get_library_version{*this, "MPI_Get_library_version"};
  const Function<int, char*, int*> Error_string{*this, "MPI_Error_string"};
  const Function<Comm, int*> Comm_rank{*this, "MPI_Comm_rank"};
  const Function<Comm, int*> Comm_size{*this, "MPI_Comm_size"};
  const Function<Comm, int, Out, int*> Comm_get_attr{*this, "MPI_Comm_get_attr"};
  const Function<Comm, Handle*> Comm_dup{*this, "MPI_Comm_dup"};
  const Function<Comm, Handle*> Comm_group{*this, "MPI_Comm_group"};
  const Function<Handle, int, Ints, Handle*> Group_incl{*this, "MPI_Group_incl"};
  const Function<Handle*> Group_free{*this, "MPI_Group_free"};
  const Function<Comm, Handle, int, Handle*> Comm_create_group{*this, "MPI_Comm_create_group"};
  const Function<void (*)(void*, void*, int*, void*), int, Handle*> Op_create{*this,
                                                                              "MPI_Op_create"};
  const Function<int, Type, Handle*> Type_contiguous{*this, "MPI_Type_contiguous"};
  const Function<int, Ints, const std::intptr_t*, In, Handle*> Type_create_struct{
      *this, "MPI_Type_create_struct"};
  const Function<Handle*> Type_commit{*this, "MPI_Type_commit"};
  const Function<Handle*, int*, Status*> Test{*this, "MPI_Test"};
  const Function<int, int, Comm, int*, Handle*, Status*> Improbe{*this, "MPI_Improbe"};
  const Function<Out, int, Type, Handle*, Handle*> Imrecv{*this, "MPI_Imrecv"};
  const Function<const Status*, Type, std::int64_t*> Get_elements_x{*this, "MPI_Get_elements_x"};

 public:
  const Function<> Finalize{*this, "MPI_Finalize"};
  /// Ends all ranks of the job, without MPI_Finalize. The call may never return.
  const Function<Comm, int> Abort{*this, "MPI_Abort"};
  const Function<Comm, Handle*> Comm_get_errhandler{*this, "MPI_Comm_get_errhandler"};
  const Function<Comm, Handle> Comm_set_errhandler{*this, "MPI_Comm_set_errhandler"};
  const Function<Handle*> Comm_free{*this, "MPI_Comm_free"};
  const Function<Handle*> Type_free{*this, "MPI_Type_free"};

  const Function<Comm, Handle*> Ibarrier{*this, "MPI_Ibarrier"};
  const Function<In, int, Type, int, int, Comm, Handle*> Isend{*this, "MPI_Isend"};
  const CollectiveFunction<Out, int, Type, int> Bcast{*this, "MPI_Ibcast", "MPI_Bcast"};
  const CollectiveFunction<In, Out, int, Type, Op> Allreduce{*this, "MPI_Iallreduce",
                                                             "MPI_Allreduce"};
  const CollectiveFunction<In, Out, int, Type, Op, int> Reduce{*this, "MPI_Ireduce", "MPI_Reduce"};
  const CollectiveFunction<In, int, Type, Out, int, Type> Allgather{*this, "MPI_Iallgather",
                                                                    "MPI_Allgather"};
  const CollectiveFunction<In, int, Type, Out, Ints, Ints, Type> Allgatherv{
      *this, "MPI_Iallgatherv", "MPI_Allgatherv"};
  const CollectiveFunction<In, int, Type, Out, int, Type, int> Gather{*this, "MPI_Igather",
                                                                      "MPI_Gather"};
  const CollectiveFunction<In, int, Type, Out, Ints, Ints, Type, int> Gatherv{*this, "MPI_Igatherv",
                                                                              "MPI_Gatherv"};
  const CollectiveFunction<In, int, Type, Out, int, Type, int> Scatter{*this, "MPI_Iscatter",
                                                                       "MPI_Scatter"};
  const CollectiveFunction<In, Ints, Ints, Type, Out, int, Type, int> Scatterv{
      *this, "MPI_Iscatterv", "MPI_Scatterv"};
  const CollectiveFunction<In, Out, int, Type, Op> Reduce_scatter_block{
      *this, "MPI_Ireduce_scatter_block", "MPI_Reduce_scatter_block"};
  const CollectiveFunction<In, Out, Ints, Type, Op> Reduce_scatter{*this, "MPI_Ireduce_scatter",
                                                                   "MPI_Reduce_scatter"};
  const CollectiveFunction<In, int, Type, Out, int, Type> Alltoall{*this, "MPI_Ialltoall",
                                                                   "MPI_Alltoall"};
};

template <typename... Arguments>
Function<Arguments...>::Function(const MpiLibrary& library, const char* name)
    : library_(library), name_(name), address_(library.file().require(name)) {}

template <typename... Arguments>
void Function<Arguments...>::operator()(Arguments... arguments) const {
  const int code =
      library_.abi().handles_are_numbers ? call<int>(arguments...) : call<void*>(arguments...);
  if (code != 0) [[unlikely]]
    library_.fail(name_, code);
}

}  // namespace mccl::mpi
