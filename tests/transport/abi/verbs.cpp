// Checks at compile time that transport/rdma/abi.h matches the verbs headers of this machine.
#include <infiniband/verbs.h>

#include "transport/rdma/abi.h"

namespace mccl::transport::rdma::abi {
namespace {

#define SAME_PLACE(ours, our_field, theirs, their_field) \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field))
#define SAME(ours, theirs, field) SAME_PLACE(ours, field, theirs, field)

static_assert(sizeof(Wc) == sizeof(ibv_wc));
SAME(Wc, ibv_wc, status);
SAME(Wc, ibv_wc, byte_len);
static_assert(sizeof(Sge) == sizeof(ibv_sge));
static_assert(sizeof(RecvWr) == sizeof(ibv_recv_wr));
SAME(RecvWr, ibv_recv_wr, num_sge);
static_assert(sizeof(SendWr) == sizeof(ibv_send_wr));
SAME(SendWr, ibv_send_wr, opcode);
SAME(SendWr, ibv_send_wr, send_flags);
SAME(SendWr, ibv_send_wr, wr);
static_assert(kSend == IBV_WR_SEND && kSignaled == IBV_SEND_SIGNALED && kInline == IBV_SEND_INLINE);

static_assert(sizeof(Ops) == sizeof(ibv_context_ops));
SAME(Ops, ibv_context_ops, poll_cq);
SAME(Ops, ibv_context_ops, req_notify_cq);
SAME(Ops, ibv_context_ops, post_send);
SAME(Ops, ibv_context_ops, post_recv);
SAME(Context, ibv_context, ops);
SAME(Context, ibv_context, cmd_fd);
SAME(Context, ibv_context, async_fd);
SAME(Channel, ibv_comp_channel, fd);
SAME(Memory, ibv_mr, lkey);
SAME(Pair, ibv_qp, qp_num);

static_assert(sizeof(DeviceAttr) - sizeof(DeviceAttr::slack) == sizeof(ibv_device_attr));
SAME(DeviceAttr, ibv_device_attr, max_qp);
SAME(DeviceAttr, ibv_device_attr, max_qp_wr);
SAME(DeviceAttr, ibv_device_attr, max_cqe);
SAME(DeviceAttr, ibv_device_attr, max_mr);
SAME(DeviceAttr, ibv_device_attr, phys_port_cnt);
static_assert(offsetof(PortAttr, slack) >= sizeof(ibv_port_attr));
SAME(PortAttr, ibv_port_attr, active_mtu);
SAME(PortAttr, ibv_port_attr, gid_tbl_len);
SAME(PortAttr, ibv_port_attr, max_msg_sz);
SAME(PortAttr, ibv_port_attr, lid);
SAME(PortAttr, ibv_port_attr, link_layer);
static_assert(kPortActive == IBV_PORT_ACTIVE);

static_assert(sizeof(GidEntry) == sizeof(ibv_gid_entry));
SAME(GidEntry, ibv_gid_entry, gid_type);
static_assert(sizeof(QpInitAttr) == sizeof(ibv_qp_init_attr));
SAME(QpInitAttr, ibv_qp_init_attr, cap);
SAME(QpInitAttr, ibv_qp_init_attr, qp_type);
static_assert(kTypeRc == IBV_QPT_RC && kTypeUc == IBV_QPT_UC);

static_assert(sizeof(QpAttr) == sizeof(ibv_qp_attr));
SAME(QpAttr, ibv_qp_attr, path_mtu);
SAME(QpAttr, ibv_qp_attr, dest_qp_num);
SAME(QpAttr, ibv_qp_attr, ah_attr);
SAME(QpAttr, ibv_qp_attr, max_rd_atomic);
SAME(QpAttr, ibv_qp_attr, port_num);
SAME(QpAttr, ibv_qp_attr, timeout);
SAME(QpAttr, ibv_qp_attr, rnr_retry);
SAME(AhAttr, ibv_ah_attr, dlid);
SAME(AhAttr, ibv_ah_attr, is_global);
SAME(AhAttr, ibv_ah_attr, port_num);
SAME(GlobalRoute, ibv_global_route, sgid_index);
SAME(GlobalRoute, ibv_global_route, hop_limit);
static_assert(kInit == IBV_QPS_INIT && kReadyToReceive == IBV_QPS_RTR &&
              kReadyToSend == IBV_QPS_RTS);
static_assert(mask::kState == IBV_QP_STATE && mask::kAccess == IBV_QP_ACCESS_FLAGS &&
              mask::kPkeyIndex == IBV_QP_PKEY_INDEX && mask::kPort == IBV_QP_PORT &&
              mask::kAv == IBV_QP_AV && mask::kPathMtu == IBV_QP_PATH_MTU &&
              mask::kTimeout == IBV_QP_TIMEOUT && mask::kRetries == IBV_QP_RETRY_CNT &&
              mask::kRnrRetries == IBV_QP_RNR_RETRY && mask::kRqPsn == IBV_QP_RQ_PSN &&
              mask::kMaxRdAtomic == IBV_QP_MAX_QP_RD_ATOMIC &&
              mask::kMinRnrTimer == IBV_QP_MIN_RNR_TIMER && mask::kSqPsn == IBV_QP_SQ_PSN &&
              mask::kMaxDestRdAtomic == IBV_QP_MAX_DEST_RD_ATOMIC &&
              mask::kDestQpn == IBV_QP_DEST_QPN);
SAME(AsyncEvent, ibv_async_event, event_type);
SAME_PLACE(AsyncEvent, element.pair, ibv_async_event, element.qp);
static_assert(kEventCqErr == IBV_EVENT_CQ_ERR && kEventQpFatal == IBV_EVENT_QP_FATAL &&
              kEventQpReqErr == IBV_EVENT_QP_REQ_ERR &&
              kEventQpAccessErr == IBV_EVENT_QP_ACCESS_ERR &&
              kEventDeviceFatal == IBV_EVENT_DEVICE_FATAL && kEventPortErr == IBV_EVENT_PORT_ERR);
static_assert(kAccessLocalWrite == IBV_ACCESS_LOCAL_WRITE);

}  // namespace
}  // namespace mccl::transport::rdma::abi
