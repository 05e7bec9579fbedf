#include "transport/rdma/station.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "transport/rdma/advice.h"

namespace mccl::transport::rdma {
namespace {

/// What a peer has not taken by then it is not going to.
constexpr std::chrono::seconds kPatience{2};
/// The same when everything ends: a queue pair may send what was lost twice more (kTimeout).
constexpr std::chrono::milliseconds kLastPatience{1200};
/// Where no notice comes.
constexpr std::chrono::milliseconds kBlindNap{1};

}  // namespace

Station::Station(const std::shared_ptr<Verbs>& verbs, const std::string& device, int port)
    : device_(Device::open(verbs, device)), port_(device_->context().port(port)) {
  if (!port_.active) throw Error(port_down(device, port_));
  device_->use_port(port);
  try {
    channel_ = device_->context().make_channel();
  } catch (const VerbsError&) {
    channel_.reset();
  }
}

/// What was sent last may decide whether the others end well.
Station::~Station() {
  const Clock::time_point limit = Clock::now() + kLastPatience;
  for (sweep(Clock::now()); !departing_.empty() && Clock::now() < limit; sweep(Clock::now())) {
    std::this_thread::sleep_for(kBlindNap);
  }
}

PairAtStation Station::make_pair(Service service, std::string peer) {
  if (device_->failed()) throw Error(device_->trouble());
  PairAtStation pair(new Pair(device_, channel_.get(), service, port_.number, std::move(peer)),
                     Leaving{this});
  pairs_.push_back(pair.get());
  return pair;
}

void Leaving::operator()(Pair* pair) const {
  std::erase(station->pairs_, pair);
  delete pair;
}

void Station::retire(PairAtStation pair) {
  pair->close();
  if (!pair->departed()) departing_.push_back({std::move(pair), Clock::now() + kPatience});
}

void Station::sweep(Clock::time_point now) {
  std::erase_if(departing_, [now](const Departing& each) {
    each.pair->poll();
    return now >= each.until || each.pair->departed();
  });
}

void Station::look(Clock::time_point now) {
  device_->look();
  for (Pair* pair : pairs_) pair->tend(now);
  if (!departing_.empty()) sweep(now);
}

Clock::time_point Station::next_look() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Pair* pair : pairs_) next = std::min(next, pair->next_tending());
  const bool blind = !channel_ && armed_;
  if (blind || !departing_.empty()) next = std::min(next, Clock::now() + kBlindNap);
  return next;
}

bool Station::arm() {
  if (pairs_.empty()) return false;
  armed_ = true;
  if (channel_) {
    channel_->drain();
    for (Pair* pair : pairs_) pair->notify();
  }
  return true;
}

void Station::watch(std::vector<pollfd>& descriptors, bool always) const {
  descriptors.push_back({device_->context().event_descriptor(), POLLIN, 0});
  if ((armed_ || always) && channel_) descriptors.push_back({channel_->descriptor(), POLLIN, 0});
}

void Station::abandon() noexcept {
  if (channel_) ::close(channel_->descriptor());
  device_->abandon();
}

}  // namespace mccl::transport::rdma
