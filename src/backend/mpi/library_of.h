// An MPI library of one ABI. Its functions are looked up by name and called with the ABI's types.
#pragma once

#include <fmt/format.h>

#include <climits>
#include <string>
#include <string_view>
#include <utility>

#include "backend/mpi/library.h"
#include "base/library.h"

namespace mccl::mpi {

/// Converts a handle to the type that the ABI uses for it, a pointer or a number.
template <typename T>
T as(Handle handle) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(handle);  // NOLINT(performance-no-int-to-ptr): handles are pointers
  } else {
    return static_cast<T>(static_cast<std::uint32_t>(handle));
  }
}

template <typename T>
Handle handle_of(T handle) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<Handle>(handle);
  } else {
    return static_cast<std::uint32_t>(handle);
  }
}

/// Implements Library by the MPI functions of `file`. `Abi` defines the types Comm, Group, Type,
/// Op, Request, Errors (an error handler) and Status (with MPI_SOURCE), the name of the ABI, kName,
/// and a function constants().
template <typename Abi>
class LibraryOf final : public Library {
  using Comm = typename Abi::Comm;
  using Group = typename Abi::Group;
  using Type = typename Abi::Type;
  using Op = typename Abi::Op;
  using Request = typename Abi::Request;
  using Errors = typename Abi::Errors;
  using Status = typename Abi::Status;
  using UserFunction = void(void*, void*, int*, void*);
  using In = const void*;
  using Out = void*;
  using Ints = const int*;

  template <typename... Arguments>
  using Function = LibraryFunction<int(Arguments...)>;

 public:
  explicit LibraryOf(const SharedLibrary& file) : file_(file) {
    constants_ = Abi::constants(file);
    identity_ = {version(), file.path(), Abi::kName};
  }

  bool initialized() override { return flag(initialized_); }
  bool finalized() override { return flag(finalized_); }
  ThreadLevel init(ThreadLevel wanted) override {
    int provided = 0;
    check(init_thread_, nullptr, nullptr, constants_.levels[static_cast<int>(wanted)], &provided);
    return level_of(provided);
  }
  ThreadLevel level() override {
    int provided = 0;
    check(query_thread_, &provided);
    return level_of(provided);
  }
  void finalize() override { check(finalize_); }
  void abort(int status) override { check(abort_, as<Comm>(constants_.world), status); }

  int rank(Handle comm) override {
    int value = 0;
    check(comm_rank_, as<Comm>(comm), &value);
    return value;
  }
  int size(Handle comm) override {
    int value = 0;
    check(comm_size_, as<Comm>(comm), &value);
    return value;
  }
  int largest_tag(Handle comm) override {
    void* value = nullptr;
    int found = 0;
    check(comm_get_attr_, as<Comm>(comm), constants_.tag_bound, static_cast<void*>(&value), &found);
    return found ? *static_cast<int*>(value) : 32767;  // smallest maximum that MPI allows
  }
  void return_errors(Handle comm) override { set_error_handler(comm, constants_.errors_return); }
  Handle error_handler(Handle comm) override {
    Errors handler = {};
    check(comm_get_errhandler_, as<Comm>(comm), &handler);
    return handle_of(handler);
  }
  void set_error_handler(Handle comm, Handle handler) override {
    check(comm_set_errhandler_, as<Comm>(comm), as<Errors>(handler));
  }
  Handle duplicate(Handle comm) override {
    Comm made = {};
    check(comm_dup_, as<Comm>(comm), &made);
    return handle_of(made);
  }
  Handle create_group(Handle comm, const int* ranks, int count, int tag) override {
    Group all = {};
    Group some = {};
    Comm made = {};
    check(comm_group_, as<Comm>(comm), &all);
    check(group_incl_, all, count, ranks, &some);
    check(comm_create_group_, as<Comm>(comm), some, tag, &made);
    check(group_free_, &some);
    check(group_free_, &all);
    return handle_of(made);
  }
  void free_comm(Handle comm) override {
    Comm freed = as<Comm>(comm);
    check(comm_free_, &freed);
  }
  Handle create_op(UserFunction* function) override {
    Op made = {};
    check(op_create_, function, 1, &made);
    return handle_of(made);
  }
  Handle create_long_type(std::size_t bytes) override {
    // The first part consists of pieces of 1 GiB, few enough for an int. The second part is the
    // rest, in bytes.
    constexpr std::size_t kPiece = std::size_t{1} << 30;
    Type piece = {};
    Type whole = {};
    check(type_contiguous_, static_cast<int>(kPiece), as<Type>(constants_.byte), &piece);
    const int counts[] = {static_cast<int>(bytes / kPiece), static_cast<int>(bytes % kPiece)};
    const std::intptr_t offsets[] = {0, static_cast<std::intptr_t>(bytes / kPiece * kPiece)};
    const Type parts[] = {piece, as<Type>(constants_.byte)};
    check(type_create_struct_, 2, counts, offsets, parts, &whole);
    check(type_free_, &piece);
    check(type_commit_, &whole);
    return handle_of(whole);
  }
  void free_type(Handle type) override {
    Type freed = as<Type>(type);
    check(type_free_, &freed);
  }

  Handle ibarrier(Handle comm) override { return request_of(ibarrier_, as<Comm>(comm)); }
  Handle bcast(void* data, int count, Handle type, int root, Handle comm, bool waits) override {
    return begin(bcast_, waits, data, count, as<Type>(type), root, as<Comm>(comm));
  }
  Handle allreduce(In in, Out out, int count, Handle type, Handle op, Handle comm,
                   bool waits) override {
    return begin(allreduce_, waits, in, out, count, as<Type>(type), as<Op>(op), as<Comm>(comm));
  }
  Handle reduce(In in, Out out, int count, Handle type, Handle op, int root, Handle comm,
                bool waits) override {
    return begin(reduce_, waits, in, out, count, as<Type>(type), as<Op>(op), root, as<Comm>(comm));
  }
  Handle allgather(In in, int in_count, Out out, int out_count, Handle type, Handle comm,
                   bool waits) override {
    return begin(allgather_, waits, in, in_count, as<Type>(type), out, out_count, as<Type>(type),
                 as<Comm>(comm));
  }
  Handle allgatherv(In in, int in_count, Out out, Ints counts, Ints offsets, Handle type,
                    Handle comm, bool waits) override {
    return begin(allgatherv_, waits, in, in_count, as<Type>(type), out, counts, offsets,
                 as<Type>(type), as<Comm>(comm));
  }
  Handle gather(In in, int in_count, Out out, int out_count, Handle type, int root, Handle comm,
                bool waits) override {
    return begin(gather_, waits, in, in_count, as<Type>(type), out, out_count, as<Type>(type), root,
                 as<Comm>(comm));
  }
  Handle gatherv(In in, int in_count, Out out, Ints counts, Ints offsets, Handle type, int root,
                 Handle comm, bool waits) override {
    return begin(gatherv_, waits, in, in_count, as<Type>(type), out, counts, offsets,
                 as<Type>(type), root, as<Comm>(comm));
  }
  Handle scatter(In in, int in_count, Out out, int out_count, Handle type, int root, Handle comm,
                 bool waits) override {
    return begin(scatter_, waits, in, in_count, as<Type>(type), out, out_count, as<Type>(type),
                 root, as<Comm>(comm));
  }
  Handle scatterv(In in, Ints counts, Ints offsets, Out out, int out_count, Handle type, int root,
                  Handle comm, bool waits) override {
    return begin(scatterv_, waits, in, counts, offsets, as<Type>(type), out, out_count,
                 as<Type>(type), root, as<Comm>(comm));
  }
  Handle reduce_scatter_block(In in, Out out, int count, Handle type, Handle op, Handle comm,
                              bool waits) override {
    return begin(reduce_scatter_block_, waits, in, out, count, as<Type>(type), as<Op>(op),
                 as<Comm>(comm));
  }
  Handle reduce_scatter(In in, Out out, Ints counts, Handle type, Handle op, Handle comm,
                        bool waits) override {
    return begin(reduce_scatter_, waits, in, out, counts, as<Type>(type), as<Op>(op),
                 as<Comm>(comm));
  }
  Handle alltoall(In in, int in_count, Out out, int out_count, Handle type, Handle comm,
                  bool waits) override {
    return begin(alltoall_, waits, in, in_count, as<Type>(type), out, out_count, as<Type>(type),
                 as<Comm>(comm));
  }
  Handle isend(In data, int count, Handle type, int peer, int tag, Handle comm) override {
    return request_of(isend_, data, count, as<Type>(type), peer, tag, as<Comm>(comm));
  }
  Handle irecv(Out data, int count, Handle type, int peer, int tag, Handle comm) override {
    return request_of(irecv_, data, count, as<Type>(type), peer, tag, as<Comm>(comm));
  }

  bool test(Handle& request, Arrival* arrival) override {
    Request own = as<Request>(request);
    Status status = {};
    int done = 0;
    const int code = test_(&own, &done, &status);
    request = handle_of(own);  // MPI also releases a request that completed with an error
    if (code != 0) [[unlikely]]
      fail(test_.name(), code);
    if (done && arrival) *arrival = arrival_of(status);
    return done != 0;
  }
  void cancel(Handle request) override {
    Request own = as<Request>(request);
    check(cancel_, &own);
  }

 private:
  template <typename F, typename... Arguments>
  void check(const F& function, Arguments... arguments) {
    const int code = function(arguments...);
    if (code != 0) [[unlikely]]
      fail(function.name(), code);
  }
  template <typename F, typename... Arguments>
  Handle request_of(const F& function, Arguments... arguments) {
    Request request = {};
    check(function, arguments..., &request);
    return handle_of(request);
  }

  template <typename F, typename... Arguments>
  Handle begin(const F& function, bool waits, Arguments... arguments) {
    if (!waits) return request_of(function.begins, arguments...);
    check(function.waits, arguments...);
    return constants_.no_request;
  }

  [[noreturn]] void fail(const char* function, int code) {
    char text[1024] = {};  // longer than any ABI's MPI_MAX_ERROR_STRING
    int length = 0;
    int kind = code;
    error_string_(code, text, &length);
    error_class_(code, &kind);
    throw LibraryError(
        fmt::format("{} failed with {} ({})", function, std::string_view(text), identity_.version),
        kind == constants_.truncated);
  }

  template <typename F>
  bool flag(const F& function) {
    int value = 0;
    check(function, &value);
    return value != 0;
  }

  ThreadLevel level_of(int number) const {
    int level = 3;
    while (level > 0 && constants_.levels[level] > number) --level;
    return static_cast<ThreadLevel>(level);
  }

  Arrival arrival_of(Status& status) {
    int cancelled = 0;
    check(test_cancelled_, &status, &cancelled);
    if (cancelled) return {.cancelled = true};
    std::int64_t bytes = 0;
    check(get_elements_x_, &status, as<Type>(constants_.byte), &bytes);
    return {.source = status.MPI_SOURCE, .bytes = bytes};
  }

  /// Returns the name and version of the library, such as "Open MPI 4.1.4".
  std::string version() {
    char text[8192] = {};
    int length = 0;
    get_library_version_(text, &length);
    return short_version(std::string_view(text));
  }

  /// A collective in MPI's nonblocking form (`begins`) and its blocking form (`waits`).
  template <typename... Arguments>
  struct Collective {
    Collective(const SharedLibrary& file, const char* beginning, const char* waiting)
        : begins(file, beginning), waits(file, waiting) {}
    Function<Arguments..., Comm, Request*> begins;
    Function<Arguments..., Comm> waits;
  };

  const SharedLibrary file_;
  Function<int*> initialized_{file_, "MPI_Initialized"};
  Function<int*> finalized_{file_, "MPI_Finalized"};
  Function<int*, char***, int, int*> init_thread_{file_, "MPI_Init_thread"};
  Function<int*> query_thread_{file_, "MPI_Query_thread"};
  Function<> finalize_{file_, "MPI_Finalize"};
  Function<Comm, int> abort_{file_, "MPI_Abort"};
  Function<char*, int*> get_library_version_{file_, "MPI_Get_library_version"};
  Function<int, char*, int*> error_string_{file_, "MPI_Error_string"};
  Function<int, int*> error_class_{file_, "MPI_Error_class"};
  Function<Comm, int*> comm_rank_{file_, "MPI_Comm_rank"};
  Function<Comm, int*> comm_size_{file_, "MPI_Comm_size"};
  Function<Comm, int, void*, int*> comm_get_attr_{file_, "MPI_Comm_get_attr"};
  Function<Comm, Errors*> comm_get_errhandler_{file_, "MPI_Comm_get_errhandler"};
  Function<Comm, Errors> comm_set_errhandler_{file_, "MPI_Comm_set_errhandler"};
  Function<Comm, Comm*> comm_dup_{file_, "MPI_Comm_dup"};
  Function<Comm, Group*> comm_group_{file_, "MPI_Comm_group"};
  Function<Group, int, Ints, Group*> group_incl_{file_, "MPI_Group_incl"};
  Function<Group*> group_free_{file_, "MPI_Group_free"};
  Function<Comm, Group, int, Comm*> comm_create_group_{file_, "MPI_Comm_create_group"};
  Function<Comm*> comm_free_{file_, "MPI_Comm_free"};
  Function<UserFunction*, int, Op*> op_create_{file_, "MPI_Op_create"};
  Function<int, Type, Type*> type_contiguous_{file_, "MPI_Type_contiguous"};
  Function<int, Ints, const std::intptr_t*, const Type*, Type*> type_create_struct_{
      file_, "MPI_Type_create_struct"};
  Function<Type*> type_commit_{file_, "MPI_Type_commit"};
  Function<Type*> type_free_{file_, "MPI_Type_free"};
  Function<Comm, Request*> ibarrier_{file_, "MPI_Ibarrier"};
  Collective<Out, int, Type, int> bcast_{file_, "MPI_Ibcast", "MPI_Bcast"};
  Collective<In, Out, int, Type, Op> allreduce_{file_, "MPI_Iallreduce", "MPI_Allreduce"};
  Collective<In, Out, int, Type, Op, int> reduce_{file_, "MPI_Ireduce", "MPI_Reduce"};
  Collective<In, int, Type, Out, int, Type> allgather_{file_, "MPI_Iallgather", "MPI_Allgather"};
  Collective<In, int, Type, Out, Ints, Ints, Type> allgatherv_{file_, "MPI_Iallgatherv",
                                                               "MPI_Allgatherv"};
  Collective<In, int, Type, Out, int, Type, int> gather_{file_, "MPI_Igather", "MPI_Gather"};
  Collective<In, int, Type, Out, Ints, Ints, Type, int> gatherv_{file_, "MPI_Igatherv",
                                                                 "MPI_Gatherv"};
  Collective<In, int, Type, Out, int, Type, int> scatter_{file_, "MPI_Iscatter", "MPI_Scatter"};
  Collective<In, Ints, Ints, Type, Out, int, Type, int> scatterv_{file_, "MPI_Iscatterv",
                                                                  "MPI_Scatterv"};
  Collective<In, Out, int, Type, Op> reduce_scatter_block_{file_, "MPI_Ireduce_scatter_block",
                                                           "MPI_Reduce_scatter_block"};
  Collective<In, Out, Ints, Type, Op> reduce_scatter_{file_, "MPI_Ireduce_scatter",
                                                      "MPI_Reduce_scatter"};
  Collective<In, int, Type, Out, int, Type> alltoall_{file_, "MPI_Ialltoall", "MPI_Alltoall"};
  Function<In, int, Type, int, int, Comm, Request*> isend_{file_, "MPI_Isend"};
  Function<Out, int, Type, int, int, Comm, Request*> irecv_{file_, "MPI_Irecv"};
  Function<Request*, int*, Status*> test_{file_, "MPI_Test"};
  Function<Request*> cancel_{file_, "MPI_Cancel"};
  Function<const Status*, int*> test_cancelled_{file_, "MPI_Test_cancelled"};
  Function<const Status*, Type, std::int64_t*> get_elements_x_{file_, "MPI_Get_elements_x"};
};

}  // namespace mccl::mpi
