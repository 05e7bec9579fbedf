#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <array>
#include <memory>

#include "backend.h"
#include "base/clock.h"
#include "process.h"

namespace mccl_torch {
namespace {

using mccl::CallOptions;
using mccl::Group;
using std::chrono::milliseconds;

// Tags of this barrier's messages. Both are above the maximum that torch can use.
constexpr std::uint32_t kArrivedTag = 0xFFFF0000U;
constexpr std::uint32_t kReleasedTag = 0xFFFF0001U;

/// A message of one byte. The byte is kept alive until the message completes, even if the wait for
/// the message was abandoned.
struct Token {
  std::shared_ptr<std::uint8_t> byte = std::make_shared<std::uint8_t>(1);
  mccl::Work work;

  mccl::Buffer buffer() const { return {byte.get(), 1, mccl::DType::u8}; }
  void track(mccl::Work started) {
    work = std::move(started);
    work.on_done([byte = byte](const std::exception_ptr&) {});
  }
  /// True if the message arrived before the deadline. Throws only an exception of a signal handler.
  bool arrived_before(mccl::Clock::time_point deadline) const {
    try {
      wait_with_signals(work, mccl::left_until(deadline));
    } catch (const pybind11::error_already_set&) {
      throw;
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }
};

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

void ProcessGroupMCCL::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto group = group_for("monitoredBarrier");
  const milliseconds timeout = opts.timeout == c10d::kUnsetTimeout ? timeout_.load() : opts.timeout;
  if (rank_ == 0) {
    monitor_members(*group, timeout, wait_all_ranks);
  } else {
    report_to_root(*group, timeout);
  }
}

/// Called on rank 0 only. Waits for a message from every other rank, and then sends each of them a
/// message that releases it. If a rank is missing, fails the group, so that the calls of the ranks
/// that have arrived fail immediately.
void ProcessGroupMCCL::monitor_members(Group& group, milliseconds timeout, bool wait_all_ranks) {
  const auto deadline = mccl::Clock::now() + timeout;
  if (timeout.count() <= 0) {
    C10_THROW_ERROR(DistBackendError, c10::str("Rank 0 timed out in monitoredBarrier after ",
                                               timeout.count(), " ms: pass a timeout above zero"));
  }
  CallOptions unlimited;
  unlimited.timeout = milliseconds(0);
  std::vector<Token> arrivals(ranks());
  for (int peer = 1; peer < size_; ++peer) {
    Token& token = arrivals[static_cast<std::size_t>(peer)];
    token.track(group.recv(token.buffer(), peer, kArrivedTag, unlimited));
  }
  std::vector<int> missing;
  for (int peer = 1; peer < size_ && (missing.empty() || wait_all_ranks); ++peer) {
    if (!arrivals[static_cast<std::size_t>(peer)].arrived_before(deadline)) missing.push_back(peer);
  }
  if (!missing.empty()) {
    const std::string text =
        c10::str(wait_all_ranks ? "Ranks " : "Rank ", ranks_text(missing),
                 " failed to pass monitoredBarrier in ", timeout.count(), " ms");
    const std::string cause = group.failure();
    group.abort(text);
    C10_THROW_ERROR(DistBackendError,
                    c10::str("[rank 0] ", text, cause.empty() ? "" : " (" + cause + ")",
                             ": check what those ranks do instead"));
  }
  CallOptions release;
  release.timeout = timeout;
  std::vector<Token> releases(ranks());
  for (int peer = 1; peer < size_; ++peer) {
    Token& token = releases[static_cast<std::size_t>(peer)];
    token.track(group.send(token.buffer(), peer, kReleasedTag, release));
  }
  for (int peer = 1; peer < size_; ++peer) {
    try {
      wait_with_signals(releases[static_cast<std::size_t>(peer)].work);
    } catch (const std::exception&) {
      throw_torch_error(std::current_exception(), rank_, "mccl:monitoredBarrier");
    }
  }
}

void ProcessGroupMCCL::report_to_root(Group& group, milliseconds timeout) {
  CallOptions options;
  options.timeout = timeout;
  Token arrival;
  Token release;
  try {
    arrival.track(group.send(arrival.buffer(), 0, kArrivedTag, options));
    release.track(group.recv(release.buffer(), 0, kReleasedTag, options));
    wait_with_signals(arrival.work);
    wait_with_signals(release.work);
  } catch (const pybind11::error_already_set&) {
    throw;
  } catch (const std::exception& error) {
    C10_THROW_ERROR(DistBackendError,
                    c10::str("Rank ", rank_,
                             " successfully reached monitoredBarrier, but received "
                             "errors while waiting for send/recv from rank 0. Please check rank 0 "
                             "logs for faulty rank.\nOriginal exception:\n",
                             error.what()));
  }
}

}  // namespace mccl_torch
