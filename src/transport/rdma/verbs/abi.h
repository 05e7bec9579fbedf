// The part of the binary interface of the verbs library that MCCL uses, declared here so that
// builds do not need the library's headers. The interface is that of rdma-core's libibverbs
// (infiniband/verbs.h, IBVERBS_1.1 and later). Its structures are stable: new fields are only
// appended. Apple's librdma.dylib has the same interface. tests/transport/abi/verbs.cpp compares
// this file with the header of the build machine.
//
// Types and fields have the names of the header, in a separate namespace. An array such as
// `after_lid` replaces consecutive fields that MCCL does not use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mccl::transport::rdma::abi {

struct ibv_cq;
struct ibv_qp;

struct ibv_wc {
  std::uint64_t wr_id;
  int status;
  int opcode;
  std::uint32_t vendor_err;
  std::uint32_t byte_len;
  std::uint32_t after_byte_len[6];
};

struct ibv_sge {
  std::uint64_t addr;
  std::uint32_t length;
  std::uint32_t lkey;
};

struct ibv_recv_wr {
  std::uint64_t wr_id;
  ibv_recv_wr* next;
  ibv_sge* sg_list;
  int num_sge;
};

struct ibv_send_wr {
  std::uint64_t wr_id;
  ibv_send_wr* next;
  ibv_sge* sg_list;
  int num_sge;
  int opcode;
  unsigned int send_flags;
  std::uint32_t imm_data;
  std::uint64_t wr[4];
  std::uint64_t after_wr[7];
};
inline constexpr int kSend = 2;
inline constexpr unsigned kSignaled = 1 << 1;
inline constexpr unsigned kInline = 1 << 3;

/// The functions that verbs.h calls through pointers in the context; all other functions are looked
/// up by name.
struct ibv_context_ops {
  void* before_poll[11];
  int (*poll_cq)(ibv_cq*, int, ibv_wc*);
  int (*req_notify_cq)(ibv_cq*, int);
  void* before_post[12];
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
  void* after_post[5];
};

struct ibv_context {
  void* device;
  ibv_context_ops ops;
  int cmd_fd;
  int async_fd;
};

struct ibv_pd {
  ibv_context* context;
};

struct ibv_comp_channel {
  ibv_context* context;
  int fd;
};

struct ibv_cq {
  ibv_context* context;
};

struct ibv_mr {
  ibv_context* context;
  ibv_pd* pd;
  void* addr;
  std::size_t length;
  std::uint32_t handle;
  std::uint32_t lkey;
};

struct ibv_qp {
  ibv_context* context;
  void* after_context[5];
  std::uint32_t handle;
  std::uint32_t qp_num;
};

struct ibv_device_attr {
  std::uint64_t before_hw_ver[13];
  int before_max_mr[8];
  int max_mr;
  int after_max_mr[22];
  std::uint64_t slack[8];
};

struct ibv_port_attr {
  int state;
  int max_mtu;
  int active_mtu;
  int gid_tbl_len;
  std::uint32_t port_cap_flags;
  std::uint32_t max_msg_sz;
  std::uint32_t after_max_msg_sz[2];
  std::uint16_t pkey_tbl_len;
  std::uint16_t lid;
  std::uint8_t after_lid[10];
  std::uint8_t link_layer;
  std::uint8_t flags;
  std::uint16_t port_cap_flags2;
  std::uint64_t slack[8];
};
inline constexpr int kPortActive = 4;

union ibv_gid {
  std::uint8_t raw[16];
  std::uint64_t halves[2];
};

struct ibv_gid_entry {
  ibv_gid gid;
  std::uint32_t gid_index;
  std::uint32_t port_num;
  std::uint32_t gid_type;
  std::uint32_t ndev_ifindex;
};

struct ibv_qp_cap {
  std::uint32_t max_send_wr;
  std::uint32_t max_recv_wr;
  std::uint32_t max_send_sge;
  std::uint32_t max_recv_sge;
  std::uint32_t max_inline_data;
};

struct ibv_qp_init_attr {
  void* qp_context;
  ibv_cq* send_cq;
  ibv_cq* recv_cq;
  void* srq;
  ibv_qp_cap cap;
  int qp_type;
  int sq_sig_all;
};
inline constexpr int kTypeRc = 2;
inline constexpr int kTypeUc = 3;

struct ibv_global_route {
  ibv_gid dgid;
  std::uint32_t flow_label;
  std::uint8_t sgid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
};

struct ibv_ah_attr {
  ibv_global_route grh;
  std::uint16_t dlid;
  std::uint8_t after_dlid[3];
  std::uint8_t is_global;
  std::uint8_t port_num;
};

struct ibv_qp_attr {
  int qp_state;
  int cur_qp_state;
  int path_mtu;
  int path_mig_state;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qp_num;
  unsigned int qp_access_flags;
  ibv_qp_cap cap;
  ibv_ah_attr ah_attr;
  ibv_ah_attr alt_ah_attr;
  std::uint16_t pkey_index;
  std::uint8_t after_pkey_index[4];
  std::uint8_t max_rd_atomic;
  std::uint8_t max_dest_rd_atomic;
  std::uint8_t min_rnr_timer;
  std::uint8_t port_num;
  std::uint8_t timeout;
  std::uint8_t retry_cnt;
  std::uint8_t rnr_retry;
  std::uint8_t after_rnr_retry[2];
  std::uint32_t rate_limit;
};
inline constexpr int kInit = 1, kReadyToReceive = 2, kReadyToSend = 3;
namespace mask {
inline constexpr int kState = 1 << 0, kAccess = 1 << 3, kPkeyIndex = 1 << 4, kPort = 1 << 5,
                     kAv = 1 << 7, kPathMtu = 1 << 8, kTimeout = 1 << 9, kRetries = 1 << 10,
                     kRnrRetries = 1 << 11, kRqPsn = 1 << 12, kMaxRdAtomic = 1 << 13,
                     kMinRnrTimer = 1 << 15, kSqPsn = 1 << 16, kMaxDestRdAtomic = 1 << 17,
                     kDestQpn = 1 << 20;
}  // namespace mask

struct ibv_async_event {
  union {
    ibv_qp* qp;
    int port_num;
  } element;
  int event_type;
};
inline constexpr int kEventCqErr = 0, kEventQpFatal = 1, kEventQpReqErr = 2, kEventQpAccessErr = 3,
                     kEventDeviceFatal = 8, kEventPortErr = 10;

inline constexpr int kAccessNone = 0;
inline constexpr int kAccessLocalWrite = 1;
/// Return value of ibv_is_fork_initialized() on a kernel that needs no fork support
/// (IBV_FORK_UNNEEDED).
inline constexpr int kForkUnneeded = 2;

}  // namespace mccl::transport::rdma::abi
