#include "cli/bench/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/machine.h"
#include "cli/bench/timing.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

constexpr int kRubbish = 0xa5;
constexpr std::uint32_t kTag = 0;

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
  in_ = {input_.data(), input_.size() / size_of(dtype_), dtype_};
  out_ = {output_.data(), output_.size() / size_of(dtype_), dtype_, {}};
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

void Trial::run(const CallOptions& options) const {
  switch (routine_) {
    case Routine::all_reduce:
      return group_.all_reduce(in_, out_, op_, options).wait();
    case Routine::all_gather:
      return group_.all_gather(in_, out_, options).wait();
    case Routine::reduce_scatter:
      return group_.reduce_scatter(in_, out_, op_, options).wait();
    case Routine::all_to_all:
      return group_.all_to_all(in_, out_, options).wait();
    case Routine::broadcast:
      return group_.broadcast(out_, root_, options).wait();
    case Routine::reduce:
      return group_.reduce(in_, out_, op_, root_, options).wait();
    case Routine::gather:
      return group_.gather(in_, out_, root_, options).wait();
    case Routine::scatter:
      return group_.scatter(in_, out_, root_, options).wait();
    case Routine::barrier:
      return group_.barrier(options).wait();
    case Routine::sendrecv: {
      const int ranks = group_.size();
      const Work sent = group_.send(in_, (group_.rank() + 1) % ranks, kTag, options);
      group_.recv(out_, (group_.rank() + ranks - 1) % ranks, kTag, options).wait();
      sent.wait();
    }
  }
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

std::size_t Trial::first_of_output() const {
  const bool scatters = routine_ == Routine::reduce_scatter;
  return scatters ? static_cast<std::size_t>(group_.rank()) * shape_.part : 0;
}

double Trial::error() const {
  return reduction(dtype_, op_.kind, group_.size(), most_)
      .largest_error(dtype_, output_, first_of_output());
}

std::uint64_t Trial::source_of(int part) const {
  const int ranks = group_.size();
  const int rank = group_.rank();
  switch (routine_) {
    case Routine::all_to_all:
      return static_cast<std::uint64_t>(part) * static_cast<std::uint64_t>(ranks) +
             static_cast<std::uint64_t>(rank);
    case Routine::scatter:
      return static_cast<std::uint64_t>(rank);
    case Routine::broadcast:
      return static_cast<std::uint64_t>(root_);
    case Routine::sendrecv:
      return static_cast<std::uint64_t>((rank + ranks - 1) % ranks);
    default:
      return static_cast<std::uint64_t>(part);
  }
}

std::uint64_t Trial::wrong() const {
  if (output_.empty()) return 0;
  if (info_of(routine_).reduces)
    return reduction(dtype_, op_.kind, group_.size()).count_wrong(output_, first_of_output());
  const std::size_t bytes = shape_.part * size_of(dtype_);
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < output_.size(); at += bytes) {
    const int part = static_cast<int>(at / bytes);
    wrong += message(dtype_, source_of(part)).count_wrong(output_.subspan(at, bytes));
  }
  return wrong;
}

}  // namespace mccl::cli::bench
