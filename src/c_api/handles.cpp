#include "c_api/handles.h"

#include <fmt/format.h>

#include <string_view>

#include "mccl/error.h"

namespace mccl::c_api {
namespace {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::config:
      return "a mccl_config";
    case Kind::store:
      return "a mccl_store";
    case Kind::context:
      return "a mccl_context";
    case Kind::group:
      return "a mccl_group";
    case Kind::work:
      return "a mccl_work";
  }
  return "not a handle, or a destroyed one";
}

}  // namespace

void check_kind(const char* call, const char* argument, Kind found, Kind expected) {
  if (found == expected) return;
  throw InvalidArgument(
      fmt::format("{}: {} is {}, expected {}", call, argument, name_of(found), name_of(expected)));
}

}  // namespace mccl::c_api
