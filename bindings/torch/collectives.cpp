// Collectives that only move data, and the barrier.
#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "checks.h"
#include "torch/csrc/distributed/c10d/Utils.hpp"

namespace mccl_torch {
namespace {

using c10d::OpType;
using mccl::Buffer;
using mccl::CallOptions;
using mccl::ConstBuffer;
using mccl::Group;

void require_no_list(const char* call, const std::vector<std::vector<at::Tensor>>& lists,
                     const char* role) {
  if (lists.empty() || (lists.size() == 1 && lists.front().empty())) return;
  invalid_argument(call, c10::str("requires empty ", role, " on non-root"));
}

/// Returns each rank's number of elements. `splits` holds each rank's number of rows (indices of
/// dimension 0); if it is empty, all ranks have equal parts.
Counts split_counts(const char* call, const char* role, const std::vector<std::int64_t>& splits,
                    const at::Tensor& tensor, std::size_t ranks, ElementType type) {
  const auto elements = static_cast<std::size_t>(tensor.numel()) * type.units;
  if (splits.empty()) {
    const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
    if (rows % static_cast<std::int64_t>(ranks) != 0) {
      invalid_argument(call, c10::str("Tensor's dim 0 does not divide equally across group size: ",
                                      role, " has ", rows, " rows for ", ranks, " ranks"));
    }
    return Counts(ranks, elements / ranks);
  }
  if (splits.size() != ranks) {
    invalid_argument(call, c10::str("Number of tensor splits not equal to group size: ", role,
                                    " has ", splits.size(), " splits, expected ", ranks));
  }
  std::int64_t rows = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) invalid_argument(call, c10::str("a split of the ", role, " is negative"));
    rows += split;
  }
  const std::int64_t expected = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  if (rows != expected) {
    invalid_argument(call, c10::str("Split sizes doesn't match total dim 0 size: the ", role,
                                    " splits sum to ", rows, ", expected ", expected));
  }
  const std::size_t row = rows == 0 ? 0 : elements / static_cast<std::size_t>(rows);
  Counts counts;
  counts.reserve(ranks);
  for (const std::int64_t split : splits) counts.push_back(static_cast<std::size_t>(split) * row);
  return counts;
}

}  // namespace

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& opts) {
  const char* call = "broadcast";
  const at::Tensor& tensor = require_single(call, tensors, "tensor");
  require_root(call, opts.rootRank);
  if (opts.rootTensor != 0)
    invalid_argument(call, c10::str("invalid root tensor: ", opts.rootTensor));
  TensorStaging staging(call);
  const auto root = static_cast<int>(opts.rootRank);
  const ElementType type = movable_type(tensor.scalar_type());
  const Buffer data = root == rank_ ? staging.in_place(tensor, type) : staging.output(tensor, type);
  return issue({OpType::BROADCAST, "mccl:broadcast"}, std::move(staging), tensors, tensors,
               call_options(opts.timeout, opts.asyncOp),
               [=](Group& group, const CallOptions& options) {
                 return group.broadcast(data, root, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  const char* call = "allgather";
  const at::Tensor& input = require_single(call, inputs, "input tensor");
  Tensors& list = require_list(call, outputs, ranks(), "output");
  require_same_type(call, input, list);
  require_elements(call, "this rank's slot of the output list", input.numel(),
                   list[static_cast<std::size_t>(rank_)].numel());
  TensorStaging staging(call);
  const ElementType type = movable_type(input.scalar_type());
  const Counts counts = counts_of(list, type);
  const Buffer out = staging.output(list, type);
  const std::size_t slot = sum_before(counts, rank_) * mccl::size_of(type.dtype);
  const ConstBuffer in = staging.apart_from(staging.input(input, type), out, slot);
  return issue({OpType::ALLGATHER, "mccl:all_gather"}, std::move(staging), inputs, list,
               call_options(opts.timeout, opts.asyncOp),
               [&](Group& group, const CallOptions& options) {
                 return all_equal(counts) ? group.all_gather(in, out, options)
                                          : group.all_gatherv(in, out, counts, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  const char* call = "_allgather_base";
  require_dense(call, input);
  require_same_type(call, input, {output});
  require_elements(call, "output tensor size must be equal to world_size times input tensor size",
                   input.numel() * size_, output.numel());
  TensorStaging staging(call);
  const ElementType type = movable_type(input.scalar_type());
  const Buffer out = staging.output(output, type);
  ConstBuffer in = staging.input(input, type);
  in = staging.apart_from(in, out, in.bytes() * static_cast<std::size_t>(rank_));
  return issue(
      {OpType::_ALLGATHER_BASE, "mccl:_all_gather_base"}, std::move(staging), {input}, {output},
      call_options(opts.timeout, opts.asyncOp),
      [=](Group& group, const CallOptions& options) { return group.all_gather(in, out, options); });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const char* call = "allgather_coalesced";
  if (inputs.empty()) invalid_argument(call, "requires non-empty input tensor list");
  if (outputs.size() != ranks()) {
    invalid_argument(call, c10::str("output lists should be equal to world size (expected ", size_,
                                    ", got ", outputs.size(), ")"));
  }
  Tensors all;
  for (std::size_t r = 0; r < outputs.size(); ++r) {
    if (outputs[r].size() != inputs.size()) {
      invalid_argument(call, c10::str("invalid output size: (expected length ", inputs.size(),
                                      ", got ", outputs[r].size(), ") in the list of rank ", r));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      require_dense(call, inputs[i]);
      require_same_type(call, inputs[i], {outputs[r][i]});
      require_elements(call, "an output must have the size of its input", inputs[i].numel(),
                       outputs[r][i].numel());
      all.push_back(outputs[r][i]);
    }
  }
  TensorStaging staging(call);
  const ConstBuffer in = staging.input_bytes(inputs);
  const Buffer out = staging.output_bytes(all);
  return issue(
      {OpType::ALLGATHER_COALESCED, "mccl:all_gather"}, std::move(staging), inputs, all,
      call_options(opts.timeout, opts.asyncOp),
      [=](Group& group, const CallOptions& options) { return group.all_gather(in, out, options); });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  require_pairs("allgather_into_tensor_coalesced", outputs.size(), inputs.size());
  c10d::AllgatherOptions each = opts;
  each.asyncOp = opts.asyncOp || inputs.size() > 1;
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(_allgather_base(outputs[i], inputs[i], each));
  }
  return all_of({OpType::COALESCED, "mccl:all_gather_into_tensor_coalesced"}, works, outputs);
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& opts) {
  const char* call = "gather";
  require_root(call, opts.rootRank);
  const at::Tensor& input = require_single(call, inputs, "input tensor");
  const auto root = static_cast<int>(opts.rootRank);
  TensorStaging staging(call);
  const ElementType type = movable_type(input.scalar_type());
  ConstBuffer in = staging.input(input, type);
  Buffer out{nullptr, 0, type.dtype};
  Tensors list;
  if (root == rank_) {
    list = require_list(call, outputs, ranks(), "output");
    require_same_type(call, input, list);
    for (const auto& tensor : list) {
      require_elements(call, "every output must have the size of the input", input.numel(),
                       tensor.numel());
    }
    out = staging.output(list, type);
    in = staging.apart_from(in, out, in.bytes() * static_cast<std::size_t>(rank_));
  } else {
    require_no_list(call, outputs, "output");
  }
  return issue({OpType::GATHER, "mccl:gather"}, std::move(staging), inputs, list,
               call_options(opts.timeout, opts.asyncOp),
               [=](Group& group, const CallOptions& options) {
                 return group.gather(in, out, root, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& opts) {
  const char* call = "scatter";
  require_root(call, opts.rootRank);
  const at::Tensor& output = require_single(call, outputs, "output tensor");
  const auto root = static_cast<int>(opts.rootRank);
  TensorStaging staging(call);
  const ElementType type = movable_type(output.scalar_type());
  const Buffer out = staging.output(output, type);
  ConstBuffer in(nullptr, 0, type.dtype);
  const auto ranks_before = static_cast<std::size_t>(rank_);
  Tensors list;
  if (root == rank_) {
    list = require_list(call, inputs, ranks(), "input");
    require_same_type(call, output, list);
    for (const auto& tensor : list) {
      require_elements(call, "every input must have the size of the output", output.numel(),
                       tensor.numel());
    }
    in = readable_beside(staging, staging.input(list, type), out, out.count * ranks_before);
  } else {
    require_no_list(call, inputs, "input");
  }
  return issue({OpType::SCATTER, "mccl:scatter"}, std::move(staging), list, outputs,
               call_options(opts.timeout, opts.asyncOp),
               [=](Group& group, const CallOptions& options) {
                 return group.scatter(in, out, root, options);
               });
}

// Always runs all_to_allv, because one rank may pass equal splits while another leaves its splits
// empty. The GPU kernels support equal parts only, so on GPUs the splits must be empty on all ranks
// or on none.
ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          Splits& output_splits,
                                                          Splits& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  const char* call = "alltoall_base";
  require_dense(call, input);
  require_same_type(call, input, {output});
  const ElementType type = movable_type(input.scalar_type());
  const Counts in_counts = split_counts(call, "input", input_splits, input, ranks(), type);
  const Counts out_counts = split_counts(call, "output", output_splits, output, ranks(), type);
  const bool equal = input_splits.empty() && output_splits.empty();
  TensorStaging staging(call);
  const Buffer out = staging.output(output, type);
  const ConstBuffer in = staging.apart_from(staging.input(input, type), out);
  return issue({OpType::ALLTOALL_BASE, "mccl:all_to_all"}, std::move(staging), {input}, {output},
               call_options(opts.timeout, opts.asyncOp), [&](Group& group, CallOptions options) {
                 options.equal_counts = equal;
                 return group.all_to_allv(in, in_counts, out, out_counts, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  const char* call = "alltoall";
  if (inputs.size() != ranks() || outputs.size() != ranks()) {
    invalid_argument(
        call, c10::str("requires one input and one output per rank (expected ", size_, ", got ",
                       inputs.size(), " inputs and ", outputs.size(), " outputs)"));
  }
  require_same_type(call, inputs.front(), inputs);
  require_same_type(call, inputs.front(), outputs);
  const ElementType type = movable_type(inputs.front().scalar_type());
  const Counts in_counts = counts_of(inputs, type);
  const Counts out_counts = counts_of(outputs, type);
  TensorStaging staging(call);
  const Buffer out = staging.output(outputs, type);
  const ConstBuffer in = staging.apart_from(staging.input(inputs, type), out);
  return issue({OpType::ALLTOALL, "mccl:all_to_all"}, std::move(staging), inputs, outputs,
               call_options(opts.timeout, opts.asyncOp),
               [&](Group& group, const CallOptions& options) {
                 return group.all_to_allv(in, in_counts, out, out_counts, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::barrier(const c10d::BarrierOptions& opts) {
  finish_streams();
  TensorStaging staging("barrier");
  if (mps_is_used()) staging.lie_on_mps();
  return issue({OpType::BARRIER, "mccl:barrier"}, std::move(staging), {}, {},
               call_options(opts.timeout, opts.asyncOp),
               [](Group& group, const CallOptions& options) { return group.barrier(options); });
}

}  // namespace mccl_torch
