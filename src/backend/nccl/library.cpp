#include "backend/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/library_file.h"
#include "mccl/error.h"

namespace mccl::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kOldest = 21800;

struct Loaded {
  Library library{};
  std::string failure;
};

std::string find_functions(void* handle, Library& nccl) {
  std::string missing;
  const auto find = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (!function && missing.empty()) missing = name;
  };
  find(nccl.GetVersion, "ncclGetVersion");
  find(nccl.GetUniqueId, "ncclGetUniqueId");
  find(nccl.GetErrorString, "ncclGetErrorString");
  find(nccl.GetLastError, "ncclGetLastError");
  find(nccl.CommInitRankConfig, "ncclCommInitRankConfig");
  find(nccl.CommSplit, "ncclCommSplit");
  find(nccl.CommGetAsyncError, "ncclCommGetAsyncError");
  find(nccl.CommAbort, "ncclCommAbort");
  find(nccl.AllReduce, "ncclAllReduce");
  find(nccl.Broadcast, "ncclBroadcast");
  find(nccl.Reduce, "ncclReduce");
  find(nccl.AllGather, "ncclAllGather");
  find(nccl.ReduceScatter, "ncclReduceScatter");
  find(nccl.Send, "ncclSend");
  find(nccl.Recv, "ncclRecv");
  find(nccl.GroupStart, "ncclGroupStart");
  find(nccl.GroupEnd, "ncclGroupEnd");
  return missing;
}

/// Returns the reason if NCCL cannot be loaded; otherwise empty. NCCL stays loaded until the
/// process ends.
std::string load(Library& nccl) {
  void* handle = ::dlopen(kFile, RTLD_NOW | RTLD_NOLOAD);
  if (!handle) handle = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fmt::format("NCCL is not found ({})", ::dlerror());
  nccl.path = library_file(handle, kFile);
  const std::string missing = find_functions(handle, nccl);
  if (!missing.empty() || nccl.GetVersion(&nccl.version) != kSuccess || nccl.version < kOldest) {
    return fmt::format("the NCCL in {} is older than 2.18; install 2.18 or later", nccl.path);
  }
  return {};
}

}  // namespace

std::string Library::described() const {
  return fmt::format("NCCL {}.{}.{} ({})", version / 10000, version / 100 % 100, version % 100,
                     path);
}

const Library& library() {
  static const Loaded loaded = [] {
    Loaded made;
    made.failure = load(made.library);
    return made;
  }();
  if (!loaded.failure.empty()) throw InvalidArgument(loaded.failure);
  return loaded.library;
}

int type_of(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return 0;
    case DType::boolean:
    case DType::u8:
      return 1;
    case DType::i32:
      return 2;
    case DType::u32:
      return 3;
    case DType::i64:
      return 4;
    case DType::u64:
      return 5;
    case DType::f16:
      return 6;
    case DType::f32:
      return 7;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 9;
    default:
      return -1;
  }
}

int op_of(DType dtype, ReduceKind kind) {
  if (dtype == DType::boolean) {
    // Booleans are bytes of 0 or 1. Their sum is "or", which is the maximum; their product is
    // "and", which is the minimum.
    if (kind == ReduceKind::sum || kind == ReduceKind::max || kind == ReduceKind::bor) return 2;
    if (kind == ReduceKind::product || kind == ReduceKind::min || kind == ReduceKind::band)
      return 3;
    return -1;
  }
  switch (kind) {
    case ReduceKind::sum:
      return 0;
    case ReduceKind::product:
      return 1;
    // NCCL's max and min of floats ignore NaN, and its mean of integers rounds differently. The
    // results of a group must not depend on the path that a call takes.
    case ReduceKind::max:
      return is_integer(dtype) ? 2 : -1;
    case ReduceKind::min:
      return is_integer(dtype) ? 3 : -1;
    case ReduceKind::avg:
      return is_floating(dtype) ? 4 : -1;
    default:
      return -1;
  }
}

}  // namespace mccl::nccl
