#include "backend/nccl/library.h"

#include <fmt/format.h>

#include <iterator>

#include "mccl/error.h"

namespace mccl::nccl {
namespace {

constexpr int kOldest = 21800;

NcclLibrary load() {
  const auto is_old = [](const std::string& path) {
    return InvalidArgument(
        fmt::format("the NCCL in {} is older than 2.18; install 2.18 or later", path));
  };
  std::string path;
  try {
    const SharedLibrary file({"libnccl.so.2"});
    path = file.path();
    NcclLibrary nccl(file);
    if (nccl.GetVersion(&nccl.version) != kSuccess || nccl.version < kOldest) throw is_old(path);
    return nccl;
  } catch (const LoadError& error) {
    if (!error.symbol().empty()) throw is_old(path);
    throw InvalidArgument(
        fmt::format("NCCL is not found ({}); install NCCL 2.18 or later", error.what()));
  }
}

}  // namespace

std::string NcclLibrary::described() const {
  return fmt::format("NCCL {}.{}.{} ({})", version / 10000, version / 100 % 100, version % 100,
                     file.path());
}

const NcclLibrary& library() { return loaded_once<load>(); }

int type_of(DType dtype) {
  // Indexed by DType. Bool is sent as u8.
  constexpr int kTypes[] = {1, 1, 0, -1, -1, 3, 2, 5, 4, 6, 9, 7, 8, -1, -1};
  static_assert(std::size(kTypes) == kDTypeCount);
  return kTypes[static_cast<int>(dtype)];
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
