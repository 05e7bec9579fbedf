// The mean of arrays that a codec rounds for sending, and the part that rounding dropped on this
// rank.
#include <mlx/allocator.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>

#include <vector>

#include "exchange.h"
#include "mccl/error.h"

namespace mccl_mlx {
namespace {

class RoundedMean final : public mx::Primitive {
 public:
  RoundedMean(mx::Stream stream, std::shared_ptr<Group> group, const mccl::Compression& compression)
      : Primitive(stream), group_(std::move(group)), compression_(compression) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    const mx::array& in = inputs[0];
    for (mx::array& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
      ask_for_large_pages(buffer_of(output));
    }
    group_->run_on(stream(),
                   [compression = compression_, in = buffer_of(in), mean = buffer_of(outputs[0]),
                    left = buffer_of(outputs[1])](mccl::Group& group, mccl::CallOptions options) {
                     options.compression = compression;
                     options.left_out = left;
                     return group.all_reduce(in, mean, mccl::ReduceKind::avg, options);
                   });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw mccl::Error("MCCL supports CPU streams only");
  }

  const char* name() const override { return "mccl::RoundedMean"; }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return {inputs[0].shape(), inputs[0].shape()};
  }

 private:
  const std::shared_ptr<Group> group_;
  const mccl::Compression compression_;
};

}  // namespace

std::pair<mx::array, mx::array> record_rounded_mean(const mx::array& x,
                                                    const mccl::Compression& compression,
                                                    const std::shared_ptr<Group>& group,
                                                    mx::StreamOrDevice stream) {
  if (!mx::issubdtype(x.dtype(), mx::floating)) {
    throw mccl::InvalidArgument("rounded_mean: expected an array of floats");
  }
  const mx::Stream chosen = Group::stream_of_cpu(stream);
  auto both = mx::array::make_arrays({x.shape(), x.shape()}, {x.dtype(), x.dtype()},
                                     std::make_shared<RoundedMean>(chosen, group, compression),
                                     {mx::contiguous(x, false, chosen)});
  return {both[0], both[1]};
}

}  // namespace mccl_mlx
