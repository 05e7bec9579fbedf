#include "exchange_primitive.h"

#include <mlx/allocator.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>

#include <utility>

#include "mccl/error.h"

namespace mccl_mlx {
namespace {

class ExchangePrimitive final : public mx::UnaryPrimitive {
 public:
  ExchangePrimitive(mx::Stream stream, std::shared_ptr<Group> group, Exchange exchange)
      : UnaryPrimitive(stream), group_(std::move(group)), exchange_(std::move(exchange)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    allocate(inputs[0], out);
    run(inputs[0], out);
  }

  void eval_gpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    eval_cpu(inputs, out);
  }

  std::vector<mx::array> jvp(const std::vector<mx::array>&, const std::vector<mx::array>& tangents,
                             const std::vector<int>&) override {
    return {record(tangents[0], exchange_, group_, stream())};
  }

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals,
                             const std::vector<mx::array>& cotangents, const std::vector<int>&,
                             const std::vector<mx::array>&) override {
    return {record(cotangents[0], adjoint(exchange_, primals[0].shape()), group_, stream())};
  }

  /// Rows stay on axis 0, so the mapped axis becomes part of a row.
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override {
    mx::array x = inputs[0];
    int axis = axes[0];
    if (has_rows(exchange_.kind) && axis >= 0) {
      if (x.ndim() < 2) {
        throw mccl::InvalidArgument(
            std::string(name()) +
            ": an array that is mapped over its only axis has no axis left to divide");
      }
      x = mx::moveaxis(x, axis, 1, stream());
      axis = 1;
    }
    return {{record(x, exchange_, group_, stream())}, {axis}};
  }

  const char* name() const override { return "mccl::Exchange"; }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return {output_shape(exchange_, inputs[0].shape(), group_->rank())};
  }

 private:
  void run(const mx::array& in, mx::array& out) {
    group_->run_on(stream(), in, out,
                   [exchange = exchange_, row = elements_of_row(in)](
                       mccl::Group& group, mccl::ConstBuffer from, mccl::Buffer to,
                       const mccl::CallOptions& options) {
                     return start(exchange, group, from, to, row, options);
                   });
  }

  void allocate(const mx::array& in, mx::array& out) const {
    const bool shares = gives_own_input(exchange_, group_->rank()) ||
                        (works_in_place(exchange_) && in.is_donatable());
    if (shares) {
      out.copy_shared_buffer(in);
    } else {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
  }

  static std::size_t elements_of_row(const mx::array& in) {
    std::size_t elements = 1;
    for (std::size_t axis = 1; axis < in.ndim(); ++axis) {
      elements *= static_cast<std::size_t>(in.shape(static_cast<int>(axis)));
    }
    return elements;
  }

  const std::shared_ptr<Group> group_;
  const Exchange exchange_;
};

/// True if the kind runs on the GPU. Kinds that have a root run on the CPU, because they copy and
/// clear host memory.
bool runs_on_gpu(ExchangeKind kind) {
  return kind == ExchangeKind::all_sum || kind == ExchangeKind::all_mean ||
         kind == ExchangeKind::all_gather || kind == ExchangeKind::sum_scatter ||
         kind == ExchangeKind::all_to_all;
}

}  // namespace

std::shared_ptr<Group> group_in(const mx::distributed::Group& group) {
  auto found = std::dynamic_pointer_cast<Group>(group.raw_group());
  if (!found && !std::dynamic_pointer_cast<Alone>(group.raw_group())) {
    throw mccl::InvalidArgument(
        "group: expected a group from mccl.mlx.init() or its split(); found one of MLX's own "
        "backends");
  }
  return found;
}

mx::array record(const mx::array& x, const Exchange& exchange, const std::shared_ptr<Group>& group,
                 mx::StreamOrDevice stream) {
  check(exchange, x.shape(), group->rank(), group->size());
  const mx::Stream chosen = runs_on_gpu(exchange.kind) ? group->communication_stream(stream)
                                                       : Group::stream_of_cpu(stream);
  return mx::array(output_shape(exchange, x.shape(), group->rank()), x.dtype(),
                   std::make_shared<ExchangePrimitive>(chosen, group, exchange),
                   {mx::contiguous(x, false, chosen)});
}

}  // namespace mccl_mlx
