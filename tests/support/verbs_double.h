// Simulates RDMA devices in one process: a message of one queue pair arrives at the other queue
// pair as soon as it is posted. A test decides the fate of each message, which calls are refused,
// and what a device reports. Open objects are counted, so that a test finds leaks.
//
// Thread-safe, because the ranks of a test may have their own threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/wake_pipe.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::testing {

namespace rdma = transport::rdma;

/// Status of a request that was dropped because its queue pair had failed.
inline constexpr int kFlushed = 5;

/// The fate of a message.
struct Fate {
  enum class Kind {
    arrives,
    lost,            ///< On uc, completes as sent. On rc, fails as if the peer did not answer.
    sender_fails,    ///< Completes with `status`, which ends the sender's queue pair.
    receiver_fails,  ///< Fails the receive with `status`, which ends the receiver's queue pair.
    forgotten,       ///< Never completes at either end.
    held,            ///< Held until release().
    twice,           ///< Delivered twice, as by a device that retransmits in error.
  } kind = Kind::arrives;
  int status = 0;
};

class VerbsDouble;
class DoubleQueuePair;

/// State that all devices of a double share, and that tests inspect.
struct Fabric {
  struct Message {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::vector<std::byte> bytes;
  };
  /// Called for every message. Returns the fate of the message, and may change the message.
  using Judge = std::function<Fate(Message&)>;
  /// Called with a name such as "ibv_reg_mr" before each call that makes something. Returns 0, or
  /// the errno with which the call is refused.
  using Gate = std::function<int(const std::string& call)>;

  std::recursive_mutex mutex;
  Judge judge;
  Gate gate;
  std::function<void(const std::string& call)>
      on_close;  ///< Called with the name of the call that had made the object.
  std::map<std::uint32_t, DoubleQueuePair*> pairs;
  std::uint32_t next_number = 17;
  std::uint32_t next_key = 1;
  /// Registered memory by key.
  std::map<std::uint32_t, std::span<const std::byte>> regions;
  std::size_t strayed = 0;  ///< Messages read from memory that is not registered.
  std::map<std::string, std::deque<rdma::DeviceEvent>> events;
  std::vector<std::function<void()>> held;

  /// Number of open objects, by the call that made them.
  std::map<std::string, int> open;
  std::size_t most_regions = 0;
  std::size_t starved = 0;      ///< Messages that found no posted receive.
  std::size_t overflowed = 0;   ///< Completions that found their queue full.
  std::size_t after_death = 0;  ///< Calls to a device after it reported that it is gone.
  std::map<std::string, bool> dead;

  void refuse_if_told(const std::string& call, const std::string& device) {
    const std::lock_guard lock(mutex);
    const int error = gate ? gate(call) : 0;
    if (error != 0) throw rdma::VerbsError(call, device, error);
    if (++open[call]; call == "ibv_reg_mr")
      most_regions = std::max<std::size_t>(most_regions, static_cast<std::size_t>(open[call]));
  }
  /// True if the piece lies in registered memory. A device checks this when it reads the piece.
  bool covers(const rdma::Piece& piece) const {
    const auto found = regions.find(piece.key);
    if (found == regions.end()) return false;
    const std::span<const std::byte> memory = found->second;
    return piece.data >= memory.data() && piece.data + piece.bytes <= memory.data() + memory.size();
  }
  void closed(const std::string& call) {
    const std::lock_guard lock(mutex);
    --open[call];
    if (on_close) on_close(call);
  }
  bool all_closed() {
    const std::lock_guard lock(mutex);
    return std::all_of(open.begin(), open.end(),
                       [](const auto& entry) { return entry.second == 0; });
  }
  /// Delivers all held messages.
  void release() {
    const std::lock_guard lock(mutex);
    for (auto& deliver : std::exchange(held, {})) deliver();
  }
  void report(const std::string& device, rdma::DeviceEvent event) {
    const std::lock_guard lock(mutex);
    if (event.kind == rdma::DeviceEvent::Kind::device_gone) dead[device] = true;
    events[device].push_back(std::move(event));
  }
  void note_call(const std::string& device) {
    if (dead[device]) ++after_death;
  }
};

class DoubleChannel final : public rdma::CompletionChannel {
 public:
  explicit DoubleChannel(std::shared_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {}
  ~DoubleChannel() override { fabric_->closed("ibv_create_comp_channel"); }
  int descriptor() const override { return pipe_.descriptor(); }
  void drain() override { pipe_.drain(); }
  void ring() { pipe_.wake(); }

 private:
  const std::shared_ptr<Fabric> fabric_;
  WakePipe pipe_;
};

/// The completion queue of a queue pair.
class DoubleQueue {
 public:
  DoubleQueue(std::shared_ptr<Fabric> fabric, std::string device, std::size_t entries,
              DoubleChannel* channel)
      : fabric_(std::move(fabric)),
        device_(std::move(device)),
        entries_(entries),
        channel_(channel) {}
  ~DoubleQueue() { fabric_->closed("ibv_create_cq"); }

  int poll(std::span<rdma::Completion> into) {
    const std::lock_guard lock(fabric_->mutex);
    fabric_->note_call(device_);
    if (poll_error != 0) return -poll_error;
    const std::size_t n = std::min(into.size(), completions_.size());
    std::copy_n(completions_.begin(), n, into.begin());
    completions_.erase(completions_.begin(), completions_.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<int>(n);
  }
  int notify() {
    const std::lock_guard lock(fabric_->mutex);
    fabric_->note_call(device_);
    told_ = false;
    return 0;
  }
  void push(const rdma::Completion& completion) {
    if (completions_.size() >= entries_) ++fabric_->overflowed;
    completions_.push_back(completion);
    if (!std::exchange(told_, true) && channel_) channel_->ring();
  }

  int poll_error = 0;

 private:
  const std::shared_ptr<Fabric> fabric_;
  const std::string device_;
  const std::size_t entries_;
  DoubleChannel* const channel_;
  std::deque<rdma::Completion> completions_;
  bool told_ = true;
};

class DoubleQueuePair final : public rdma::QueuePair {
 public:
  DoubleQueuePair(std::shared_ptr<Fabric> fabric, std::string device,
                  const rdma::QueuePairOptions& options, std::unique_ptr<DoubleQueue> queue)
      : fabric_(std::move(fabric)),
        device_(std::move(device)),
        options_(options),
        queue_(std::move(queue)) {
    const std::lock_guard lock(fabric_->mutex);
    number_ = fabric_->next_number++;
    fabric_->pairs[number_] = this;
  }
  ~DoubleQueuePair() override {
    {
      const std::lock_guard lock(fabric_->mutex);
      fabric_->pairs.erase(number_);
    }
    fabric_->closed("ibv_create_qp");
  }

  std::uint32_t number() const override { return number_; }
  std::uint32_t inline_bytes() const override { return options_.inline_bytes; }

  void connect(const rdma::PairRoute& route) override {
    const std::lock_guard lock(fabric_->mutex);
    const int error = fabric_->gate ? fabric_->gate("ibv_modify_qp") : 0;
    if (error != 0) throw rdma::VerbsError("ibv_modify_qp", device_, error);
    route_ = route;
    connected_ = true;
  }

  int post_receive(std::uint64_t id, const rdma::Piece& into) override {
    const std::lock_guard lock(fabric_->mutex);
    fabric_->note_call(device_);
    if (const int error = refused("ibv_post_recv")) return error;
    if (receives_.size() >= options_.receives) return ENOMEM;
    receives_.push_back({id, into});
    if (failed_) fail(kFlushed);
    if (!failed_ && !not_ready_.empty()) {
      const std::vector<std::byte> bytes = std::move(not_ready_.front());
      not_ready_.pop_front();
      receive(bytes);
    }
    return 0;
  }

  int post_send(std::uint64_t id, std::span<const rdma::Piece> pieces, bool is_inline) override {
    const std::lock_guard lock(fabric_->mutex);
    fabric_->note_call(device_);
    if (const int error = refused("ibv_post_send")) return error;
    if (!connected_ || pieces.size() > options_.pieces) return EINVAL;
    if (failed_) {
      queue_->push({id, kFlushed, 0});
      return 0;
    }
    Fabric::Message message{number_, route_.queue_pair, {}};
    if (!gather(pieces, is_inline, message.bytes)) {
      queue_->push({id, kUnregistered, 0});
      fail(kFlushed);
      return 0;
    }
    const Fate fate = fabric_->judge ? fabric_->judge(message) : Fate();
    if (fate.kind == Fate::Kind::held) {
      hold(id, {pieces.begin(), pieces.end()}, is_inline, std::move(message.bytes));
    } else {
      apply(fate, id, message.bytes);
    }
    return 0;
  }

  int poll(std::span<rdma::Completion> into) override { return queue_->poll(into); }
  int notify() override { return queue_->notify(); }

  /// Delivers `bytes` as a message from the peer. Tests also call this to send what no peer would.
  /// On rc, a message that finds no receive is retried until a receive is posted.
  void take(const std::vector<std::byte>& bytes) {
    const std::lock_guard lock(fabric_->mutex);
    if (failed_) return;
    if (!receives_.empty() && not_ready_.empty()) return receive(bytes);
    ++fabric_->starved;
    if (options_.service == rdma::Service::rc) not_ready_.push_back(bytes);
  }

  /// Fails the queue pair as a device does: the first receive completes with `status`, the others
  /// are flushed.
  void fail(int status) {
    const std::lock_guard lock(fabric_->mutex);
    failed_ = true;
    for (const auto& [id, into] : std::exchange(receives_, {}))
      queue_->push({id, std::exchange(status, kFlushed), 0});
  }
  std::size_t posted() const { return receives_.size(); }
  DoubleQueue& queue() { return *queue_; }

 private:
  static constexpr int kUnregistered = 4;

  void receive(const std::vector<std::byte>& bytes) {
    const auto [id, into] = receives_.front();
    receives_.pop_front();
    if (bytes.size() > into.bytes) return fail(1);
    std::memcpy(const_cast<std::byte*>(into.data), bytes.data(), bytes.size());
    queue_->push({id, 0, static_cast<std::uint32_t>(bytes.size())});
  }

  int refused(const char* call) { return fabric_->gate ? fabric_->gate(call) : 0; }

  /// Returns the pair at the other end, or null if it does not exist or is not connected to this
  /// one.
  DoubleQueuePair* far() {
    const auto found = fabric_->pairs.find(route_.queue_pair);
    const bool knows = found != fabric_->pairs.end() && found->second->connected_ &&
                       found->second->route_.queue_pair == number_;
    return knows ? found->second : nullptr;
  }

  /// Reads the pieces of a request. Returns false if a piece is neither inline nor registered.
  bool gather(std::span<const rdma::Piece> pieces, bool is_inline, std::vector<std::byte>& bytes) {
    bytes.clear();
    for (const rdma::Piece& piece : pieces) {
      if (!is_inline && !fabric_->covers(piece)) {
        ++fabric_->strayed;
        return false;
      }
      bytes.insert(bytes.end(), piece.data, piece.data + piece.bytes);
    }
    return true;
  }

  /// Holds a message until release(). Reads the memory of the message only then, as a slow device
  /// may.
  void hold(std::uint64_t id, std::vector<rdma::Piece> pieces, bool is_inline,
            std::vector<std::byte> bytes) {
    fabric_->held.push_back(
        [fabric = fabric_.get(), number = number_, id, pieces, is_inline, bytes]() mutable {
          const auto here = fabric->pairs.find(number);
          if (here == fabric->pairs.end()) return;
          if (is_inline || here->second->gather(pieces, false, bytes))
            here->second->deliver(id, bytes);
        });
  }

  void apply(const Fate& fate, std::uint64_t id, const std::vector<std::byte>& bytes) {
    switch (fate.kind) {
      case Fate::Kind::held:
      case Fate::Kind::arrives:
        return deliver(id, bytes);
      case Fate::Kind::twice:
        if (DoubleQueuePair* other = far()) other->take(bytes);
        return deliver(id, bytes);
      case Fate::Kind::lost:
        if (options_.service == rdma::Service::uc) return queue_->push({id, 0, 0});
        [[fallthrough]];
      case Fate::Kind::sender_fails:
        failed_ = true;
        queue_->push({id, fate.status != 0 ? fate.status : 12, 0});
        return fail(kFlushed);
      case Fate::Kind::receiver_fails:
        queue_->push({id, 0, 0});
        if (DoubleQueuePair* other = far()) other->fail(fate.status);
        return;
      case Fate::Kind::forgotten:
        return;
    }
  }

  void deliver(std::uint64_t id, const std::vector<std::byte>& bytes) {
    if (DoubleQueuePair* other = far()) {
      other->take(bytes);
    } else if (options_.service == rdma::Service::rc) {
      queue_->push({id, 12, 0});
      return fail(kFlushed);
    }
    queue_->push({id, 0, 0});
  }

  const std::shared_ptr<Fabric> fabric_;
  const std::string device_;
  const rdma::QueuePairOptions options_;
  const std::unique_ptr<DoubleQueue> queue_;
  std::uint32_t number_ = 0;
  rdma::PairRoute route_;
  bool connected_ = false;
  bool failed_ = false;
  std::deque<std::pair<std::uint64_t, rdma::Piece>> receives_;
  std::deque<std::vector<std::byte>> not_ready_;  ///< Messages that wait for a receive.
};

class DoubleRegion final : public rdma::MemoryRegion {
 public:
  DoubleRegion(std::shared_ptr<Fabric> fabric, std::span<const std::byte> memory)
      : fabric_(std::move(fabric)), key_(register_it(*fabric_, memory)) {}
  ~DoubleRegion() override {
    {
      const std::lock_guard lock(fabric_->mutex);
      fabric_->regions.erase(key_);
    }
    fabric_->closed("ibv_reg_mr");
  }
  std::uint32_t key() const override { return key_; }

 private:
  static std::uint32_t register_it(Fabric& fabric, std::span<const std::byte> memory) {
    const std::lock_guard lock(fabric.mutex);
    fabric.regions[fabric.next_key] = memory;
    return fabric.next_key++;
  }

  const std::shared_ptr<Fabric> fabric_;
  const std::uint32_t key_;
};

/// Properties of a simulated device, which may be changed while the device is not in use.
struct DoubleDevice {
  rdma::Port port{.number = 1,
                  .active = true,
                  .state = "PORT_ACTIVE",
                  .layer = rdma::LinkLayer::ethernet,
                  .mtu_bytes = 1024,
                  .lid = 0};
  std::vector<rdma::Gid> gids;
  rdma::RegionLimits limits{.regions = 100, .lends = true};
};

class DoubleContext final : public rdma::VerbsContext {
 public:
  DoubleContext(std::shared_ptr<Fabric> fabric, std::string name, DoubleDevice device)
      : fabric_(std::move(fabric)), name_(std::move(name)), device_(std::move(device)) {}
  ~DoubleContext() override {
    fabric_->closed("ibv_alloc_pd");
    fabric_->closed("ibv_open_device");
  }

  rdma::RegionLimits limits() override { return device_.limits; }
  rdma::Port port(int number) override {
    if (number != device_.port.number) throw rdma::VerbsError("ibv_query_port", name_, EINVAL);
    return device_.port;
  }
  std::vector<rdma::Gid> gids(int) override { return device_.gids; }
  std::unique_ptr<rdma::MemoryRegion> register_memory(std::span<const std::byte> memory,
                                                      rdma::Access) override {
    fabric_->refuse_if_told("ibv_reg_mr", name_);
    return std::make_unique<DoubleRegion>(fabric_, memory);
  }
  std::unique_ptr<rdma::CompletionChannel> make_channel() override {
    fabric_->refuse_if_told("ibv_create_comp_channel", name_);
    return std::make_unique<DoubleChannel>(fabric_);
  }
  std::unique_ptr<rdma::QueuePair> make_queue_pair(const rdma::QueuePairOptions& options,
                                                   rdma::CompletionChannel* channel) override {
    fabric_->refuse_if_told("ibv_create_cq", name_);
    auto queue = std::make_unique<DoubleQueue>(fabric_, name_, options.sends + options.receives,
                                               dynamic_cast<DoubleChannel*>(channel));
    fabric_->refuse_if_told("ibv_create_qp", name_);
    return std::make_unique<DoubleQueuePair>(fabric_, name_, options, std::move(queue));
  }
  int event_descriptor() const override { return pipe_.descriptor(); }
  std::optional<rdma::DeviceEvent> next_event() override {
    const std::lock_guard lock(fabric_->mutex);
    auto& events = fabric_->events[name_];
    if (events.empty()) return std::nullopt;
    rdma::DeviceEvent event = std::move(events.front());
    events.pop_front();
    return event;
  }

 private:
  const std::shared_ptr<Fabric> fabric_;
  const std::string name_;
  const DoubleDevice device_;
  WakePipe pipe_;
};

class VerbsDouble final : public rdma::Verbs {
 public:
  explicit VerbsDouble(std::shared_ptr<Fabric> shared = std::make_shared<Fabric>())
      : fabric(std::move(shared)) {}

  std::vector<std::string> devices() override {
    std::vector<std::string> names;
    for (const auto& [name, device] : known) names.push_back(name);
    return names;
  }
  std::unique_ptr<rdma::VerbsContext> open(const std::string& name) override {
    const auto found = known.find(name);
    if (found == known.end()) throw rdma::VerbsError("ibv_open_device", name, ENODEV);
    fabric->refuse_if_told("ibv_open_device", name);
    try {
      fabric->refuse_if_told("ibv_alloc_pd", name);
    } catch (const rdma::VerbsError&) {
      fabric->closed("ibv_open_device");
      throw;
    }
    return std::make_unique<DoubleContext>(fabric, name, found->second);
  }

  /// Adds a device with one port and an IPv4 address for RoCE v2.
  DoubleDevice& add(const std::string& name, std::uint8_t last_of_address) {
    DoubleDevice& device = known[name];
    rdma::Gid gid{.index = 1, .type = rdma::GidType::roce_v2, .bytes = {}};
    gid.bytes[10] = gid.bytes[11] = 0xff;
    gid.bytes[12] = 10;
    gid.bytes[13] = 9;
    gid.bytes[15] = last_of_address;
    device.gids = {gid};
    return device;
  }

  const std::shared_ptr<Fabric> fabric;
  std::map<std::string, DoubleDevice> known;
};

}  // namespace mccl::testing
