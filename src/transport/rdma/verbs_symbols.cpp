#include "transport/rdma/verbs_symbols.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

namespace mccl::transport::rdma {
namespace {

#ifdef __APPLE__
constexpr std::array kNames = {"librdma.dylib", "/usr/lib/librdma.dylib", "libibverbs.dylib"};
constexpr std::string_view kAdvice = "RDMA over Thunderbolt needs macOS 26.2 or later";
#else
constexpr std::array kNames = {"libibverbs.so.1", "libibverbs.so"};
constexpr std::string_view kAdvice = "install libibverbs1 and ibverbs-providers (rdma-core)";
#endif

template <typename F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
  return function != nullptr;
}

/// Returns the name of a missing required function; null if all were found.
const char* fill(void* library, Symbols& s) {
#define MCCL_FIND(field, name) \
  if (!find(library, name, s.field)) return name
  MCCL_FIND(get_device_list, "ibv_get_device_list");
  MCCL_FIND(free_device_list, "ibv_free_device_list");
  MCCL_FIND(get_device_name, "ibv_get_device_name");
  MCCL_FIND(open_device, "ibv_open_device");
  MCCL_FIND(close_device, "ibv_close_device");
  MCCL_FIND(query_device, "ibv_query_device");
  MCCL_FIND(query_port, "ibv_query_port");
  MCCL_FIND(query_gid, "ibv_query_gid");
  MCCL_FIND(alloc_pd, "ibv_alloc_pd");
  MCCL_FIND(dealloc_pd, "ibv_dealloc_pd");
  MCCL_FIND(reg_mr, "ibv_reg_mr");
  MCCL_FIND(dereg_mr, "ibv_dereg_mr");
  MCCL_FIND(create_cq, "ibv_create_cq");
  MCCL_FIND(destroy_cq, "ibv_destroy_cq");
  MCCL_FIND(create_qp, "ibv_create_qp");
  MCCL_FIND(modify_qp, "ibv_modify_qp");
  MCCL_FIND(destroy_qp, "ibv_destroy_qp");
#undef MCCL_FIND
  // These are optional. Code that uses them works without wake-ups and device events if they are
  // null.
  find(library, "ibv_create_comp_channel", s.create_comp_channel);
  find(library, "ibv_destroy_comp_channel", s.destroy_comp_channel);
  find(library, "ibv_get_cq_event", s.get_cq_event);
  find(library, "ibv_ack_cq_events", s.ack_cq_events);
  find(library, "ibv_get_async_event", s.get_async_event);
  find(library, "ibv_ack_async_event", s.ack_async_event);
  find(library, "ibv_event_type_str", s.event_type_str);
  find(library, "_ibv_query_gid_table", s.query_gid_table);
  find(library, "ibv_fork_init", s.fork_init);
  find(library, "ibv_is_fork_initialized", s.is_fork_initialized);
  return nullptr;
}

}  // namespace

std::unique_ptr<Symbols> load_symbols(std::string& why) {
  void* library = nullptr;
  for (const char* name : kNames) {
    if ((library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL))) break;
  }
  if (!library) {
    why = fmt::format("there is no {} ({})", kNames[0], kAdvice);
    return nullptr;
  }
  auto symbols = std::make_unique<Symbols>();
  if (const char* missing = fill(library, *symbols)) {
    why = fmt::format("{} has no {}", kNames[0], missing);
    ::dlclose(library);
    return nullptr;
  }
  return symbols;
}

}  // namespace mccl::transport::rdma
