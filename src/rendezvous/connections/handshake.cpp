#include "rendezvous/connections/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

constexpr std::string_view kMagic = "MCCL";
constexpr std::uint8_t kDialerRole = 1;
constexpr std::uint8_t kAcceptorRole = 2;
constexpr std::size_t kPrefixBytes = 6;  ///< Size of magic and version; equal in all versions.
constexpr std::size_t kHelloBytes = 1 + 1 + 1 + 8 + 4 + 4 + 4 + kNonceBytes;
constexpr std::size_t kChallengeBytes = 1 + kNonceBytes + kKeyFileLetters;
constexpr std::size_t kDialerProofBytes = 4 + kProofBytes;
constexpr std::size_t kAcceptorProofBytes = 4 + 4 + 4 + kProofBytes;

constexpr std::string_view kDialerProofLabel = "mccl dialer proof";
constexpr std::string_view kAcceptorProofLabel = "mccl acceptor proof";
constexpr std::string_view kDialerSettingsLabel = "mccl dialer settings";
constexpr std::string_view kVerdictLabel = "mccl acceptor verdict";
constexpr std::string_view kConnectionKeyLabel = "mccl tls 1.3 key";
constexpr std::string_view kLinkNumberLabel = "mccl link number";

/// An acceptor without a key file sends this text in its challenge, in place of the file's name.
constexpr std::string_view kNoKeyFile = "--------------------------------";
static_assert(kNoKeyFile.size() == kKeyFileLetters);
Bytes prefix() {
  const std::span<const std::byte> magic = bytes_of(kMagic);
  Bytes bytes(magic.begin(), magic.end());
  append(bytes, kProtocolVersion);
  return bytes;
}

void append_int(Bytes& to, int value) { append(to, static_cast<std::uint32_t>(value)); }

constexpr int kMaxShownSettings = 8;
constexpr std::string_view kEncryption = "encryption";
using Lines = std::map<std::string_view, std::string_view>;

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    std::string_view value = next_part(text, '\n');
    if (const std::string_view name = next_part(value, '='); !name.empty()) lines[name] = value;
  }
  return lines;
}

std::string value_in(const Lines& lines, std::string_view name) {
  const auto found = lines.find(name);
  // A side whose settings lack kEncryption does not encrypt.
  if (found == lines.end() && name == kEncryption) return "off";
  if (found == lines.end()) return "no such setting";
  return found->second.empty() ? "nothing" : printable(found->second);
}

constexpr std::string_view kClosedUnproven = "it closed the connection before it authenticated";
constexpr std::string_view kClosedUnanswered =
    "it closed the connection without an answer (is it another program?)";

}  // namespace

/// Indexed by Step.
const std::array<Handshake::Rule, 8> Handshake::kRules = {{
    {kPrefixBytes, false, &Handshake::take_prefix, kClosedUnproven},
    {kHelloBytes, false, &Handshake::take_hello, kClosedUnproven},
    {kDialerProofBytes, false, &Handshake::take_dialer_proof, kClosedUnproven},
    {kProofBytes, true, &Handshake::take_dialer_settings,
     "it closed the connection before it sent its settings"},
    {kPrefixBytes, false, &Handshake::take_prefix, kClosedUnanswered},
    {kChallengeBytes, false, &Handshake::take_challenge, kClosedUnanswered},
    {kAcceptorProofBytes, false, &Handshake::take_acceptor_proof,
     "it closed the connection on receipt of this rank's proof (does it have the same "
     "MCCL_JOB_KEY?)"},
    {1 + kProofBytes, true, &Handshake::take_verdict,
     "it closed the connection while settings were compared (did its process end?)"},
}};

Handshake::Handshake(Party self, Step first)
    : self_(std::move(self)),
      is_dialer_(first == Step::challenge_prefix),
      secret_(self_.job_key),
      step_(first) {
  if (self_.encryption) {
    self_.agreement +=
        fmt::format("{}=on\nencryption_by={}\n", kEncryption, self_.encryption->identity());
  }
  if (self_.agreement.size() > kMaxAgreementBytes) {
    throw InvalidArgument(
        fmt::format("the settings that ranks must agree on take {} bytes, but a handshake has room "
                    "for {} bytes",
                    self_.agreement.size(), kMaxAgreementBytes));
  }
}

Handshake Handshake::dialer(Party self, int peer, LinkKey key) {
  Handshake handshake(std::move(self), Step::challenge_prefix);
  handshake.peer_ = peer;
  handshake.key_ = key;
  Bytes hello = prefix();
  append(hello, kDialerRole);
  append(hello, static_cast<std::uint8_t>(key.purpose));
  append(hello, key.rail);
  append(hello, key.group);
  append_int(hello, handshake.self_.rank);
  append_int(hello, peer);
  append_int(hello, handshake.self_.size);
  append(hello, make_nonce());
  handshake.send_open(hello);
  return handshake;
}

Handshake Handshake::acceptor(Party self) {
  Handshake handshake(std::move(self), Step::hello_prefix);
  Party& own = handshake.self_;
  if (!own.job_key.empty()) own.key_file.reset();
  if (own.job_key.empty() && !own.key_file && own.keyless == Keyless::same_user) {
    throw InvalidArgument(fmt::format(
        "rank {} has neither a job key nor a key file, so it can accept no connection", own.rank));
  }
  return handshake;
}

std::size_t Handshake::wanted() const {
  if (state_ != State::in_progress) return 0;
  return rule().bytes + (rule().has_settings ? agreement_bytes_ : 0) - input_.size();
}

std::shared_ptr<const transport::tcp::Encryption> Handshake::encryption() const {
  return key_.purpose == Purpose::relay ? nullptr : self_.encryption;
}

Proof Handshake::connection_key() const {
  return derive(secret_, transcript_, kConnectionKeyLabel);
}

std::uint64_t Handshake::link_number() const {
  const Proof number = derive(secret_, transcript_, kLinkNumberLabel);
  return WireReader(std::as_bytes(std::span(number))).number<std::uint64_t>();
}

void Handshake::feed(std::span<const std::byte> bytes) {
  if (bytes.size() > wanted()) {
    throw InvalidArgument(fmt::format(
        "handshake with {}: given {} bytes, expected at most {}",
        peer_ < 0 ? "an unknown process" : fmt::format("rank {}", peer_), bytes.size(), wanted()));
  }
  append(input_, bytes);
  // Compare the magic as its bytes arrive, so that another protocol is refused early.
  if (step_ == Step::hello_prefix || step_ == Step::challenge_prefix) {
    const std::size_t n = std::min(input_.size(), kMagic.size());
    if (text_of(std::span(input_).first(n)) != kMagic.substr(0, n))
      return refuse(Refusal::noise, "it does not speak MCCL's protocol");
  }
  // The first byte is the sender's role. Refuse a dialer: two dialers would wait for each other.
  if (step_ == Step::challenge && !input_.empty() &&
      input_.front() != static_cast<std::byte>(kAcceptorRole)) {
    return refuse(Refusal::noise, "its challenge is malformed (is it an echo server?)");
  }
  if (state_ != State::in_progress || bytes.empty() || wanted() != 0) return;
  const Bytes message = std::exchange(input_, {});
  (this->*rule().take)(message);
  if (state_ != State::in_progress) return;
  if (rule().has_settings) {
    state_ = State::done;
  } else {
    step_ = static_cast<Step>(static_cast<int>(step_) + 1);
  }
}

void Handshake::sent(std::size_t bytes) {
  sent_ += std::min(bytes, output_.size() - sent_);
  if (sent_ < output_.size()) return;
  output_.clear();
  sent_ = 0;
}

void Handshake::take_prefix(std::span<const std::byte> message) {
  WireReader reader(message.subspan(kMagic.size()));
  const auto version = reader.number<std::uint16_t>();
  if (version != kProtocolVersion) {
    // A peer of any version can read the prefix, and can then mention both versions in its error.
    if (step_ == Step::hello_prefix) output_ = prefix();
    return refuse(Refusal::version,
                  fmt::format("it speaks version {} of MCCL's protocol, but rank {} speaks "
                              "version {}; install the same version of MCCL everywhere",
                              version, self_.rank, kProtocolVersion));
  }
  append(transcript_, message);
}

void Handshake::take_hello(std::span<const std::byte> message) {
  WireReader reader(message);
  const auto role = reader.number<std::uint8_t>();
  const auto purpose = reader.number<std::uint8_t>();
  key_.rail = reader.number<std::uint8_t>();
  key_.group = reader.number<std::uint64_t>();
  if (role != kDialerRole || purpose >= transport::kPurposeCount)
    return refuse(Refusal::noise, "its first message is malformed");
  key_.purpose = static_cast<Purpose>(purpose);
  // The ranks and the size are read only once the dialer has proved that it knows the job key.
  append(transcript_, message);
  Bytes challenge = prefix();
  append(challenge, kAcceptorRole);
  append(challenge, make_nonce());
  if (self_.key_file) secret_ = same_user_secret(self_.key_file->key(), self_.port);
  append(challenge, bytes_of(self_.key_file ? self_.key_file->name() : kNoKeyFile));
  send_open(challenge);
}

void Handshake::take_challenge(std::span<const std::byte> message) {
  if (!choose_secret(text_of(message.last(kKeyFileLetters)))) return;
  append(transcript_, message);
  Bytes proof;
  append_int(proof, static_cast<int>(self_.agreement.size()));
  send_sealed(kDialerProofLabel, std::move(proof));
}

/// Chooses the dialer's secret, given the name of the acceptor's key file or kNoKeyFile. Refuses
/// the handshake and returns false if the sides need different secrets or the file is unreadable.
bool Handshake::choose_secret(std::string_view key_file) {
  const bool has_file = key_file != kNoKeyFile;
  if (!self_.job_key.empty()) {
    if (!has_file) return true;
    refuse(Refusal::proof,
           fmt::format("it has no job key, but rank {} has a job key; every rank needs the same "
                       "MCCL_JOB_KEY",
                       self_.rank));
  } else if (!has_file) {
    if (self_.keyless == Keyless::anyone) return true;
    refuse(
        Refusal::proof,
        fmt::format("it requires a job key, or accepts any process (MCCL_REQUIRE_KEY=0); rank {} "
                    "has neither setting; every rank needs the same MCCL_JOB_KEY",
                    self_.rank));
  } else if (const auto key = find_key_file(private_folders(), key_file)) {
    secret_ = same_user_secret(*key, self_.port);
    return true;
  } else {
    refuse(Refusal::proof,
           fmt::format("it has no job key, so it accepts only processes of its own user and host. "
                       "Rank {} cannot read the key file of that process (the two processes run on "
                       "different hosts, as different users or in different containers); {}",
                       self_.rank, kHowToMakeAKey));
  }
  return false;
}

void Handshake::take_dialer_proof(std::span<const std::byte> message) {
  if (!check_seal(kDialerProofLabel, message)) return;
  proven_ = true;
  agreement_bytes_ = WireReader(message).number<std::uint32_t>();

  const std::span<const std::byte> hello_bytes = transcript_;
  WireReader hello(hello_bytes.subspan(kPrefixBytes + 1 + 1 + 1 + 8));
  peer_ = static_cast<int>(hello.number<std::uint32_t>());
  const auto meant = static_cast<int>(hello.number<std::uint32_t>());
  const auto size = hello.number<std::uint32_t>();
  Bytes answer;
  append_int(answer, self_.rank);
  append_int(answer, self_.size);
  append_int(answer, static_cast<int>(self_.agreement.size()));
  send_sealed(kAcceptorProofLabel, std::move(answer));

  if (meant != self_.rank) {
    return refuse(Refusal::rank, fmt::format("rank {} tried to reach rank {}, but this is rank {}",
                                             peer_, meant, self_.rank));
  }
  if (!check_size(size)) return;
  if (peer_ < 0 || (self_.size > 0 && peer_ >= self_.size) ||
      agreement_bytes_ > kMaxAgreementBytes) {
    return refuse(
        Refusal::noise,
        fmt::format("it claims to be rank {} with {} bytes of settings, unlike a rank of this job",
                    peer_, agreement_bytes_));
  }
}

void Handshake::take_acceptor_proof(std::span<const std::byte> message) {
  if (!check_seal(kAcceptorProofLabel, message)) return;
  proven_ = true;
  WireReader reader(message);
  const auto rank = static_cast<int>(reader.number<std::uint32_t>());
  const auto size = reader.number<std::uint32_t>();
  agreement_bytes_ = reader.number<std::uint32_t>();
  if (rank != peer_) {
    return refuse(Refusal::rank, fmt::format("it is rank {} of the job, not rank {}", rank, peer_));
  }
  if (!check_size(size)) return;
  if (agreement_bytes_ > kMaxAgreementBytes) {
    return refuse(Refusal::noise,
                  fmt::format("it announces {} bytes of settings, but at most {} bytes are allowed",
                              agreement_bytes_, kMaxAgreementBytes));
  }
  Bytes settings;
  append(settings, bytes_of(self_.agreement));
  send_sealed(kDialerSettingsLabel, std::move(settings));
}

void Handshake::take_dialer_settings(std::span<const std::byte> message) {
  if (!check_seal(kDialerSettingsLabel, message)) return;
  const bool are_equal = check_settings(text_of(message.first(agreement_bytes_)));
  Bytes verdict;
  append(verdict, static_cast<std::uint8_t>(are_equal ? 1 : 0));
  append(verdict, bytes_of(self_.agreement));
  send_sealed(kVerdictLabel, std::move(verdict));
}

void Handshake::take_verdict(std::span<const std::byte> message) {
  if (!check_seal(kVerdictLabel, message)) return;
  if (!check_settings(text_of(message.subspan(1, agreement_bytes_)))) return;
  if (message[0] != std::byte{1})
    return refuse(Refusal::settings, "it refused settings that are equal to its own");
}

bool Handshake::check_settings(std::string_view theirs) {
  const std::string differs = difference({self_.rank, self_.agreement}, {peer_, theirs});
  if (!differs.empty()) refuse(Refusal::settings, differs);
  return differs.empty();
}

void Handshake::send_open(const Bytes& message) {
  append(transcript_, message);
  append(output_, message);
}

void Handshake::send_sealed(std::string_view label, Bytes message) {
  Bytes sealed = transcript_;
  append(sealed, message);
  append(message, prove(secret_, label, sealed));
  send_open(message);
}

bool Handshake::check_seal(std::string_view label, std::span<const std::byte> message) {
  const auto content = message.first(message.size() - kProofBytes);
  Bytes sealed = transcript_;
  append(sealed, content);
  if (same_proof(prove(secret_, label, sealed), message.last(kProofBytes))) {
    append(transcript_, message);
    return true;
  }
  const bool by_file = self_.job_key.empty() && self_.keyless == Keyless::same_user;
  refuse(Refusal::proof,
         proven_   ? "its bytes were altered in transit"
         : by_file ? "it did not prove that it runs as the same user on the same host; if it is "
                     "a rank of the job, every rank needs the same MCCL_JOB_KEY"
                   : "it does not know the job key; every rank needs the same MCCL_JOB_KEY");
  return false;
}

bool Handshake::check_size(std::uint32_t theirs) {
  if (static_cast<std::uint32_t>(self_.size) == theirs) return true;
  refuse(Refusal::settings,
         fmt::format("rank {} is in a job of {} ranks, but rank {} is in a job of {}; give every "
                     "rank the same world size",
                     self_.rank, self_.size, peer_, theirs));
  return false;
}

void Handshake::refuse(Refusal refusal, std::string reason) {
  state_ = State::refused;
  refusal_ = refusal;
  reason_ = std::move(reason);
}

std::string difference(const RankSettings& here, const RankSettings& there) {
  if (here.text == there.text) return {};
  const Lines mine = lines_of(here.text);
  const Lines theirs = lines_of(there.text);
  Lines names = mine;
  names.insert(theirs.begin(), theirs.end());
  std::string list;
  int count = 0;
  for (const auto& [name, unused] : names) {
    const bool both = mine.contains(name) && theirs.contains(name);
    if ((both && mine.at(name) == theirs.at(name)) || ++count > kMaxShownSettings) continue;
    list += fmt::format("{}{} (rank {} has {}, rank {} has {})", list.empty() ? "" : ", ",
                        printable(name), here.rank, value_in(mine, name), there.rank,
                        value_in(theirs, name));
  }
  if (count > kMaxShownSettings) list += fmt::format(" and {} more", count - kMaxShownSettings);
  if (count == 0) list = "their encoding (do the ranks run different versions of MCCL?)";
  return fmt::format(
      "the settings of rank {} and rank {} differ in {}; give every rank the same value", here.rank,
      there.rank, list);
}

}  // namespace mccl::rendezvous
