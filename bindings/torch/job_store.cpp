#include "job_store.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend.h"
#include "base/clock.h"
#include "base/environment.h"
#include "mccl/error.h"
#include "process.h"
#include "python/shared_metrics.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "work.h"

namespace mccl_torch {
namespace {

constexpr const char* kPrefix = "torch/";
constexpr std::chrono::milliseconds kNow{1};

/// Counter of the default groups that the rank has made with torch through this store.
std::string key_of(int rank) { return "torch rank " + std::to_string(rank); }

/// Stores that this process serves as rank 0, by Placement::root. If that is empty, the launcher
/// provides rank 0's address only once, and other ranks keep their stores as well. Kept until
/// close_job_stores(), because a rank that makes its next default group early could connect to a
/// store that rank 0 is about to close.
struct KeptStores {
  std::mutex mutex;  ///< Guards `stores`.
  std::map<std::string, std::shared_ptr<mccl::Store>> stores;
  const pid_t process = ::getpid();
};

/// A forked child gets an empty object, and does not destroy the stores of its parent.
KeptStores& kept() {
  static auto* instance = new KeptStores;
  if (instance->process != ::getpid()) instance = new KeptStores;
  return *instance;
}

/// Joins the job, through the kept store if there is one. Stores reached along cables are not
/// kept, because they end with their connections.
mccl::rendezvous::Joined join(const mccl::Placement& place, const mccl::Config& config,
                              const std::shared_ptr<mccl::Metrics>& metrics) {
  KeptStores& known = kept();
  const bool keeps = place.rank == 0 || place.root.empty();
  if (keeps) {
    const std::lock_guard lock(known.mutex);
    if (const auto found = known.stores.find(place.root); found != known.stores.end())
      return {.store = found->second, .wiring = {}};
  }
  mccl::rendezvous::Joined joined = mccl::rendezvous::join(place, config, metrics);
  const std::lock_guard lock(known.mutex);
  if (keeps && !joined.wiring) known.stores[place.root] = joined.store;
  return joined;
}

/// Converts the engine's errors to DistStoreError, because torch catches only its own errors.
template <typename Action>
auto as_torch_does(const std::string& what, Action&& action) {
  try {
    return action();
  } catch (const mccl::TimeoutError&) {
    TORCH_CHECK_WITH(
        DistStoreError, false, what,
        " was not set in the job's store in time; check that the rank that sets it runs");
  } catch (const mccl::Error& error) {
    TORCH_CHECK_WITH(DistStoreError, false, error.what());
  }
}

}  // namespace

JobStore::JobStore(mccl::rendezvous::Joined joined, int rank, int size)
    : joined_(new mccl::rendezvous::Joined(std::move(joined))), size_(size), process_(::getpid()) {
  joined_->store->add(key_of(rank), 1);
}

JobStore::~JobStore() {
  if (::getpid() == process_) delete joined_;
}

std::int64_t JobStore::torch_ranks() {
  std::int64_t ranks = 0;
  for (int rank = 0; rank < size_; ++rank)
    ranks += joined_->store->add(key_of(rank), 0) > 0 ? 1 : 0;
  return ranks;
}

c10::intrusive_ptr<c10d::Store> JobStore::clone() {
  return c10::intrusive_ptr<JobStore>::unsafe_reclaim_from_nonowning(this);
}

void JobStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  as_torch_does(key, [&] {
    joined_->store->set(kPrefix + key, {reinterpret_cast<const char*>(value.data()), value.size()});
  });
}

std::string JobStore::find(const std::string& key, std::chrono::milliseconds timeout) {
  return as_torch_does(key, [&] { return joined_->store->get(kPrefix + key, timeout); });
}

std::vector<std::uint8_t> JobStore::get(const std::string& key) {
  const std::string found = find(key, timeout_);
  return {found.begin(), found.end()};
}

std::int64_t JobStore::add(const std::string& key, std::int64_t value) {
  return as_torch_does(key, [&] { return joined_->store->add(kPrefix + key, value); });
}

bool JobStore::deleteKey(const std::string&) { return false; }

bool JobStore::check(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    try {
      joined_->store->get(kPrefix + key, kNow);
    } catch (const mccl::TimeoutError&) {
      return false;
    } catch (const mccl::Error& error) {
      TORCH_CHECK_WITH(DistStoreError, false, error.what());
    }
  }
  return true;
}

std::int64_t JobStore::getNumKeys() {
  TORCH_CHECK_WITH(NotImplementedError, false, "the job's store cannot count its keys");
}

void JobStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void JobStore::wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) {
  const auto deadline = mccl::Clock::now() + timeout;
  for (const std::string& key : keys) find(key, mccl::left_until(deadline));
}

c10::intrusive_ptr<c10d::Store> open_job_store(const std::map<std::string, std::string>& settings) {
  int rank = -1;
  try {
    mccl::Config config = mccl::Config::from_environment();
    for (const auto& [name, value] : settings) config.set(name, value);
    const auto place = mccl::find_placement(config, mccl::process_environment());
    TORCH_CHECK(place && place->size > 1,
                "mccl:// needs a job of several ranks; start them with mccl launch, torchrun, "
                "mpirun or srun");
    rank = place->rank;
    const auto metrics = mccl::python::shared_metrics(rank);
    const WithoutGil without_gil;
    return c10::make_intrusive<JobStore>(join(*place, config, metrics), rank, place->size);
  } catch (const mccl::Error&) {
    throw_torch_error(std::current_exception(), rank, "mccl:init");
  }
}

void close_job_stores() {
  KeptStores& known = kept();
  std::map<std::string, std::shared_ptr<mccl::Store>> closed;
  const std::lock_guard lock(known.mutex);
  closed.swap(known.stores);
}

JobStore* job_store_in(const c10::intrusive_ptr<c10d::Store>& store) {
  c10::intrusive_ptr<c10d::Store> inner = store;
  while (const auto* prefix = dynamic_cast<c10d::PrefixStore*>(inner.get()))
    inner = const_cast<c10d::PrefixStore*>(prefix)->getUnderlyingStore();
  return dynamic_cast<JobStore*>(inner.get());
}

}  // namespace mccl_torch
