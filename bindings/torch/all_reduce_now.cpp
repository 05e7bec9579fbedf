// all_reduce without a Work: the cheapest form for a loop of small calls.
#include "backend.h"
#include "callbacks.h"

namespace mccl_torch {

using mccl::Buffer;
using mccl::CallOptions;

namespace {

constexpr const char* kTitle = "mccl:all_reduce";

}  // namespace

void ProcessGroupMCCL::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& reduce_op) {
  const char* call = "all_reduce_now";
  require_dense(call, tensor);
  const bool plain = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (!tensor.is_cuda() || !plain || open_batches_ > 0) {
    Tensors tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op;
    options.asyncOp = false;
    allreduce(tensors, options)->wait();
    return;
  }
  const mccl::ReduceOp op = reduce_op_of(call, reduce_op);
  const Buffer data{tensor.data_ptr(),
                    static_cast<std::size_t>(tensor.numel()),
                    reducible_type(call, tensor.scalar_type(), op),
                    {mccl::DeviceKind::cuda, tensor.device().index()}};
  CallOptions options = call_options(c10d::kUnsetTimeout, false);
  const c10::Stream stream = current_stream(tensor.device());
  options.stream = handle_of(stream);
  options.stream_may_go = may_go(stream);
  const auto group = group_for(call);
  note_device(tensor.device());
  ++sequence_;
  try {
    const mccl::Work work = group->all_reduce(data, data, op, options);
    raise_if_failed(*group, work);
    if (work.done())
      return;  // enqueued in the stream, in which torch reuses the memory only after the call
    // The call goes through the host. Keep the tensor until the call is over. Free it on a callback
    // thread, because freeing may block on a lock of torch.
    auto noted = std::make_shared<WorkLedger::DeviceCall>(WorkLedger::DeviceCall{kTitle});
    ledger_->opened();
    ledger_->awaited(*noted);
    work.on_done([kept = tensor, noted = std::move(noted), ledger = ledger_,
                  rank = rank_](const std::exception_ptr& error) mutable {
      callback_threads().run(
          [kept = std::move(kept), noted = std::move(noted), ledger, rank, error] {
            if (error) ledger->missed(*noted, to_call_error(error, rank, kTitle));
            ledger->closed(*noted);
          });
    });
    work.wait_on_stream(options.stream);
  } catch (const std::exception&) {
    --sequence_;
    throw_call_error(std::current_exception(), rank_, kTitle);
  }
}

}  // namespace mccl_torch
