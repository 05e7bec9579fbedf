// The functions of the verbs library, and wrappers that throw VerbsError if a function fails.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/library.h"
#include "transport/rdma/verbs/abi.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

#ifdef __APPLE__
inline constexpr const char* kFile = "librdma.dylib";
inline SharedLibrary load_library() {
  return SharedLibrary({kFile, "/usr/lib/librdma.dylib", "libibverbs.dylib"});
}
inline constexpr std::string_view kAdvice = "RDMA over Thunderbolt needs macOS 26.2 or later";
#else
inline constexpr const char* kFile = "libibverbs.so.1";
inline SharedLibrary load_library() { return SharedLibrary({kFile, "libibverbs.so"}); }
inline constexpr std::string_view kAdvice = "install libibverbs1 and ibverbs-providers (rdma-core)";
#endif

/// Returns the errno of a library call that returned null, or ENOMEM if the call set no errno. The
/// caller must clear errno before the call.
inline int code_of_null() { return errno != 0 ? errno : ENOMEM; }
inline int code_of(int result) { return result < 0 ? (errno != 0 ? errno : EIO) : result; }

template <typename T>
using Owned = std::unique_ptr<T, LibraryFunction<int(T*)>>;

/// The functions of the library. If it lacks the optional functions, devices send no notifications
/// and report no events, and the types of addresses are unknown.
struct Functions {
  template <typename Signature>
  using Fn = LibraryFunction<Signature>;

  SharedLibrary file = load_library();
  Fn<void**(int*)> get_device_list{file, "ibv_get_device_list"};
  Fn<void(void**)> free_device_list{file, "ibv_free_device_list"};
  Fn<const char*(void*)> get_device_name{file, "ibv_get_device_name"};
  Fn<abi::ibv_context*(void*)> open_device{file, "ibv_open_device"};
  Fn<int(abi::ibv_context*)> close_device{file, "ibv_close_device"};
  Fn<int(abi::ibv_context*, abi::ibv_device_attr*)> query_device{file, "ibv_query_device"};
  Fn<int(abi::ibv_context*, std::uint8_t, abi::ibv_port_attr*)> query_port{file, "ibv_query_port"};
  Fn<int(abi::ibv_context*, std::uint8_t, int, abi::ibv_gid*)> query_gid{file, "ibv_query_gid"};
  Fn<abi::ibv_pd*(abi::ibv_context*)> alloc_pd{file, "ibv_alloc_pd"};
  Fn<int(abi::ibv_pd*)> dealloc_pd{file, "ibv_dealloc_pd"};
  Fn<abi::ibv_mr*(abi::ibv_pd*, void*, std::size_t, int)> reg_mr{file, "ibv_reg_mr"};
  Fn<int(abi::ibv_mr*)> dereg_mr{file, "ibv_dereg_mr"};
  Fn<abi::ibv_cq*(abi::ibv_context*, int, void*, abi::ibv_comp_channel*, int)> create_cq{
      file, "ibv_create_cq"};
  Fn<int(abi::ibv_cq*)> destroy_cq{file, "ibv_destroy_cq"};
  Fn<abi::ibv_qp*(abi::ibv_pd*, abi::ibv_qp_init_attr*)> create_qp{file, "ibv_create_qp"};
  Fn<int(abi::ibv_qp*, abi::ibv_qp_attr*, int)> modify_qp{file, "ibv_modify_qp"};
  Fn<int(abi::ibv_qp*)> destroy_qp{file, "ibv_destroy_qp"};

  Fn<abi::ibv_comp_channel*(abi::ibv_context*)> create_comp_channel{file, "ibv_create_comp_channel",
                                                                    Need::optional};
  Fn<int(abi::ibv_comp_channel*)> destroy_comp_channel{file, "ibv_destroy_comp_channel",
                                                       Need::optional};
  Fn<int(abi::ibv_comp_channel*, abi::ibv_cq**, void**)> get_cq_event{file, "ibv_get_cq_event",
                                                                      Need::optional};
  Fn<void(abi::ibv_cq*, unsigned)> ack_cq_events{file, "ibv_ack_cq_events", Need::optional};
  Fn<int(abi::ibv_context*, abi::ibv_async_event*)> get_async_event{file, "ibv_get_async_event",
                                                                    Need::optional};
  Fn<void(abi::ibv_async_event*)> ack_async_event{file, "ibv_ack_async_event", Need::optional};
  Fn<const char*(int)> event_type_str{file, "ibv_event_type_str", Need::optional};
  Fn<ssize_t(abi::ibv_context*, abi::ibv_gid_entry*, std::size_t, std::uint32_t, std::size_t)>
      query_gid_table{file, "_ibv_query_gid_table", Need::optional};
  Fn<int()> fork_init{file, "ibv_fork_init", Need::optional};
  Fn<int()> is_fork_initialized{file, "ibv_is_fork_initialized", Need::optional};
};

/// Calls functions of the library for one device. Errors contain the device's name.
struct CheckedVerbs {
  const Functions& verbs;
  std::string device;

  [[noreturn]] void fail(const char* call, int code) const { throw VerbsError(call, device, code); }
  void check(const char* call, int result) const {
    if (const int code = code_of(result); code != 0) fail(call, code);
  }
  /// Returns the object that `create` makes; `destroy` becomes its deleter. Throws VerbsError if
  /// `create` returns null.
  template <typename T, typename... Arguments>
  Owned<T> make(const LibraryFunction<T*(Arguments...)>& create,
                const LibraryFunction<int(T*)>& destroy,
                std::type_identity_t<Arguments>... arguments) const {
    errno = 0;
    T* const made = create(arguments...);
    if (!made) fail(create.name(), code_of_null());
    return {made, destroy};
  }
};

}  // namespace mccl::transport::rdma
