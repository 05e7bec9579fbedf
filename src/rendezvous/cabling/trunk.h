// The messages about cables between neighbours, and the connection that carries them.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "rendezvous/connections/byte_stream.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

/// The cables that end at one rank, as that rank sees them.
struct Sighting {
  int rank = 0;
  std::uint32_t version = 0;  ///< A higher version replaces a lower one.
  bool settled = false;       ///< True if the rank has finished looking for cables.
  std::uint16_t port = 0;     ///< Port at which the rank listens at its end of each cable.
  std::vector<Cable> cables;

  friend bool operator==(const Sighting&, const Sighting&) = default;
};

/// A message between neighbours.
struct CableNews {
  enum class Kind : std::uint8_t {
    sighting,
    decision,  ///< From rank 0: `cables` is the whole cabling.
    cut,       ///< A rank at one end of `cables` reports that they no longer carry valid data.
    fault,     ///< The ranks cannot agree because one violates the protocol; see `why`.
    alive,
    death,  ///< A rank's process ended at start-up; see `why`.
  };
  Kind kind = Kind::alive;
  Sighting sighting;     ///< In a decision and a cut, only `sighting.cables` is used.
  std::string why = {};  ///< Text of a cut, a fault or a death; at most 255 bytes.
  std::vector<std::uint16_t> ports = {};  ///< In a decision: the port of each rank.
};

inline constexpr std::size_t kNewsHeaderBytes = 4;

/// Returns the message as JSON, with its length in front.
Bytes encode(const CableNews& news);
/// Returns the number of bytes after the header. Throws CorruptionError if it exceeds the limit.
std::size_t news_bytes(std::span<const std::byte> header);
/// Throws CorruptionError for a message that no correct rank of a job of `size` sends.
CableNews decode_news(std::span<const std::byte> bytes, int size);

/// Returns the address without its port and scope. A scope is meaningful only on its own host.
/// Without it, both ranks get the same text for a cable.
std::string bare_host(const transport::tcp::Address& address);

/// A proven connection between this rank and a neighbour, along one cable. Afterwards the ranks use
/// it to show that they are alive. Not thread-safe. No call blocks.
class Trunk {
 public:
  /// `socket` connects `self` and `peer`.
  Trunk(transport::tcp::Socket socket, int self, int peer, int size, Clock::time_point now);

  int peer() const { return peer_; }
  /// The cable; equal on both ranks.
  const Cable& cable() const { return cable_; }
  /// The two ends as this host names them, with scopes and ports.
  const transport::tcp::Address& here() const { return here_; }
  const transport::tcp::Address& there() const { return there_; }

  void tell(const CableNews& news) { stream_.queue(encode(news)); }
  /// Queues a rank's sighting, unless this version or a newer one has been sent already.
  void tell_once(const Sighting& sighting);
  /// Sends queued messages and appends those received. Throws CorruptionError if one is invalid.
  /// Returns false once the connection has ended.
  bool advance(Clock::time_point now, std::vector<CableNews>& news);
  Clock::time_point heard_at() const { return heard_at_; }

  /// True if no more messages are expected from the peer, because it misbehaves or knows of a
  /// fault.
  bool given_up = false;

  pollfd watched() const { return stream_.watched(); }

 private:
  ByteStream stream_;
  int peer_;
  int size_;
  transport::tcp::Address here_;
  transport::tcp::Address there_;
  Cable cable_;
  Clock::time_point heard_at_;
  std::map<int, std::uint32_t> told_;  ///< Last version sent of each rank's sighting.
  Bytes input_;
};

}  // namespace mccl::rendezvous
