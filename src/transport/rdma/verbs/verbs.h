// The operations that the transport needs from an RDMA device. library.cpp implements them with
// the real library, loaded at run time; tests/support/verbs_double.h implements them in memory and
// can inject every failure.
//
// Every object must outlive the objects that were made from it: a queue pair is destroyed first,
// then the memory that it uses, then the channel and the context. Functions that make objects throw
// VerbsError. Functions that are called for every message return 0 or an errno.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mccl/error.h"

namespace mccl::transport::rdma {

/// Thrown if a call of a device's driver has failed.
class VerbsError : public Error {
 public:
  VerbsError(std::string_view call, std::string_view device, int code);
  int code() const { return code_; }

 private:
  int code_;
};

/// Returns a text such as "Invalid argument (errno 22)".
std::string describe_code(int code);

/// Handling of lost packets by a queue pair: rc (reliable connection) retransmits, uc (unreliable
/// connection) does not.
enum class Service : std::uint8_t { uc, rc };
std::string_view name_of(Service service);

enum class LinkLayer : std::uint8_t { unknown, infiniband, ethernet };
std::string_view name_of(LinkLayer layer);
enum class GidType : std::uint8_t { unknown, infiniband, roce_v1, roce_v2 };

using GidBytes = std::array<std::uint8_t, 16>;

/// One of the addresses of a port.
struct Gid {
  int index = 0;  ///< Index in the port's table; meaningless to other hosts.
  GidType type = GidType::unknown;
  GidBytes bytes{};
};

struct Port {
  int number = 1;
  bool active = false;
  std::string state;  ///< A name such as "PORT_DOWN".
  LinkLayer layer = LinkLayer::unknown;
  int mtu_bytes = 1024;
  std::uint16_t lid = 0;
};

struct RegionLimits {
  int regions = 0;
  /// True if a fork does not disturb the device's access to registered memory. The caller's memory
  /// may then be registered for the duration of a send.
  bool lends = false;
};

/// Result of a request that was posted with `id`. `bytes` is valid only if the status is 0.
struct Completion {
  std::uint64_t id = 0;
  int status = 0;           ///< A value of ibv_wc_status; 0 for success.
  std::uint32_t bytes = 0;  ///< Size of a received message.
};

/// Returns a text such as "the other end does not answer (completion status 12)".
std::string describe_status(int status);

/// An event that a device reports asynchronously, not as a completion.
struct DeviceEvent {
  enum class Kind { device_gone, port_down, pair_failed, other } kind = Kind::other;
  int port = 0;  ///< Number of the port; set for port_down.
  std::string text;
  std::uint32_t pair = 0;  ///< Number of the queue pair; set for pair_failed.
};

/// Registered memory, which a device may access. The memory must outlive the MemoryRegion.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::uint32_t key() const = 0;
};

/// Receives notifications of completions; its descriptor is readable while a notification is
/// pending.
class CompletionChannel {
 public:
  virtual ~CompletionChannel() = default;
  virtual int descriptor() const = 0;
  /// Removes all pending notifications.
  virtual void drain() = 0;
};

struct QueuePairOptions {
  Service service = Service::rc;
  int port = 1;
  std::uint32_t sends = 1;
  std::uint32_t receives = 1;
  /// Requested maximum size, in bytes, of inline messages; see QueuePair::inline_bytes().
  std::uint32_t inline_bytes = 0;
  std::uint32_t pieces = 1;  ///< Maximum number of pieces per sent message.
};

/// Parameters for connecting to another queue pair.
struct PairRoute {
  std::uint32_t queue_pair = 0;
  std::uint32_t their_first = 0;  ///< Packet sequence number (PSN) of the peer's first packet.
  std::uint32_t our_first = 0;
  int mtu_bytes = 1024;
  std::uint16_t lid = 0;
  bool by_gid = true;
  int own_gid = 0;  ///< Index in the port's table.
  GidBytes gid{};
};

/// One contiguous part of a message.
struct Piece {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t key = 0;  ///< Key of the MemoryRegion that holds the data; ignored for inline data.
};

/// A queue pair and the queue of its completions.
class QueuePair {
 public:
  virtual ~QueuePair() = default;
  virtual std::uint32_t number() const = 0;
  /// Maximum size in bytes of an inline message. post_send() copies such a message before it
  /// returns.
  virtual std::uint32_t inline_bytes() const = 0;
  /// Connects the queue pair, which can then receive and send. Receives may be posted before this
  /// call.
  virtual void connect(const PairRoute& route) = 0;
  virtual int post_send(std::uint64_t id, std::span<const Piece> pieces, bool is_inline) = 0;
  virtual int post_receive(std::uint64_t id, const Piece& into) = 0;
  /// Writes pending completions to the beginning of `into`. Returns their number, or a negative
  /// errno.
  virtual int poll(std::span<Completion> into) = 0;
  /// Requests one notification on the channel, for the next completion.
  virtual int notify() = 0;
};

/// Operations of a device on registered memory; `write` includes reading.
enum class Access : std::uint8_t { read, write };

/// An open device, with one protection domain.
class VerbsContext {
 public:
  virtual ~VerbsContext() = default;
  virtual RegionLimits limits() = 0;
  virtual Port port(int number) = 0;
  virtual std::vector<Gid> gids(int port) = 0;
  /// Registers memory of this process. Memory without write access can be registered only with
  /// Access::read. Throws VerbsError if the driver refuses.
  virtual std::unique_ptr<MemoryRegion> register_memory(std::span<const std::byte> memory,
                                                        Access access) = 0;
  virtual std::unique_ptr<CompletionChannel> make_channel() = 0;
  /// `channel` may be null; the queue pair then sends no notifications.
  virtual std::unique_ptr<QueuePair> make_queue_pair(const QueuePairOptions& options,
                                                     CompletionChannel* channel) = 0;
  /// Descriptor that is readable while next_event() has events to return.
  virtual int event_descriptor() const = 0;
  virtual std::optional<DeviceEvent> next_event() = 0;
  /// Called in the child of a fork: closes the child's copies of descriptors. The driver is not
  /// called afterwards.
  virtual void abandon() noexcept {}
};

/// The driver of all devices of this machine. Verbs and VerbsContext are thread-safe; all other
/// objects may be used by only one thread at a time.
class Verbs {
 public:
  virtual ~Verbs() = default;
  virtual std::vector<std::string> devices() = 0;
  virtual std::unique_ptr<VerbsContext> open(const std::string& device) = 0;
};

/// The kind of IP address that a GID contains.
enum class Family : std::uint8_t { ipv4, ipv6, link_local };
Family family_of(const GidBytes& gid);

/// Returns the type and the address as text, such as "RoCE v2 10.9.0.1" or "InfiniBand fe80::1".
std::string text_of(const Gid& gid);
std::string text_of(const GidBytes& gid);
std::string_view name_of(GidType type);
/// Returns the kind of a GID as text, such as "RoCE v2 over IPv4". Two addresses can reach each
/// other only if their kinds are equal.
std::string kind_of(const Gid& gid);

/// Returns the indices of the best two addresses of equal type and family; empty if there are none.
/// RoCE v2 is preferred to RoCE v1; IPv4 to IPv6, and IPv6 to link-local. Among equal candidates,
/// the two addresses with the longest common prefix are chosen, because the two addresses of one
/// cable share a prefix. Both ends get the same result, whatever the order of the lists.
std::optional<std::pair<std::size_t, std::size_t>> choose_gids(std::span<const Gid> here,
                                                               std::span<const Gid> there);

/// Loads the library once, for the lifetime of the process. Returns null if the library is missing
/// or lacks a function that MCCL needs, with the reason in `why`.
std::shared_ptr<Verbs> load_verbs(std::string& why);

}  // namespace mccl::transport::rdma
