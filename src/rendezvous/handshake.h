// How two processes prove to each other that they belong to one job, and which ranks they are,
// before either trusts a byte of the other. A state machine without sockets: whoever owns the
// connection carries the bytes.
//
//   dialer                                                acceptor
//   hello: version, key of the link, ranks, size, nonce ->
//                                                     <-  challenge: version, nonce
//   proof that it knows the job key                   ->
//                                                     <-  its rank and size, proof of the same
//   settings, sealed                                  ->
//                                                     <-  verdict and settings, sealed
//
// Every proof and seal is an HMAC under the job key over a label that names its role, all earlier
// messages (both nonces among them) and its own content, so that none can be altered, replayed,
// reflected or moved to another pair of ranks. The dialer proves itself first: a stranger who
// connects learns a protocol version and a random number, nothing that the job key went into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/wire.h"
#include "transport/link_key.h"

namespace mccl::rendezvous {

/// Of all that ranks tell each other, and of what those of a host share in memory.
inline constexpr std::uint16_t kProtocolVersion = 8;
inline constexpr std::size_t kMaxAgreementBytes = std::size_t{16} << 10;

/// This end.
struct Party {
  int rank = 0;
  int size = 0;  ///< Ranks of the job; 0 where it is not known (the store), on both ends then.
  std::string job_key;
  std::string agreement;  ///< "name=value" lines; at most kMaxAgreementBytes.
};

enum class Refusal : std::uint8_t {
  none,
  noise,     ///< What came is not this protocol.
  version,   ///< Another version of it.
  proof,     ///< The peer does not know the job key, or somebody altered the bytes.
  rank,      ///< A member of the job, but not the one that was meant.
  settings,  ///< The right rank, with other settings: final.
};

class Handshake {
 public:
  enum class State : std::uint8_t { in_progress, done, refused };

  /// Connects to `peer`. Throws InvalidArgument when the agreement is too long.
  static Handshake dialer(Party self, int peer, transport::LinkKey key);
  /// Answers whoever connected.
  static Handshake acceptor(Party self);

  State state() const { return state_; }
  /// How many bytes it waits for: read no more than this, what follows belongs to the link. 0 when
  /// it waits for none.
  std::size_t wanted() const;
  /// Takes what arrived; at most wanted() bytes, else it throws InvalidArgument.
  void feed(std::span<const std::byte> bytes);

  /// Bytes to send, even after the end: a refusal may have something to say.
  std::span<const std::byte> output() const { return std::span(output_).subspan(sent_); }
  void sent(std::size_t bytes);

  /// The acceptor has read a whole hello, which anybody can write.
  bool has_begun() const { return step_ == Step::dialer_proof || step_ == Step::dialer_settings; }
  /// The peer has proved that it knows the job key.
  bool proven() const { return proven_; }
  Refusal refusal() const { return refusal_; }
  const std::string& reason() const { return reason_; }
  /// What it means when the peer closes the connection now.
  std::string explain_close() const;

  /// The other rank, and what the link is for. For the acceptor they are claims until proven().
  int peer() const { return peer_; }
  const transport::LinkKey& key() const { return key_; }

 private:
  /// The message that comes next.
  enum class Step : std::uint8_t {
    hello_prefix,  ///< Magic and version, so that noise is told from its first bytes.
    hello,
    dialer_proof,
    dialer_settings,
    challenge_prefix,
    challenge,
    acceptor_proof,
    verdict,
  };

  Handshake(Party self, Step first);

  void take(std::span<const std::byte> message);
  void take_prefix(std::span<const std::byte> message, Step next);
  void take_hello(std::span<const std::byte> message);
  void take_dialer_proof(std::span<const std::byte> message);
  void take_dialer_settings(std::span<const std::byte> message);
  void take_challenge(std::span<const std::byte> message);
  void take_acceptor_proof(std::span<const std::byte> message);
  void take_verdict(std::span<const std::byte> message);

  void send_open(const Bytes& message);
  void send_sealed(std::string_view label, Bytes message);
  bool check_seal(std::string_view label, std::span<const std::byte> message);
  bool check_size(std::uint32_t theirs);
  void expect(Step step);
  void refuse(Refusal refusal, std::string reason);
  std::string who() const;

  Party self_;
  int peer_ = -1;
  transport::LinkKey key_;
  State state_ = State::in_progress;
  Step step_;
  Refusal refusal_ = Refusal::none;
  bool proven_ = false;
  std::string reason_;
  std::size_t agreement_bytes_ = 0;  ///< Of the peer.
  Bytes input_;
  Bytes output_;
  std::size_t sent_ = 0;
  Bytes transcript_;  ///< All messages so far, both ways.
};

}  // namespace mccl::rendezvous
