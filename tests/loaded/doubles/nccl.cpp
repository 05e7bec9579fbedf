// A substitute for libnccl.so.2 that records calls and returns configured results. It moves no
// data.
#include "loaded/doubles/nccl.h"

#include <string>
#include <utility>

using mccl::testing::NcclDouble;
using Result = int;

namespace {

constexpr Result kInvalidArgument = 4;
constexpr Result kInProgress = 7;

NcclDouble told;

/// The communicator of a split, and the pointer to which it will be written.
struct Part {
  void** part = nullptr;
  void* made = nullptr;
};
Part filled_in_later;

Result note(const std::string& call, bool begins_something = false) {
  told.note(call);
  if (!told.fails.empty() && call.starts_with(told.fails)) return 2;
  if (begins_something) told.in_progress = 3;
  return begins_something ? kInProgress : 0;
}

}  // namespace

extern "C" {

NcclDouble* mccl_nccl_double() { return &told; }

Result ncclGetVersion(int* version) {
  *version = told.version;
  return 0;
}
Result ncclGetUniqueId(char* id) {
  id[0] = 'x';
  return note("GetUniqueId");
}
const char* ncclGetErrorString(Result result) {
  return result == 2 ? "unhandled system error" : "something else";
}
const char* ncclGetLastError(void*) { return told.last_error.c_str(); }
Result ncclCommAbort(void* comm) {
  return note("CommAbort " + std::to_string(reinterpret_cast<long>(comm)));
}
Result ncclCommInitRankConfig(void** comm, int size, NcclDouble::Id, int rank, void*) {
  *comm = reinterpret_cast<void*>(++told.communicators);
  return note("CommInit " + std::to_string(rank) + " of " + std::to_string(size), true);
}
/// Behaves like NCCL 2.28: returns success at once, writes the part's communicator before the
/// parent is ready, and refuses other calls until then.
Result ncclCommSplit(void* comm, int color, int key, void** part, void*) {
  if (told.in_progress > 0) return kInvalidArgument;
  *part = nullptr;
  filled_in_later = {part, color >= 0 ? reinterpret_cast<void*>(++told.communicators) : nullptr};
  const Result begun = note("CommSplit " + std::to_string(reinterpret_cast<long>(comm)) +
                                " color " + std::to_string(color) + " key " + std::to_string(key),
                            true);
  return begun == kInProgress ? 0 : begun;
}
Result ncclCommGetAsyncError(void*, Result* result) {
  *result = told.in_progress > 0 ? kInProgress : told.asynchronous;
  if (told.in_progress > 0 && --told.in_progress == 0 && filled_in_later.part)
    *std::exchange(filled_in_later.part, nullptr) = filled_in_later.made;
  return 0;
}
Result ncclAllReduce(const void*, void*, std::size_t count, int, int, void* comm, void*) {
  return note("AllReduce " + std::to_string(count) + " by " +
              std::to_string(reinterpret_cast<long>(comm)));
}
Result ncclBroadcast(const void*, void*, std::size_t count, int, int root, void*, void*) {
  return note("Broadcast " + std::to_string(count) + " from " + std::to_string(root));
}
Result ncclReduce(const void*, void*, std::size_t, int, int, int, void*, void*) {
  return note("Reduce");
}
Result ncclAllGather(const void*, void*, std::size_t, int, void*, void*) {
  return note("AllGather");
}
Result ncclReduceScatter(const void*, void*, std::size_t, int, int, void*, void*) {
  return note("ReduceScatter");
}
Result ncclSend(const void*, std::size_t, int, int peer, void*, void*) {
  return note("Send to " + std::to_string(peer));
}
Result ncclRecv(void*, std::size_t, int, int peer, void*, void*) {
  return note("Recv from " + std::to_string(peer));
}
Result ncclGroupStart() { return note("GroupStart"); }
Result ncclGroupEnd() { return note("GroupEnd"); }
}
