// Checks at compile time that transport/rdma/verbs/abi.h matches the verbs headers of this machine.
#include <infiniband/verbs.h>

#include "transport/rdma/verbs/abi.h"

namespace mccl::transport::rdma::abi {
namespace {

#define SAME(type, field) static_assert(offsetof(type, field) == offsetof(::type, field))
#define SAME_SIZE(type) static_assert(sizeof(type) == sizeof(::type))

SAME_SIZE(ibv_wc);
SAME(ibv_wc, status);
SAME(ibv_wc, byte_len);
SAME_SIZE(ibv_sge);
SAME_SIZE(ibv_recv_wr);
SAME(ibv_recv_wr, num_sge);
SAME_SIZE(ibv_send_wr);
SAME(ibv_send_wr, opcode);
SAME(ibv_send_wr, send_flags);
SAME(ibv_send_wr, wr);
static_assert(kSend == IBV_WR_SEND && kSignaled == IBV_SEND_SIGNALED && kInline == IBV_SEND_INLINE);

SAME_SIZE(ibv_context_ops);
SAME(ibv_context_ops, poll_cq);
SAME(ibv_context_ops, req_notify_cq);
SAME(ibv_context_ops, post_send);
SAME(ibv_context_ops, post_recv);
SAME(ibv_context, ops);
SAME(ibv_context, cmd_fd);
SAME(ibv_context, async_fd);
SAME(ibv_comp_channel, fd);
SAME(ibv_mr, lkey);
SAME(ibv_qp, qp_num);

static_assert(sizeof(ibv_device_attr) - sizeof(ibv_device_attr::slack) ==
              sizeof(::ibv_device_attr));
SAME(ibv_device_attr, max_mr);
static_assert(offsetof(ibv_port_attr, slack) >= sizeof(::ibv_port_attr));
SAME(ibv_port_attr, active_mtu);
SAME(ibv_port_attr, gid_tbl_len);
SAME(ibv_port_attr, max_msg_sz);
SAME(ibv_port_attr, lid);
SAME(ibv_port_attr, link_layer);
static_assert(kPortActive == IBV_PORT_ACTIVE);

SAME_SIZE(ibv_gid_entry);
SAME(ibv_gid_entry, gid_type);
SAME_SIZE(ibv_qp_init_attr);
SAME(ibv_qp_init_attr, cap);
SAME(ibv_qp_init_attr, qp_type);
static_assert(kTypeRc == IBV_QPT_RC && kTypeUc == IBV_QPT_UC);

SAME_SIZE(ibv_qp_attr);
SAME(ibv_qp_attr, path_mtu);
SAME(ibv_qp_attr, dest_qp_num);
SAME(ibv_qp_attr, ah_attr);
SAME(ibv_qp_attr, max_rd_atomic);
SAME(ibv_qp_attr, port_num);
SAME(ibv_qp_attr, timeout);
SAME(ibv_qp_attr, rnr_retry);
SAME(ibv_ah_attr, dlid);
SAME(ibv_ah_attr, is_global);
SAME(ibv_ah_attr, port_num);
SAME(ibv_global_route, sgid_index);
SAME(ibv_global_route, hop_limit);
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
SAME(ibv_async_event, event_type);
SAME(ibv_async_event, element.qp);
static_assert(kEventCqErr == IBV_EVENT_CQ_ERR && kEventQpFatal == IBV_EVENT_QP_FATAL &&
              kEventQpReqErr == IBV_EVENT_QP_REQ_ERR &&
              kEventQpAccessErr == IBV_EVENT_QP_ACCESS_ERR &&
              kEventDeviceFatal == IBV_EVENT_DEVICE_FATAL && kEventPortErr == IBV_EVENT_PORT_ERR);
static_assert(kAccessLocalWrite == IBV_ACCESS_LOCAL_WRITE);

}  // namespace
}  // namespace mccl::transport::rdma::abi
