// Collectives that reduce data, by a sum or another reduction.
#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "callbacks.h"
#include "checks.h"

namespace mccl_torch {

using c10d::OpType;
using mccl::Buffer;
using mccl::CallOptions;
using mccl::ConstBuffer;
using mccl::Group;

std::size_t ProcessGroupMCCL::bytes_to_sum(const at::Tensor& tensor, TopkRatio topk_ratio) const {
  const char* call = "bytes_to_sum";
  const mccl::ReduceOp sum(mccl::ReduceKind::sum);
  CallOptions options;
  options.compression = topk_of(topk_ratio);
  return group_for(call)->bytes_to_sum(static_cast<std::size_t>(tensor.numel()),
                                       reducible_type(call, tensor.scalar_type(), sum), sum,
                                       options);
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::all_reduce_keeping(const at::Tensor& tensor,
                                                               const at::Tensor& left_out,
                                                               const c10d::ReduceOp& reduce_op,
                                                               TopkRatio topk_ratio) {
  const char* call = "all_reduce_keeping";
  require_same_type(call, tensor, {left_out});
  require_elements(call, "left_out must be the same size as the tensor", tensor.numel(),
                   left_out.numel());
  const mccl::ReduceOp op = reduce_op_of(call, reduce_op);
  TensorStaging staging(call);
  const ElementType type{reducible_type(call, tensor.scalar_type(), op), 1};
  const Buffer data = staging.in_place(tensor, type);
  const Buffer left = staging.output(left_out, type);
  return issue({OpType::ALLREDUCE, "mccl:all_reduce"}, std::move(staging), {tensor}, {tensor},
               call_options(c10d::kUnsetTimeout, true), [=](Group& group, CallOptions options) {
                 options.left_out = left;
                 options.compression = topk_of(topk_ratio);
                 return group.all_reduce(data, data, op, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& opts) {
  const char* call = "allreduce";
  if (tensors.size() == 1 && tensors.front().layout() == at::kSparse) {
    return allreduce_sparse(tensors, opts);
  }
  const at::Tensor& tensor = require_single(call, tensors, "tensor");
  const mccl::ReduceOp op = reduce_op_of(call, opts.reduceOp);
  TensorStaging staging(call);
  const Buffer data = staging.in_place(tensor, {reducible_type(call, tensor.scalar_type(), op), 1});
  return issue({OpType::ALLREDUCE, "mccl:all_reduce"}, std::move(staging), tensors, tensors,
               call_options(opts.timeout, opts.asyncOp),
               [=](Group& group, const CallOptions& options) {
                 return group.all_reduce(data, data, op, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const char* call = "allreduce_coalesced";
  if (tensors.empty()) invalid_argument(call, "requires non-empty tensor list");
  const mccl::ReduceOp op = reduce_op_of(call, opts.reduceOp);
  // Make one call per element type, in order of first appearance, which is the same on every rank.
  std::vector<std::pair<at::ScalarType, Tensors>> parts;
  for (const auto& tensor : tensors) {
    require_dense(call, tensor);
    reducible_type(call, tensor.scalar_type(), op);
    auto part = parts.begin();
    while (part != parts.end() && part->first != tensor.scalar_type()) ++part;
    if (part == parts.end()) part = parts.insert(part, {tensor.scalar_type(), {}});
    part->second.push_back(tensor);
  }
  std::vector<WorkPtr> works;
  for (const auto& [scalar_type, part] : parts) {
    TensorStaging staging(call);
    const Buffer data = staging.in_place(part, {reducible_type(call, scalar_type, op), 1});
    works.push_back(issue({OpType::ALLREDUCE_COALESCED, "mccl:all_reduce"}, std::move(staging),
                          part, part, call_options(opts.timeout, opts.asyncOp || parts.size() > 1),
                          [=](Group& group, const CallOptions& options) {
                            return group.all_reduce(data, data, op, options);
                          }));
  }
  return all_of({OpType::ALLREDUCE_COALESCED, "mccl:all_reduce_coalesced"}, works, tensors);
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::reduce(Tensors& tensors,
                                                   const c10d::ReduceOptions& opts) {
  const char* call = "reduce";
  const at::Tensor& tensor = require_single(call, tensors, "tensor");
  require_root(call, opts.rootRank);
  if (opts.rootTensor != 0)
    invalid_argument(call, c10::str("invalid root tensor: ", opts.rootTensor));
  const mccl::ReduceOp op = reduce_op_of(call, opts.reduceOp);
  const ElementType type{reducible_type(call, tensor.scalar_type(), op), 1};
  const auto root = static_cast<int>(opts.rootRank);
  TensorStaging staging(call);
  Buffer out{nullptr, 0, type.dtype};
  ConstBuffer in;
  if (root == rank_) {
    out = staging.in_place(tensor, type);
    in = out;
  } else {
    in = staging.input(tensor, type);
  }
  return issue({OpType::REDUCE, "mccl:reduce"}, std::move(staging), tensors, tensors,
               call_options(opts.timeout, opts.asyncOp),
               [=](Group& group, const CallOptions& options) {
                 return group.reduce(in, out, op, root, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  const char* call = "reduce_scatter";
  const at::Tensor& output = require_single(call, outputs, "output tensor");
  Tensors& list = require_list(call, inputs, ranks(), "input");
  require_same_type(call, output, list);
  require_elements(call, "this rank's slot of the input list", output.numel(),
                   list[static_cast<std::size_t>(rank_)].numel());
  const mccl::ReduceOp op = reduce_op_of(call, opts.reduceOp);
  TensorStaging staging(call);
  const ElementType type{reducible_type(call, output.scalar_type(), op), 1};
  const Counts counts = counts_of(list, type);
  const Buffer out = staging.output(output, type);
  const ConstBuffer in =
      readable_beside(staging, staging.input(list, type), out, sum_before(counts, rank_));
  return issue({OpType::REDUCE_SCATTER, "mccl:reduce_scatter"}, std::move(staging), list, outputs,
               call_options(opts.timeout, opts.asyncOp),
               [&](Group& group, const CallOptions& options) {
                 return all_equal(counts) ? group.reduce_scatter(in, out, op, options)
                                          : group.reduce_scatterv(in, out, counts, op, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  const char* call = "_reduce_scatter_base";
  require_dense(call, output);
  require_same_type(call, output, {input});
  require_elements(call, "input tensor must be the same size as output size times world size",
                   output.numel() * size_, input.numel());
  const mccl::ReduceOp op = reduce_op_of(call, opts.reduceOp);
  TensorStaging staging(call);
  const ElementType type{reducible_type(call, output.scalar_type(), op), 1};
  const Buffer out = staging.output(output, type);
  const ConstBuffer in = readable_beside(staging, staging.input(input, type), out,
                                         out.count * static_cast<std::size_t>(rank_));
  return issue({OpType::_REDUCE_SCATTER_BASE, "mccl:_reduce_scatter_base"}, std::move(staging),
               {input}, {output}, call_options(opts.timeout, opts.asyncOp),
               [=](Group& group, const CallOptions& options) {
                 return group.reduce_scatter(in, out, op, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::reduce_scatter_keeping(const at::Tensor& output,
                                                                   const at::Tensor& input,
                                                                   const at::Tensor& left_out,
                                                                   const c10d::ReduceOp& reduce_op,
                                                                   TopkRatio topk_ratio) {
  const char* call = "reduce_scatter_keeping";
  require_same_type(call, output, {input, left_out});
  require_elements(call, "input tensor must be the same size as output size times world size",
                   output.numel() * size_, input.numel());
  require_elements(call, "left_out must be the same size as the input", input.numel(),
                   left_out.numel());
  const mccl::ReduceOp op = reduce_op_of(call, reduce_op);
  TensorStaging staging(call);
  const ElementType type{reducible_type(call, output.scalar_type(), op), 1};
  const Buffer out = staging.output(output, type);
  const ConstBuffer in = staging.input(input, type);
  const Buffer left = staging.output(left_out, type);
  return issue({OpType::_REDUCE_SCATTER_BASE, "mccl:_reduce_scatter_base"}, std::move(staging),
               {input}, {output}, call_options(c10d::kUnsetTimeout, true),
               [=](Group& group, CallOptions options) {
                 options.left_out = left;
                 options.compression = topk_of(topk_ratio);
                 return group.reduce_scatter(in, out, op, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  require_pairs("reduce_scatter_tensor_coalesced", outputs.size(), inputs.size());
  c10d::ReduceScatterOptions each = opts;
  each.asyncOp = opts.asyncOp || inputs.size() > 1;
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(_reduce_scatter_base(outputs[i], inputs[i], each));
  }
  return all_of({OpType::COALESCED, "mccl:reduce_scatter_tensor_coalesced"}, works, outputs);
}

/// Creates no Work of torch, which makes this call cheaper for programs that make many small calls.
void ProcessGroupMCCL::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& reduce_op) {
  static constexpr const char* kTitle = "mccl:all_reduce";
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
    // A Work is done if the call has ended, or if it is enqueued in the caller's stream, where
    // torch reuses the tensor's memory only for later work. In both cases the tensor need not be
    // kept.
    if (work.done()) return;
    // The call goes through the host. Keep the tensor until the call is over. Free the tensor on a
    // callback thread, because freeing it may block on a lock of torch.
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
