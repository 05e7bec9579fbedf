#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <array>
#include <memory>
#include <numeric>
#include <utility>

#include "backend.h"
#include "process.h"

namespace mccl_torch {
namespace {

using mccl::CallOptions;
using mccl::Group;

constexpr std::size_t kMaxDims = 12;
/// Number of fields of a Description before the sizes: the number of entries, the number of sparse
/// dimensions, the number of dense dimensions, and the element type.
constexpr std::size_t kHeader = 4;
using Description = std::array<std::int64_t, kHeader + kMaxDims>;

Description describe(const at::Tensor& coalesced) {
  Description text{};
  text[0] = coalesced._nnz();
  text[1] = coalesced.sparse_dim();
  text[2] = coalesced.dense_dim();
  text[3] = static_cast<std::int64_t>(coalesced.scalar_type());
  for (std::int64_t d = 0; d < coalesced.dim(); ++d) {
    text[kHeader + static_cast<std::size_t>(d)] = coalesced.size(d);
  }
  return text;
}

/// Throws ValueError unless all ranks have the same shape and type; only the number of entries may
/// differ.
void require_alike(const std::vector<Description>& all, int rank) {
  const Description& mine = all[static_cast<std::size_t>(rank)];
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!std::equal(mine.begin() + 1, mine.end(), all[r].begin() + 1)) {
      invalid_argument("allreduce_sparse",
                       c10::str("sparse tensors differ in shape, type or sparse dimensions "
                                "between rank ",
                                rank, " and rank ", r));
    }
  }
}

}  // namespace

/// Sums sparse tensors, whose numbers of entries may differ between ranks. The ranks first exchange
/// their Descriptions, then gather all indices and values. Each rank then adds up all entries in
/// rank order.
ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::allreduce_sparse(Tensors& tensors,
                                                             const c10d::AllreduceOptions& opts) {
  const char* call = "allreduce_sparse";
  if (tensors.size() != 1) invalid_argument(call, "requires a single-element tensor list");
  const at::Tensor tensor = tensors.front();
  if (tensor.layout() != at::kSparse) {
    invalid_argument(call, c10::str("invalid tensor layout: expected a sparse COO tensor, got ",
                                    tensor.layout()));
  }
  if (opts.reduceOp.op_ != c10d::ReduceOp::SUM) {
    invalid_argument(call, "unsupported reduction operation: sparse tensors can only be summed");
  }
  if (static_cast<std::size_t>(tensor.dim()) > kMaxDims) {
    invalid_argument(
        call, c10::str("at most ", kMaxDims, " dimensions are supported, got ", tensor.dim()));
  }
  require_host_memory(call, tensor);
  reducible_type(call, tensor.scalar_type(), mccl::ReduceKind::sum);
  const at::Tensor mine = tensor.coalesce();

  const CallOptions wait = call_options(opts.timeout, false);
  // Both buffers must live as long as the call, which continues if a signal interrupts the wait.
  const auto kept = std::make_shared<std::vector<Description>>(ranks());
  std::vector<Description>& all = *kept;
  const auto own = std::make_shared<Description>(describe(mine));
  try {
    const mccl::Work work =
        group_for(call)->all_gather({own->data(), own->size(), mccl::DType::i64},
                                    {all.data(), all.size() * own->size(), mccl::DType::i64}, wait);
    work.on_done([kept, own](const std::exception_ptr&) {});
    wait_with_signals(work);
  } catch (const std::exception&) {
    throw_torch_error(std::current_exception(), rank_, "mccl:sparse_all_reduce");
  }
  require_alike(all, rank_);

  // The indices are transposed, so that the indices of each rank are contiguous when gathered.
  const at::Tensor indices = mine._indices().t().contiguous();
  const at::Tensor values = mine._values().contiguous();
  std::int64_t entries = 0;
  for (const auto& description : all) entries += description[0];
  auto value_sizes = values.sizes().vec();
  value_sizes[0] = entries;
  const at::Tensor all_indices = at::empty({entries, mine.sparse_dim()}, indices.options());
  const at::Tensor all_values = at::empty(value_sizes, values.options());

  const auto gather = [&](const at::Tensor& in, const at::Tensor& out, const char* title) {
    const std::int64_t row = std::accumulate(in.sizes().begin() + 1, in.sizes().end(),
                                             std::int64_t{1}, std::multiplies<>());
    const ElementType type = movable_type(in.scalar_type());
    std::vector<std::size_t> counts;
    for (const auto& description : all) {
      counts.push_back(static_cast<std::size_t>(description[0] * row) * type.units);
    }
    TensorStaging staging(call);
    const mccl::ConstBuffer from = staging.input(in, type);
    const mccl::Buffer to = staging.output(out, type);
    return issue({c10d::OpType::_ALLREDUCE_SPARSE, title}, std::move(staging), {}, {out},
                 call_options(opts.timeout, true), [&](Group& group, const CallOptions& options) {
                   return group.all_gatherv(from, to, counts, options);
                 });
  };
  const std::vector<WorkPtr> parts{gather(indices, all_indices, "mccl:sparse_indices"),
                                   gather(values, all_values, "mccl:sparse_values")};
  return sum_when_gathered(parts, tensor, all_indices, all_values);
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::sum_when_gathered(const std::vector<WorkPtr>& parts,
                                                              const at::Tensor& tensor,
                                                              const at::Tensor& indices,
                                                              const at::Tensor& values) {
  return all_of({c10d::OpType::_ALLREDUCE_SPARSE, "mccl:sparse_all_reduce"}, parts, {tensor}, [=] {
    const at::NoGradGuard no_grad;
    tensor.copy_(
        at::_sparse_coo_tensor_unsafe(indices.t().contiguous(), values, tensor.sizes()).coalesce());
  });
}

}  // namespace mccl_torch
