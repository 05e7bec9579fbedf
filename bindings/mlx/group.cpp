#include "group.h"

#include <fmt/format.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/utils.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <optional>
#include <utility>

#include "arrays.h"
#include "gpu.h"
#include "mccl/error.h"
#include "turns.h"

namespace mccl_mlx {

namespace nb = nanobind;

namespace {

/// Adds this rank to the text of InvalidArgument; all other errors of the engine already contain
/// the rank.
template <typename Action>
auto naming_rank(int rank, Action&& action) {
  try {
    return action();
  } catch (const mccl::InvalidArgument& error) {
    throw mccl::InvalidArgument(fmt::format("rank {}: {}", rank, error.what()));
  }
}

/// Releases the GIL while this thread waits for other threads, which may need the GIL to free
/// memory that Python owns.
class WithoutPython {
 public:
  WithoutPython() {
    if (PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<nb::gil_scoped_release> released_;
};

/// Runs `action`. If it throws, fills `output` first, so that no number in it passes for a result:
/// floats become NaN. np.array(y) hides the error of the evaluation of y, and returns the contents.
template <typename Action>
void spoiling(const mccl::Buffer& output, Action&& action) {
  try {
    action();
  } catch (...) {
    if (output.bytes() > 0) std::memset(output.data, 0xff, output.bytes());
    throw;
  }
}

}  // namespace

MlxGroup::MlxGroup(std::shared_ptr<mccl::Group> group, bool on_gpu)
    : group_(std::move(group)), on_gpu_(on_gpu) {
  for (int rank = 0; rank < group_->size(); ++rank) sends_.push_back(std::make_shared<TurnQueue>());
}

mx::Stream MlxGroup::stream_of_cpu(mx::StreamOrDevice stream) {
  const mx::Stream chosen = mx::to_stream(stream, mx::Device::cpu);
  if (chosen.device != mx::Device::cpu) {
    throw mccl::InvalidArgument(
        "stream: expected a CPU stream; found a GPU stream; pass stream=mx.cpu, or omit stream");
  }
  return chosen;
}

mx::Stream MlxGroup::communication_stream(mx::StreamOrDevice stream) {
  return on_gpu_ ? mx::to_stream(stream, mx::Device::gpu) : stream_of_cpu(stream);
}

void MlxGroup::run_on(mx::Stream stream, const mx::array& input, mx::array& output,
                      CallOnArrays call) {
  if (stream.device == mx::Device::gpu) return run_on_gpu(stream, input, output, call);
  const mccl::Buffer out = buffer_of(output);
  ask_for_large_pages(out);
  run_on(stream, out,
         [in = buffer_of(input), out, call = std::move(call)](mccl::Group& group,
                                                              const mccl::CallOptions& options) {
           return call(group, in, out, options);
         });
}

/// Starts a GPU collective on the thread that evaluates the graph. That thread also waits for the
/// turn of the collective.
void MlxGroup::run_on_gpu(mx::Stream stream, const mx::array& input, mx::array& output,
                          const CallOnArrays& call) {
  const WithoutPython without_python;
  const std::lock_guard lock(order_);
  throw_what_failed();
  Turn turn(collectives_);
  naming_rank(rank(), [&] {
    turn.await();
    const mccl::ConstBuffer in = gpu::buffer_of(input, stream);
    const mccl::Buffer out = gpu::buffer_of(output, stream);
    mccl::Work work = gpu::run(stream, [&](void* cuda_stream) {
      mccl::Work started =
          call(*group_, in, out, {.caller_waits = true, .may_meet = true, .stream = cuda_stream});
      started.wait_on_stream(cuda_stream);
      return started;
    });
    // Keep the Work even if the call is over, because throw_what_failed() must throw the call's
    // error.
    on_their_way_.push_back(std::move(work));
  });
}

void MlxGroup::throw_what_failed() {
  std::vector<mccl::Work> over;
  std::erase_if(on_their_way_, [&over](const mccl::Work& work) {
    if (!work.done()) return false;
    over.push_back(work);
    return true;
  });
  for (const mccl::Work& work : over) work.wait();
}

void MlxGroup::run_on(mx::Stream stream, const mccl::Buffer& output, Call call) {
  const std::lock_guard lock(order_);
  mx::cpu::get_command_encoder(stream).dispatch(
      [pending = PendingCalls::of_process().begin(), self = shared_from_this(),
       turn = std::make_shared<Turn>(collectives_), output, call = std::move(call)] {
        spoiling(output, [&] {
          naming_rank(self->rank(), [&] {
            turn->await();
            const mccl::Work work = call(*self->group_, {.timeout = {}, .caller_waits = true});
            turn->end();
            work.wait();
          });
        });
      });
}

void MlxGroup::run_now(const Call& call) {
  const WithoutPython without_python;
  std::shared_ptr<Turn> turn;
  {
    const std::lock_guard lock(order_);
    turn = std::make_shared<Turn>(collectives_);
  }
  naming_rank(rank(), [&] {
    turn->await();
    call(*group_, {.timeout = {}, .caller_waits = true}).wait();
  });
}

void MlxGroup::send(const mx::array& input, int dst, mx::Stream stream) {
  const std::lock_guard lock(order_);
  const std::shared_ptr<TurnQueue>& queue = sends_.at(static_cast<std::size_t>(dst));
  mx::cpu::get_command_encoder(stream).dispatch(
      [pending = PendingCalls::of_process().begin(), self = shared_from_this(),
       turn = std::make_shared<Turn>(queue), buffer = buffer_of(input), dst] {
        naming_rank(self->rank(), [&] {
          turn->await();
          const mccl::Work work = self->group_->send(buffer, dst, 0);
          turn->end();
          work.wait();
        });
      });
}

void MlxGroup::recv(mx::array& output, int src, mx::Stream stream) {
  const std::lock_guard lock(order_);
  mccl::Work work;
  std::exception_ptr refused;
  try {
    work = naming_rank(rank(), [&] {
      // The engine takes -1 as any rank, which MLX does not offer.
      if (src < 0) {
        throw mccl::InvalidArgument(
            fmt::format("recv: rank {} is not in this group (0 to {})", src, size() - 1));
      }
      return group_->recv(buffer_of(output), src, 0);
    });
  } catch (const mccl::Error&) {
    refused = std::current_exception();
  }
  free_when_received(output, work);
  mx::cpu::get_command_encoder(stream).dispatch([pending = PendingCalls::of_process().begin(),
                                                 self = shared_from_this(), out = buffer_of(output),
                                                 work, refused] {
    spoiling(out, [&] {
      if (refused) std::rethrow_exception(refused);
      work.wait();
    });
  });
}

std::shared_ptr<mx::distributed::detail::GroupImpl> MlxGroup::split(int color, int key) {
  std::shared_ptr<mccl::Group> part;
  run_now([&](mccl::Group& group, const mccl::CallOptions&) {
    part = group.split(color, key < 0 ? group.rank() : key);
    return mccl::Work();
  });
  if (!part) {
    throw mccl::InvalidArgument(
        fmt::format("split: color {} puts rank {} into no group, which MLX does not support; give "
                    "every rank a color of 0 or more",
                    color, rank()));
  }
  // The new group keeps this group alive, which keeps the job's context alive.
  using Family = std::pair<std::shared_ptr<mccl::Group>, std::shared_ptr<mccl::Group>>;
  const auto family = std::make_shared<Family>(group_, std::move(part));
  return std::make_shared<MlxGroup>(std::shared_ptr<mccl::Group>(family, family->second.get()),
                                    on_gpu_);
}

mx::Stream Alone::communication_stream(mx::StreamOrDevice stream) {
  return MlxGroup::stream_of_cpu(stream);
}

std::shared_ptr<mx::distributed::detail::GroupImpl> Alone::split(int, int) {
  throw mccl::Error("split: the group has only this process and cannot be split");
}

void Alone::refuse(const char* call) {
  throw mccl::Error(fmt::format(
      "{}: the group has only this process; there is no peer to communicate with", call));
}

namespace {

using Complex = std::complex<float>;

/// MLX orders complex numbers by real part, then by imaginary part.
bool less(const Complex& a, const Complex& b) {
  return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag());
}

/// Minimum or maximum of complex numbers. The engine cannot reduce complex numbers by minimum or
/// maximum, so every rank gathers and compares all inputs.
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

void MlxGroup::reduce(const mx::array& input, mx::array& output, mccl::ReduceKind kind,
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

void MlxGroup::all_sum(const mx::array& input, mx::array& output, mx::Stream stream) {
  reduce(input, output, mccl::ReduceKind::sum, stream);
}

void MlxGroup::all_max(const mx::array& input, mx::array& output, mx::Stream stream) {
  reduce(input, output, mccl::ReduceKind::max, stream);
}

void MlxGroup::all_min(const mx::array& input, mx::array& output, mx::Stream stream) {
  reduce(input, output, mccl::ReduceKind::min, stream);
}

void MlxGroup::all_gather(const mx::array& input, mx::array& output, mx::Stream stream) {
  run_on(stream, input, output,
         [](mccl::Group& group, mccl::ConstBuffer in, mccl::Buffer out,
            const mccl::CallOptions& options) { return group.all_gather(in, out, options); });
}

void MlxGroup::sum_scatter(const mx::array& input, mx::array& output, mx::Stream stream) {
  run_on(stream, input, output,
         [](mccl::Group& group, mccl::ConstBuffer in, mccl::Buffer out,
            const mccl::CallOptions& options) {
           return group.reduce_scatter(in, out, mccl::ReduceKind::sum, options);
         });
}

}  // namespace mccl_mlx
