#include "rendezvous/meeting/second_process.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"
#include "rendezvous/connections/candidates.h"
#include "rendezvous/connections/dialing.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/key_agreement.h"
#include "transport/tcp/encryption.h"

namespace mccl::rendezvous {
namespace {

constexpr std::chrono::seconds kLimit{2};

/// The entries of an earlier run of the job.
class EntriesOfRun final : public Store {
 public:
  EntriesOfRun(Store& store, std::string name) : store_(store), name_(std::move(name)) {}
  void set(const std::string& key, std::string_view value) override {
    store_.set(key_of_run(name_, key), value);
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    return store_.get(key_of_run(name_, key), timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_.add(key_of_run(name_, key), amount);
  }

 private:
  Store& store_;
  const std::string name_;
};

/// Makes the process that has this rank log a warning, by a handshake in which this process claims
/// the same rank. Returns the description of that process; empty if it cannot be reached, or if
/// this process does not have the job's key.
std::string connect_to_first(const MeetingOptions& options, const std::string& run) {
  const Clock::time_point deadline = Clock::now() + kLimit;
  EntriesOfRun store(*options.store, run);
  const std::string first = store.get(who_key(options.rank), kLimit);
  for (int rank = 0; rank < options.size; ++rank) {
    // This process was part of that run, perhaps as another rank.
    if (find_now(store, who_key(rank)) == this_process()) return {};
  }
  const std::optional<SecretBytes> key = agreed_key(options.config, store);
  if (!key) return {};
  const SecretBytes of_run = secret_of_run(*key, run);
  const Exchange exchange(store, of_run, options.rank, options.size, deadline, {});
  const auto cards = exchange.published("endpoints");
  const std::string& card = cards[static_cast<std::size_t>(options.rank)];
  const Endpoint there = parse_endpoint(card.substr(card.rfind('\n') + 1));
  Endpoint here;
  here.host = transport::tcp::host_identity();
  Dial dial({.self = {.rank = options.rank,
                      .size = options.size,
                      .job_key = of_run,
                      .agreement = agreement_of(options.config),
                      .encryption = transport::tcp::Encryption::of(options.config)},
             .peer = options.rank,
             .key = {},
             .deadline = deadline,
             .candidates = candidates_for(there, here, {}, list_interfaces())});
  const bool has_reached_it = dial.run() || dial.was_refused();
  return has_reached_it ? first : "";
}

}  // namespace

std::function<void(const std::string& process)> warning_of_second(Log log, int rank) {
  return [log = std::move(log), rank](const std::string& process) {
    log.warn(
        "{} also claimed to be rank {} and ended with an error: give every process its own rank "
        "(MCCL_RANK), and end any process left from an earlier run",
        printable(process), rank);
  };
}

void report_to_first_process(const MeetingOptions& options) {
  std::string first;
  try {
    if (const auto run = find_run_that_met(*options.store); run)
      first = connect_to_first(options, run->name);
  } catch (const Error&) {
    return;  // The store has no valid entries of that run.
  }
  if (first.empty()) return;
  throw InvalidArgument(fmt::format(
      "rank {} exists already: it is {}, and this is {}, which came after all ranks had "
      "connected; give every process its own rank (MCCL_RANK), and end any process left "
      "from an earlier run",
      options.rank, printable(first), this_process()));
}

}  // namespace mccl::rendezvous
