// The collectives of MLX's GroupImpl interface.
#include <algorithm>
#include <complex>
#include <utility>

#include "group.h"
#include "mccl/error.h"

namespace mccl_mlx {
namespace {

using Complex = std::complex<float>;

/// MLX orders complex numbers by real part, then by imaginary part.
bool less(const Complex& a, const Complex& b) {
  return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag());
}

/// Minimum or maximum of complex numbers. The engine defines no order for them, so every rank
/// gathers and compares all inputs.
mccl::Work complex_extreme(mccl::Group& group, mccl::ConstBuffer in, mccl::Buffer out, bool largest,
                           const mccl::CallOptions& options) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<Complex> all(ranks * in.count);
  group.all_gather(in, {all.data(), all.size(), mccl::DType::c64}, options).wait();
  auto* best = static_cast<Complex*>(out.data);
  std::copy_n(all.begin(), in.count, best);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < in.count; ++i) {
      const Complex& other = all[rank * in.count + i];
      if (largest ? less(best[i], other) : less(other, best[i])) best[i] = other;
    }
  }
  return {};
}

}  // namespace

void Group::reduce(const mx::array& input, mx::array& output, mccl::ReduceKind kind,
                   mx::Stream stream) {
  const bool ordered = kind == mccl::ReduceKind::max || kind == mccl::ReduceKind::min;
  if (ordered && input.dtype() == mx::complex64) {
    if (stream.device == mx::Device::gpu) {
      throw mccl::InvalidArgument(
          "all_max, all_min: complex numbers are supported on the CPU only; pass stream=mx.cpu");
    }
    return run_on(stream, input, output,
                  [largest = kind == mccl::ReduceKind::max](mccl::Group& group,
                                                            mccl::ConstBuffer in, mccl::Buffer out,
                                                            const mccl::CallOptions& options) {
                    return complex_extreme(group, in, out, largest, options);
                  });
  }
  run_on(stream, input, output,
         [kind](mccl::Group& group, mccl::ConstBuffer in, mccl::Buffer out,
                const mccl::CallOptions& options) {
           return group.all_reduce(in, out, kind, options);
         });
}

void Group::all_sum(const mx::array& input, mx::array& output, mx::Stream stream) {
  reduce(input, output, mccl::ReduceKind::sum, stream);
}

void Group::all_max(const mx::array& input, mx::array& output, mx::Stream stream) {
  reduce(input, output, mccl::ReduceKind::max, stream);
}

void Group::all_min(const mx::array& input, mx::array& output, mx::Stream stream) {
  reduce(input, output, mccl::ReduceKind::min, stream);
}

void Group::all_gather(const mx::array& input, mx::array& output, mx::Stream stream) {
  run_on(stream, input, output,
         [](mccl::Group& group, mccl::ConstBuffer in, mccl::Buffer out,
            const mccl::CallOptions& options) { return group.all_gather(in, out, options); });
}

void Group::sum_scatter(const mx::array& input, mx::array& output, mx::Stream stream) {
  run_on(stream, input, output,
         [](mccl::Group& group, mccl::ConstBuffer in, mccl::Buffer out,
            const mccl::CallOptions& options) {
           return group.reduce_scatter(in, out, mccl::ReduceKind::sum, options);
         });
}

}  // namespace mccl_mlx
