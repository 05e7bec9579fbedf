// The part of the verbs' binary interface that MCCL uses, declared here so that builds do not need
// the verbs' headers. It is the interface of rdma-core's libibverbs (infiniband/verbs.h,
// IBVERBS_1.1 and later). Its layouts are stable: new fields are only appended. Apple's
// librdma.dylib has the same interface. tests/transport/abi/verbs.cpp compares this file with the
// header of the build machine.
//
// Names are those of the header, in a separate namespace. Fields that MCCL does not use are unnamed
// padding.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace mccl::transport::rdma::abi {

struct Context;
struct Channel;
struct Queue;
struct Pair;

struct Wc {
  std::uint64_t wr_id;
  int status;
  int opcode;
  std::uint32_t vendor_err;
  std::uint32_t byte_len;
  std::uint32_t imm_data;
  std::uint32_t qp_num;
  std::uint32_t src_qp;
  unsigned int wc_flags;
  std::uint16_t pkey_index;
  std::uint16_t slid;
  std::uint8_t sl;
  std::uint8_t dlid_path_bits;
};

struct Sge {
  std::uint64_t addr;
  std::uint32_t length;
  std::uint32_t lkey;
};

struct RecvWr {
  std::uint64_t wr_id;
  RecvWr* next;
  Sge* sg_list;
  int num_sge;
};

struct SendWr {
  std::uint64_t wr_id;
  SendWr* next;
  Sge* sg_list;
  int num_sge;
  int opcode;
  unsigned int send_flags;
  std::uint32_t imm_data;
  std::uint64_t wr[4];
  std::uint32_t xrc;
  std::uint64_t rest[6];
};
inline constexpr int kSend = 2;
inline constexpr unsigned kSignaled = 1 << 1;
inline constexpr unsigned kInline = 1 << 3;

/// The functions that the header calls through the context; all others are looked up by name.
struct Ops {
  void* before_poll[11];
  int (*poll_cq)(Queue*, int, Wc*);
  int (*req_notify_cq)(Queue*, int);
  void* before_post[12];
  int (*post_send)(Pair*, SendWr*, SendWr**);
  int (*post_recv)(Pair*, RecvWr*, RecvWr**);
  void* after_post[5];
};

struct Context {
  void* device;
  Ops ops;
  int cmd_fd;
  int async_fd;
};

struct Domain {
  Context* context;
};

struct Channel {
  Context* context;
  int fd;
};

struct Queue {
  Context* context;
};

struct Memory {
  Context* context;
  Domain* pd;
  void* addr;
  std::size_t length;
  std::uint32_t handle;
  std::uint32_t lkey;
  std::uint32_t rkey;
};

struct Pair {
  Context* context;
  void* qp_context;
  Domain* pd;
  Queue* send_cq;
  Queue* recv_cq;
  void* srq;
  std::uint32_t handle;
  std::uint32_t qp_num;
};

struct DeviceAttr {
  char fw_ver[64];
  std::uint64_t node_guid;
  std::uint64_t sys_image_guid;
  std::uint64_t max_mr_size;
  std::uint64_t page_size_cap;
  std::uint32_t vendor_id;
  std::uint32_t vendor_part_id;
  std::uint32_t hw_ver;
  int max_qp;
  int max_qp_wr;
  unsigned int device_cap_flags;
  int max_sge;
  int max_sge_rd;
  int max_cq;
  int max_cqe;
  int max_mr;
  int max_pd;
  int between[20];
  std::uint16_t max_pkeys;
  std::uint8_t local_ca_ack_delay;
  std::uint8_t phys_port_cnt;
  std::uint64_t slack[8];
};

struct PortAttr {
  int state;
  int max_mtu;
  int active_mtu;
  int gid_tbl_len;
  std::uint32_t port_cap_flags;
  std::uint32_t max_msg_sz;
  std::uint32_t bad_pkey_cntr;
  std::uint32_t qkey_viol_cntr;
  std::uint16_t pkey_tbl_len;
  std::uint16_t lid;
  std::uint16_t sm_lid;
  std::uint8_t lmc;
  std::uint8_t max_vl_num;
  std::uint8_t sm_sl;
  std::uint8_t subnet_timeout;
  std::uint8_t init_type_reply;
  std::uint8_t active_width;
  std::uint8_t active_speed;
  std::uint8_t phys_state;
  std::uint8_t link_layer;
  std::uint8_t flags;
  std::uint16_t port_cap_flags2;
  std::uint64_t slack[8];
};
inline constexpr int kPortActive = 4;

union GidUnion {
  std::uint8_t raw[16];
  std::uint64_t halves[2];
};

struct GidEntry {
  GidUnion gid;
  std::uint32_t gid_index;
  std::uint32_t port_num;
  std::uint32_t gid_type;
  std::uint32_t ndev_ifindex;
};

struct QpCap {
  std::uint32_t max_send_wr;
  std::uint32_t max_recv_wr;
  std::uint32_t max_send_sge;
  std::uint32_t max_recv_sge;
  std::uint32_t max_inline_data;
};

struct QpInitAttr {
  void* qp_context;
  Queue* send_cq;
  Queue* recv_cq;
  void* srq;
  QpCap cap;
  int qp_type;
  int sq_sig_all;
};
inline constexpr int kTypeRc = 2;
inline constexpr int kTypeUc = 3;

struct GlobalRoute {
  GidUnion dgid;
  std::uint32_t flow_label;
  std::uint8_t sgid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
};

struct AhAttr {
  GlobalRoute grh;
  std::uint16_t dlid;
  std::uint8_t sl;
  std::uint8_t src_path_bits;
  std::uint8_t static_rate;
  std::uint8_t is_global;
  std::uint8_t port_num;
};

struct QpAttr {
  int qp_state;
  int cur_qp_state;
  int path_mtu;
  int path_mig_state;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qp_num;
  unsigned int qp_access_flags;
  QpCap cap;
  AhAttr ah_attr;
  AhAttr alt_ah_attr;
  std::uint16_t pkey_index;
  std::uint16_t alt_pkey_index;
  std::uint8_t en_sqd_async_notify;
  std::uint8_t sq_draining;
  std::uint8_t max_rd_atomic;
  std::uint8_t max_dest_rd_atomic;
  std::uint8_t min_rnr_timer;
  std::uint8_t port_num;
  std::uint8_t timeout;
  std::uint8_t retry_cnt;
  std::uint8_t rnr_retry;
  std::uint8_t alt_port_num;
  std::uint8_t alt_timeout;
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

struct AsyncEvent {
  union {
    void* object;
    Pair* pair;
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
