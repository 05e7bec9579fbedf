#include "cli/bench/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/machine.h"
#include "cli/bench/agree.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

constexpr int kRubbish = 0xa5;
constexpr std::uint32_t kTag = 0;
/// Options of a call without a codec. The caller waits immediately, so that the call runs on its
/// thread.
const CallOptions kExact = {
    .timeout = {}, .caller_waits = true, .compression = Compression{Codec::none}};

}  // namespace

Memory::Memory(std::size_t bytes)
    : start_(static_cast<std::byte*>(std::aligned_alloc(
          page_bytes(),
          std::max(page_bytes(), (bytes + page_bytes() - 1) / page_bytes() * page_bytes())))),
      size_(bytes) {
  if (!start_)
    throw Error(fmt::format("no memory for a buffer of {} bytes; use smaller sizes", bytes));
}

void Memory::Free::operator()(std::byte* start) const { std::free(start); }

Trial::Trial(Group& group, Routine routine, const Shape& shape, const Options& options,
             bool in_place, bool rounded, const Memory& a, const Memory& b)
    : group_(group),
      routine_(routine),
      shape_(shape),
      dtype_(options.dtype),
      op_(options.op),
      root_(options.root),
      most_(rounded ? kMostRounded : kNoLimit) {
  place(a, b, in_place);
  call_ = make_call();
}

std::span<std::byte> Trial::part(std::span<std::byte> whole, int index) const {
  const std::size_t bytes = shape_.part * size_of(dtype_);
  return whole.subspan(static_cast<std::size_t>(index) * bytes, bytes);
}

void Trial::place(const Memory& a, const Memory& b, bool in_place) {
  const std::span<std::byte> one = a.bytes().first(shape_.bytes);
  const std::span<std::byte> two = b.bytes().first(shape_.bytes);
  const int rank = group_.rank();
  const bool is_root = rank == root_;
  switch (routine_) {
    case Routine::all_reduce:
    case Routine::all_to_all:
    case Routine::sendrecv:
      input_ = one;
      output_ = in_place ? one : two;
      break;
    case Routine::broadcast:
      input_ = is_root ? one : std::span<std::byte>();
      output_ = one;
      break;
    case Routine::reduce:
      input_ = one;
      if (is_root) output_ = in_place ? one : two;
      break;
    case Routine::all_gather:
      output_ = two;
      input_ = in_place ? part(two, rank) : part(one, 0);
      break;
    case Routine::gather:
      if (is_root) output_ = two;
      input_ = in_place && is_root ? part(two, rank) : part(one, 0);
      break;
    case Routine::reduce_scatter:
      input_ = one;
      output_ = in_place ? part(one, rank) : part(two, 0);
      break;
    case Routine::scatter:
      if (is_root) input_ = one;
      output_ = in_place && is_root ? part(one, rank) : part(two, 0);
      break;
    case Routine::barrier:
      break;
  }
}

ConstBuffer Trial::in() const { return {input_.data(), input_.size() / size_of(dtype_), dtype_}; }

Buffer Trial::out() const { return {output_.data(), output_.size() / size_of(dtype_), dtype_, {}}; }

void Trial::run_exact() const {
  if (routine_ == Routine::all_reduce) group_.all_reduce(in(), out(), op_, kExact).wait();
  if (routine_ == Routine::reduce_scatter) group_.reduce_scatter(in(), out(), op_, kExact).wait();
}

std::function<void()> Trial::make_call() const {
  Group& group = group_;
  const ConstBuffer in = this->in();
  const Buffer out = this->out();
  const ReduceOp op = op_;
  const int root = root_;
  switch (routine_) {
    case Routine::all_reduce:
      return [=, &group] { group.all_reduce(in, out, op, kBlocking).wait(); };
    case Routine::all_gather:
      return [=, &group] { group.all_gather(in, out, kBlocking).wait(); };
    case Routine::reduce_scatter:
      return [=, &group] { group.reduce_scatter(in, out, op, kBlocking).wait(); };
    case Routine::all_to_all:
      return [=, &group] { group.all_to_all(in, out, kBlocking).wait(); };
    case Routine::broadcast:
      return [=, &group] { group.broadcast(out, root, kBlocking).wait(); };
    case Routine::reduce:
      return [=, &group] { group.reduce(in, out, op, root, kBlocking).wait(); };
    case Routine::gather:
      return [=, &group] { group.gather(in, out, root, kBlocking).wait(); };
    case Routine::scatter:
      return [=, &group] { group.scatter(in, out, root, kBlocking).wait(); };
    case Routine::barrier:
      return [&group] { group.barrier(kBlocking).wait(); };
    case Routine::sendrecv:
      break;
  }
  const int ranks = group.size();
  const int next = (group.rank() + 1) % ranks;
  const int previous = (group.rank() + ranks - 1) % ranks;
  return [=, &group] {
    const Work sent = group.send(in, next, kTag, kBlocking);
    group.recv(out, previous, kTag, kBlocking).wait();
    sent.wait();
  };
}

void Trial::fill() const {
  if (!output_.empty()) std::memset(output_.data(), kRubbish, output_.size());
  if (input_.empty()) return;
  const int ranks = group_.size();
  const auto rank = static_cast<std::uint64_t>(group_.rank());
  if (info_of(routine_).reduces) {
    contribution(dtype_, op_.kind, group_.rank(), ranks, most_).fill(input_);
  } else if (routine_ == Routine::all_to_all || routine_ == Routine::scatter) {
    const std::uint64_t first =
        routine_ == Routine::scatter ? 0 : rank * static_cast<std::uint64_t>(ranks);
    for (int j = 0; j < ranks; ++j)
      message(dtype_, first + static_cast<std::uint64_t>(j)).fill(part(input_, j));
  } else {
    message(dtype_, rank).fill(input_);
  }
}

std::uint64_t Trial::wrong_parts(std::uint64_t first_source, std::uint64_t step) const {
  std::uint64_t wrong = 0;
  for (int j = 0; j < group_.size(); ++j) {
    const std::uint64_t source = first_source + static_cast<std::uint64_t>(j) * step;
    wrong += message(dtype_, source).count_wrong(part(output_, j));
  }
  return wrong;
}

double Trial::error() const {
  const std::size_t first = routine_ == Routine::reduce_scatter
                                ? static_cast<std::size_t>(group_.rank()) * shape_.part
                                : 0;
  return reduction(dtype_, op_.kind, group_.size(), most_).largest_error(dtype_, output_, first);
}

std::uint64_t Trial::wrong() const {
  if (output_.empty()) return 0;
  const int ranks = group_.size();
  const auto rank = static_cast<std::uint64_t>(group_.rank());
  switch (routine_) {
    case Routine::all_reduce:
    case Routine::reduce:
      return reduction(dtype_, op_.kind, ranks).count_wrong(output_);
    case Routine::reduce_scatter:
      return reduction(dtype_, op_.kind, ranks).count_wrong(output_, rank * shape_.part);
    case Routine::all_gather:
    case Routine::gather:
      return wrong_parts(0, 1);
    case Routine::all_to_all:
      return wrong_parts(rank, static_cast<std::uint64_t>(ranks));
    case Routine::scatter:
      return message(dtype_, rank).count_wrong(output_);
    case Routine::broadcast:
      return message(dtype_, static_cast<std::uint64_t>(root_)).count_wrong(output_);
    case Routine::sendrecv:
      return message(dtype_, (rank + static_cast<std::uint64_t>(ranks) - 1) %
                                 static_cast<std::uint64_t>(ranks))
          .count_wrong(output_);
    case Routine::barrier:
      return 0;
  }
  return 0;
}

}  // namespace mccl::cli::bench
