// Tests connections between hosts: whether they can be opened, which packets pass, and their speed.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/hosts/inquiry.h"

namespace mccl::cli::hosts {

/// A connection to test, from one host to an address of another host.
struct LinkTest {
  int from = 0;
  int to = 0;
  std::string source;  ///< An address of `from`. Empty: any address.
  std::string target;
  std::size_t port = 0;  ///< Index into Asked::ports of `to`.
  int bytes = 0;         ///< Size of the packet that send_packets() sends.
};

/// The result of a test by dial() or time_links().
struct LinkResult {
  bool tried = false;  ///< True if both hosts have a probe, so that the test was begun.
  bool good = false;
  std::string why;       ///< The reason why the connection failed. Set only by dial().
  double latency_s = 0;  ///< Set only by time_links(), like bytes_per_s.
  double bytes_per_s = 0;
};

/// Passes each answer named `kind` to `then`, with its test, the answer's id. Ignores malformed
/// answers.
void for_each_answer(std::span<const nlohmann::json> answers, const char* kind, std::size_t tests,
                     const std::function<void(std::size_t test, const nlohmann::json&)>& then);
/// Stores an answer, of which any part may be missing or invalid.
void take_dialled(LinkResult& result, const nlohmann::json& answer);
void take_timed(LinkResult& result, const nlohmann::json& answer);

/// Results are in the order of the tests.
std::vector<LinkResult> dial(Inquiry& inquiry, std::span<const LinkTest> tests);
/// Sends one UDP packet per test. Returns whether each arrived.
std::vector<bool> send_packets(Inquiry& inquiry, std::span<const LinkTest> tests);
/// No host takes part in two measurements at a time. Starts no measurement after `limit` and, if it
/// `spares_jobs`, none from or to a host on which ranks run.
std::vector<LinkResult> time_links(Inquiry& inquiry, std::span<const LinkTest> tests,
                                   Clock::time_point limit, bool spares_jobs = false);

/// Divides measurements between pairs of hosts into rounds, because measurements that share a host
/// would disturb each other. Returns indices into `pairs`, grouped by round. All pairs of n hosts,
/// in both directions, take 2(n - 1) rounds, or 2n if n is odd. Any other set takes at most twice
/// as many rounds as the busiest host has pairs.
std::vector<std::vector<std::size_t>> rounds_of(std::span<const std::pair<int, int>> pairs);

}  // namespace mccl::cli::hosts
