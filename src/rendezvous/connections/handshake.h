// The handshake by which two processes prove to each other that they belong to one job, and which
// ranks they are, before either trusts any byte of the other. It is a state machine without
// sockets: the owner of the connection sends and receives the bytes.
//
//   dialer                                                acceptor
//   hello: version, key of the link, ranks, size, nonce ->
//                                                     <-  challenge: version, nonce, key file
//   proof that it knows the job key                   ->
//                                                     <-  its rank and size, proof of the job key
//   settings, sealed                                  ->
//                                                     <-  verdict and settings, sealed
//
// The settings state whether the connection is to be encrypted. If so, TLS begins after the last
// message, under a key that is derived from the job key and from all messages of the handshake.
//
// Every proof and seal is an HMAC under the job key. It covers a label that states its role, all
// earlier messages (including both nonces) and its own content, so no message can be altered,
// replayed, reflected or moved to another pair of ranks. The dialer proves itself first: an
// outsider that connects learns only a protocol version, a random number and the name of a file
// that it cannot read.
//
// An acceptor without a job key names its key file in the challenge. The secret in that file then
// takes the place of the job key, so that only processes of the same user and host are accepted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/connections/names.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"
#include "transport/tcp/encryption.h"

namespace mccl::rendezvous {

/// Version of the messages between ranks, and of the layout of the memory that the ranks of a host
/// share.
inline constexpr std::uint16_t kProtocolVersion = 17;
inline constexpr std::size_t kMaxAgreementBytes = std::size_t{16} << 10;

/// The processes that a side without a job key accepts.
enum class Keyless : std::uint8_t {
  same_user,  ///< Processes of the same user and host. They prove user and host by a KeyFile.
  anyone,     ///< All processes without a job key (MCCL_REQUIRE_KEY=0).
};

/// Identity and settings of one side of a handshake.
struct Party {
  int rank = 0;
  int size = 0;  ///< Number of ranks of the job; 0 on both sides of a connection to the store.
  SecretBytes job_key = {};
  std::string agreement = {};  ///< Settings as "name=value" lines; at most kMaxAgreementBytes.
  // keyless, key_file and port matter only if there is no job key.
  Keyless keyless = Keyless::same_user;
  /// Key file of an acceptor without a job key; null if the acceptor accepts anyone.
  std::shared_ptr<const KeyFile> key_file = {};
  std::uint16_t port = 0;  ///< Port of the acceptor; see same_user_secret().
  /// How connections are encrypted; null if they are not. Both sides must encrypt in the same way.
  std::shared_ptr<const transport::tcp::Encryption> encryption = nullptr;
};

enum class Refusal : std::uint8_t {
  none,
  noise,     ///< The received bytes are not this protocol.
  version,   ///< The peer uses another protocol version.
  proof,     ///< The peer does not know the job key, or the bytes were altered.
  rank,      ///< The peer is a member of the job, but not the rank that the dialer meant.
  settings,  ///< The peer is the right rank, but its settings differ. A retry is useless.
};

class Handshake {
 public:
  enum class State : std::uint8_t { in_progress, done, refused };

  /// Creates the side that connects to `peer`. Throws InvalidArgument if the settings
  /// (Party::agreement) exceed kMaxAgreementBytes.
  static Handshake dialer(Party self, int peer, LinkKey key);
  /// Creates the side that answers a connection.
  static Handshake acceptor(Party self);

  State state() const { return state_; }
  /// Number of bytes that the handshake needs next; 0 if none. Later bytes belong to the link.
  std::size_t wanted() const;
  /// Processes received bytes. Throws InvalidArgument for more than wanted() bytes.
  void feed(std::span<const std::byte> bytes);

  /// Bytes to send. A refused handshake may still have to send its last message.
  std::span<const std::byte> output() const { return std::span(output_).subspan(sent_); }
  void sent(std::size_t bytes);

  /// True if the acceptor has read a whole hello, which does not prove yet that the peer knows the
  /// job key.
  bool has_begun() const { return step_ == Step::dialer_proof || step_ == Step::dialer_settings; }
  /// True if the peer has proved that it knows the job key.
  bool proven() const { return proven_; }
  Refusal refusal() const { return refusal_; }
  const std::string& reason() const { return reason_; }
  /// Returns the probable reason why the peer closed the connection in the current step.
  std::string explain_close() const { return std::string(rule().when_closed); }

  /// How to encrypt the connection from now on; null if it is not encrypted. A connection to a
  /// relay is not encrypted, because the relayed connection inside is encrypted from end to end.
  std::shared_ptr<const transport::tcp::Encryption> encryption() const;
  bool is_dialer() const { return is_dialer_; }
  /// Returns the key of the connection, which only its two sides know. Requires State::done.
  Proof connection_key() const;
  /// Returns a number that identifies the link at both ranks, also after its connection has been
  /// replaced. Requires State::done.
  std::uint64_t link_number() const;

  /// Rank of the peer. For the dialer, the rank that it dials; for the acceptor, -1 until proven().
  int peer() const { return peer_; }
  /// Key of the link. For the acceptor, it is an unverified claim of the dialer until proven().
  const LinkKey& key() const { return key_; }

 private:
  /// The message expected next. The acceptor expects the first four messages, the dialer the last
  /// four, each in this order.
  enum class Step : std::uint8_t {
    hello_prefix,  ///< Magic and version. Other protocols differ in the first bytes.
    hello,
    dialer_proof,
    dialer_settings,
    challenge_prefix,
    challenge,
    acceptor_proof,
    verdict,
  };
  struct Rule {
    std::size_t bytes = 0;
    /// True for the last message, which also contains the peer's settings beyond `bytes`.
    bool has_settings = false;
    void (Handshake::*take)(std::span<const std::byte> message) = nullptr;
    std::string_view when_closed;  ///< See explain_close().
  };
  static const std::array<Rule, 8> kRules;

  Handshake(Party self, Step first);

  const Rule& rule() const { return kRules[static_cast<std::size_t>(step_)]; }
  void take_prefix(std::span<const std::byte> message);
  void take_hello(std::span<const std::byte> message);
  void take_dialer_proof(std::span<const std::byte> message);
  void take_dialer_settings(std::span<const std::byte> message);
  void take_challenge(std::span<const std::byte> message);
  void take_acceptor_proof(std::span<const std::byte> message);
  void take_verdict(std::span<const std::byte> message);

  bool check_settings(std::string_view theirs);
  void send_open(const Bytes& message);
  void send_sealed(std::string_view label, Bytes message);
  bool check_seal(std::string_view label, std::span<const std::byte> message);
  bool check_size(std::uint32_t theirs);
  bool choose_secret(std::string_view key_file);
  void refuse(Refusal refusal, std::string reason);

  Party self_;
  bool is_dialer_;
  /// The job key or, once the challenge has named a key file, a secret derived from the key in that
  /// file. Empty if both sides accept anyone.
  SecretBytes secret_;
  int peer_ = -1;
  LinkKey key_;
  State state_ = State::in_progress;
  Step step_;
  Refusal refusal_ = Refusal::none;
  bool proven_ = false;
  std::string reason_;
  std::size_t agreement_bytes_ = 0;  ///< Size in bytes of the peer's Party::agreement.
  Bytes input_;
  Bytes output_;
  std::size_t sent_ = 0;
  Bytes transcript_;  ///< All messages so far, in both directions.
};

/// One rank's settings, as "name=value" lines.
struct RankSettings {
  int rank = 0;
  std::string_view text;
};

/// Returns an empty string if the texts are equal; otherwise each setting that differs, with both
/// ranks and both values. The result is printable, whatever the other rank sent.
std::string difference(const RankSettings& here, const RankSettings& there);

}  // namespace mccl::rendezvous
