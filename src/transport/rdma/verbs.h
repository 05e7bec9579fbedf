// What the transport asks of an RDMA device, in terms of its own: verbs_library.h is the real
// thing, loaded at run time, and tests/support/verbs_double.h one in memory that can fail in every
// way.
//
// Every object outlives what was made of it: a queue pair goes first, then its completion queue and
// the memory it names, then the domain, the channel and the context. All of them throw VerbsError
// where they are made; what is called for every message returns an errno, or 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mccl/error.h"

namespace mccl::transport::rdma {

/// A call of a device's driver has failed.
class VerbsError : public Error {
 public:
  VerbsError(std::string_view call, std::string_view device, int code);
  int code() const { return code_; }

 private:
  int code_;
};

/// "Invalid argument (errno 22)".
std::string describe_code(int code);

/// How a queue pair treats what is lost: rc sends it again, uc does not.
enum class Service : std::uint8_t { uc, rc };
std::string_view name_of(Service service);

enum class LinkLayer : std::uint8_t { unknown, infiniband, ethernet };
enum class GidType : std::uint8_t { unknown, infiniband, roce_v1, roce_v2 };

using GidBytes = std::array<std::uint8_t, 16>;

/// One of the addresses of a port.
struct Gid {
  int index = 0;  ///< In the port's table; it means nothing to others.
  GidType type = GidType::unknown;
  GidBytes bytes{};
};

struct Port {
  int number = 1;
  bool active = false;
  std::string state;  ///< "PORT_DOWN".
  LinkLayer layer = LinkLayer::unknown;
  int mtu_bytes = 1024;
  std::uint16_t lid = 0;
  std::size_t message_bytes = 0;  ///< The longest message.
};

struct Limits {
  int regions = 0;
  int queue_pairs = 0;
  int requests = 0;  ///< Of a queue pair, in each direction.
  int completions = 0;
  int ports = 1;
  /// Memory of others may be registered for a time: a fork meanwhile does it no harm.
  bool lends = false;
};

/// How a request has ended. `id` is the caller's; nothing else holds where the status is not 0.
struct Completion {
  std::uint64_t id = 0;
  int status = 0;           ///< As the verbs number them.
  std::uint32_t bytes = 0;  ///< Of a message received.
};

/// "transport retry counter exceeded (12)".
std::string describe_status(int status);
inline constexpr int kFlushed = 5;

/// What a device reports beside completions.
struct DeviceEvent {
  enum class Kind { device_gone, port_down, pair_failed, other } kind = Kind::other;
  int port = 0;  ///< Of port_down.
  std::string text;
  std::uint32_t pair = 0;  ///< Of pair_failed: the number of the queue pair.
};

/// Memory that a device may read and write. The memory outlives it.
class Region {
 public:
  virtual ~Region() = default;
  virtual std::uint32_t key() const = 0;
};

/// Where notices of completions arrive: readable while there are any.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int descriptor() const = 0;
  /// Takes all that are there.
  virtual void drain() = 0;
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  /// Fills a part of `into`; how many, or a negative errno.
  virtual int poll(std::span<Completion> into) = 0;
  /// The next completion is told to the channel, once.
  virtual int notify() = 0;
};

struct QueuePairOptions {
  Service service = Service::rc;
  int port = 1;
  std::uint32_t sends = 1;
  std::uint32_t receives = 1;
  std::uint32_t inline_bytes = 0;  ///< Wanted.
  std::uint32_t pieces = 1;        ///< Of a message to be sent, at most.
};

/// The way to another queue pair.
struct Route {
  std::uint32_t queue_pair = 0;
  std::uint32_t their_first = 0;  ///< Number of the first packet from there (PSN).
  std::uint32_t our_first = 0;
  int mtu_bytes = 1024;
  std::uint16_t lid = 0;
  bool by_gid = true;
  int own_gid = 0;  ///< Index.
  GidBytes gid{};
};

/// Of a message to be sent.
struct Piece {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t key = 0;  ///< Of its region; not looked at where it goes inline.
};

class QueuePair {
 public:
  virtual ~QueuePair() = default;
  virtual std::uint32_t number() const = 0;
  /// What goes inline at most: the device reads it while it is posted.
  virtual std::uint32_t inline_bytes() const = 0;
  /// From now on it receives and sends. Receives may be posted before.
  virtual void connect(const Route& route) = 0;
  virtual int post_send(std::uint64_t id, std::span<const Piece> pieces, bool is_inline) = 0;
  virtual int post_receive(std::uint64_t id, const Piece& into) = 0;
};

class Domain {
 public:
  virtual ~Domain() = default;
  virtual std::unique_ptr<Region> register_memory(std::span<std::byte> memory) = 0;
  /// Of which the device only reads.
  virtual std::unique_ptr<Region> register_to_send(std::span<const std::byte> memory) = 0;
  virtual std::unique_ptr<QueuePair> make_queue_pair(const QueuePairOptions& options,
                                                     CompletionQueue& completions) = 0;
};

class Context {
 public:
  virtual ~Context() = default;
  virtual Limits limits() = 0;
  virtual Port port(int number) = 0;
  virtual std::vector<Gid> gids(int port) = 0;
  virtual std::unique_ptr<Domain> make_domain() = 0;
  virtual std::unique_ptr<Channel> make_channel() = 0;
  /// `channel` may be null: nothing tells of its completions then.
  virtual std::unique_ptr<CompletionQueue> make_queue(int entries, Channel* channel) = 0;
  /// Readable while there are events.
  virtual int event_descriptor() const = 0;
  virtual std::optional<DeviceEvent> next_event() = 0;
  /// In the child of a fork: closes its copies of descriptors, and calls the driver no more.
  virtual void abandon() noexcept {}
};

/// The driver of all devices of this machine. Thread-safe, as is Context; the rest is used by one
/// thread at a time.
class Verbs {
 public:
  virtual ~Verbs() = default;
  virtual std::vector<std::string> devices() = 0;
  virtual std::unique_ptr<Context> open(const std::string& device) = 0;
};

}  // namespace mccl::transport::rdma
