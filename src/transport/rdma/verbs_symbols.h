// Functions of the verbs library that are looked up by name.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "transport/rdma/abi.h"

namespace mccl::transport::rdma {

/// Members are null if the library lacks the function and load_symbols() does not require it.
struct Symbols {
  void** (*get_device_list)(int*);
  void (*free_device_list)(void**);
  const char* (*get_device_name)(void*);
  abi::Context* (*open_device)(void*);
  int (*close_device)(abi::Context*);
  int (*query_device)(abi::Context*, abi::DeviceAttr*);
  int (*query_port)(abi::Context*, std::uint8_t, abi::PortAttr*);
  int (*query_gid)(abi::Context*, std::uint8_t, int, abi::GidUnion*);
  abi::Domain* (*alloc_pd)(abi::Context*);
  int (*dealloc_pd)(abi::Domain*);
  abi::Memory* (*reg_mr)(abi::Domain*, void*, std::size_t, int);
  int (*dereg_mr)(abi::Memory*);
  abi::Channel* (*create_comp_channel)(abi::Context*);
  int (*destroy_comp_channel)(abi::Channel*);
  abi::Queue* (*create_cq)(abi::Context*, int, void*, abi::Channel*, int);
  int (*destroy_cq)(abi::Queue*);
  int (*get_cq_event)(abi::Channel*, abi::Queue**, void**);
  void (*ack_cq_events)(abi::Queue*, unsigned);
  abi::Pair* (*create_qp)(abi::Domain*, abi::QpInitAttr*);
  int (*modify_qp)(abi::Pair*, abi::QpAttr*, int);
  int (*destroy_qp)(abi::Pair*);
  int (*get_async_event)(abi::Context*, abi::AsyncEvent*);
  void (*ack_async_event)(abi::AsyncEvent*);
  const char* (*event_type_str)(int);
  ssize_t (*query_gid_table)(abi::Context*, abi::GidEntry*, std::size_t, std::uint32_t,
                             std::size_t);
  int (*fork_init)();
  int (*is_fork_initialized)();
};

/// Returns null, with the reason in `why`, if the library or a required function is missing.
std::unique_ptr<Symbols> load_symbols(std::string& why);

}  // namespace mccl::transport::rdma
