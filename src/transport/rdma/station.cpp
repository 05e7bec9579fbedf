#include "transport/rdma/station.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "transport/rdma/survey/advice.h"

namespace mccl::transport::rdma {
namespace {

/// Time after which a retired pair is destroyed even if its last messages are not sent.
constexpr std::chrono::seconds kPatience{2};
/// Maximum time for which the station's destructor waits for all departing pairs together. It is
/// long enough for two retransmissions of a queue pair (kTimeout in verbs/library.cpp).
constexpr std::chrono::milliseconds kLastPatience{1200};
/// Interval between polls of a device that cannot send notifications.
constexpr std::chrono::milliseconds kBlindNap{1};
/// Interval between polls of all pairs, in case their links are not in use and do not poll them.
constexpr std::chrono::milliseconds kPollAgain{50};
/// Maximum delay until a sleeping process checks the completion of its last sends.
constexpr std::chrono::milliseconds kAfterTheLast{20};

}  // namespace

Station::Station(const std::shared_ptr<Verbs>& verbs, const std::string& device, int port)
    : device_(VerbsDevice::open(verbs, device)), port_(device_->context().port(port)) {
  if (!port_.active) throw Error(port_down(device, port_));
  device_->use_port(port);
  try {
    channel_ = device_->context().make_channel();
  } catch (const VerbsError&) {
    channel_.reset();
  }
}

/// Waits up to kLastPatience until the last messages of retired pairs are sent, because the peers
/// may depend on these messages.
Station::~Station() {
  const Clock::time_point limit = Clock::now() + kLastPatience;
  for (sweep(Clock::now()); !departing_.empty() && Clock::now() < limit; sweep(Clock::now())) {
    std::this_thread::sleep_for(kBlindNap);
  }
}

PairAtStation Station::make_pair(Service service, const LinkOf& link) {
  if (device_->failed()) throw Error(device_->trouble());
  PairAtStation pair(
      new Pair(device_, channel_.get(), service, port_.number, fmt::format("rank {}", link.peer)),
      Leaving{this});
  pairs_.push_back({pair.get(), link});
  return pair;
}

void Leaving::operator()(Pair* pair) const {
  std::erase_if(station->pairs_, [pair](const auto& each) { return each.pair == pair; });
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
  const bool all = now >= next_poll_;
  if (all) next_poll_ = now + kPollAgain;
  for (const Place& each : pairs_) {
    if (all) each.pair->poll();
    each.pair->tend(now);
  }
  if (!departing_.empty()) sweep(now);
}

std::vector<std::pair<LinkOf, std::string>> Station::take_broken() {
  std::vector<std::pair<LinkOf, std::string>> broken;
  for (Place& each : pairs_) {
    if (each.pair->lost_data() && !std::exchange(each.reported, true))
      broken.emplace_back(each.link, each.pair->ended());
  }
  return broken;
}

Clock::time_point Station::next_look() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Place& each : pairs_) {
    next = std::min(next, each.pair->next_tending());
    if (each.pair->unsent() != 0 && each.pair->ended().empty())
      next = std::min(next, Clock::now() + kAfterTheLast);
  }
  const bool blind = !channel_ && armed_;
  if (blind || !departing_.empty()) next = std::min(next, Clock::now() + kBlindNap);
  return next;
}

bool Station::arm() {
  if (pairs_.empty()) return false;
  armed_ = true;
  if (channel_) {
    channel_->drain();
    for (const Place& each : pairs_) each.pair->notify();
  }
  return true;
}

/// Adds nothing for a failed device: its driver is not called any more, so its descriptors would
/// stay readable and end every sleep.
void Station::watch(std::vector<pollfd>& descriptors, bool always) const {
  if (device_->failed()) return;
  descriptors.push_back({device_->context().event_descriptor(), POLLIN, 0});
  if ((armed_ || always) && channel_) descriptors.push_back({channel_->descriptor(), POLLIN, 0});
}

void Station::abandon() noexcept {
  if (channel_) ::close(channel_->descriptor());
  device_->abandon();
}

}  // namespace mccl::transport::rdma
