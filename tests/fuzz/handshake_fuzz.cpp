// Both roles of the handshake against a peer without and with the job key. Bit 0 of the first byte
// selects the role. If bit 7 is clear, the rest of the input follows 0 to 2 honest messages (bits 1
// and 2), and must never complete the handshake. If bit 7 is set, the peer knows the key: it edits
// its messages as the input says, and proves and seals what it sends.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "input.h"
#include "rendezvous/connections/handshake.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"

using mccl::fuzz::Input;
using mccl::fuzz::require;
using mccl::rendezvous::append;
using mccl::rendezvous::Bytes;
using mccl::rendezvous::Handshake;
using mccl::rendezvous::WireReader;

namespace {

const mccl::rendezvous::Party kSelf = {1, 4, "key", "chunk_bytes=1\n"};
constexpr int kPeer = 2;
constexpr std::size_t kHelloRanksAt = 6 + 1 + 1 + 1 + 8;

void feed(Handshake& handshake, std::span<const std::byte>& bytes) {
  const std::size_t n = std::min(handshake.wanted(), bytes.size());
  handshake.feed(bytes.first(n));
  bytes = bytes.subspan(n);
}

Handshake subject_of(bool dials) {
  return dials ? Handshake::dialer(kSelf, kPeer, {}) : Handshake::acceptor(kSelf);
}

/// Exchanges `messages` messages with the honest peer.
void converse(Handshake& subject, Handshake& honest, int messages) {
  for (int i = 0; i < messages; ++i) {
    for (auto [from, to] : {std::pair{&honest, &subject}, std::pair{&subject, &honest}}) {
      while (!from->output().empty() && to->wanted() > 0) {
        const std::size_t n = std::min(from->output().size(), to->wanted());
        const Bytes bytes(from->output().begin(), from->output().begin() + n);
        from->sent(n);
        to->feed(bytes);
      }
    }
  }
}

/// A peer without the key.
void meet_stranger(std::size_t flags, std::span<const std::byte> bytes) {
  const bool dials = (flags & 1) != 0;
  Handshake subject = subject_of(dials);
  mccl::rendezvous::Party other = kSelf;
  other.rank = kPeer;
  Handshake honest = dials ? Handshake::acceptor(other) : Handshake::dialer(other, 1, {});
  converse(subject, honest, static_cast<int>(flags >> 1) % 3);
  if (subject.state() == Handshake::State::done) return;
  while (!bytes.empty() && subject.wanted() > 0) {
    feed(subject, bytes);
    subject.sent(subject.output().size());
  }
  require(subject.state() != Handshake::State::done, "a peer without the key was accepted");
  require(subject.state() != Handshake::State::refused || !subject.reason().empty(), "no reason");
}

/// A peer with the key. An input of zeros makes it honest.
class Member {
 public:
  Member(Handshake& subject, Input& input) : subject_(subject), input_(input) {
    const std::size_t length = input_.byte();
    const auto text = input_.take(length);
    if (length > 0) settings_ = mccl::rendezvous::text_of(text);
  }

  void dial() {
    Bytes hello = prefix();
    hello.insert(hello.end(), {std::byte{1}, {}, {}});
    append(hello, std::uint64_t{0});
    for (const int number : {kPeer, kSelf.rank, kSelf.size}) append_int(hello, number);
    hello.resize(hello.size() + mccl::rendezvous::kNonceBytes);
    hello_ = send({}, std::move(hello));
    Bytes proof;
    append_int(proof, static_cast<int>(settings_.size()));
    send("mccl dialer proof", proof);
    send("mccl dialer settings", settings());
    if (subject_.state() != Handshake::State::done) return;
    const std::span<const std::byte> said = hello_;
    WireReader ranks(said.subspan(kHelloRanksAt));
    const auto rank = ranks.number<std::uint32_t>();
    require(rank < 4 && subject_.peer() == static_cast<int>(rank), "a rank outside the job");
    require(ranks.number<std::uint32_t>() == 1, "a dialer that meant another rank");
    require(ranks.number<std::uint32_t>() == 4, "a dialer of a job of another size");
  }

  void accept() {
    receive();
    Bytes challenge = prefix();
    challenge.push_back(std::byte{2});
    challenge.resize(challenge.size() + mccl::rendezvous::kNonceBytes);
    challenge.resize(challenge.size() + mccl::rendezvous::kKeyFileLetters, std::byte{'-'});
    send({}, std::move(challenge));
    Bytes proof;
    for (const int number : {kPeer, kSelf.size, static_cast<int>(settings_.size())})
      append_int(proof, number);
    const Bytes proved = send("mccl acceptor proof", proof);
    const Bytes verdict = settings();
    Bytes sealed = {std::byte{1}};
    sealed.insert(sealed.end(), verdict.begin(), verdict.end());
    sealed = send("mccl acceptor verdict", std::move(sealed));
    if (subject_.state() != Handshake::State::done) return;
    require(std::equal(proof.begin(), proof.end(), proved.begin()), "another rank or size");
    require(sealed[0] == std::byte{1}, "a refusal was taken for consent");
  }

  /// True if the peer has done nothing that an honest peer would not do.
  bool is_honest() const { return !is_edited_ && settings_ == kSelf.agreement; }
  bool has_forged() const { return has_forged_; }

 private:
  static Bytes prefix() {
    const auto magic = mccl::rendezvous::bytes_of("MCCL");
    Bytes bytes(magic.begin(), magic.end());
    append(bytes, mccl::rendezvous::kProtocolVersion);
    return bytes;
  }
  static void append_int(Bytes& to, int value) { append(to, static_cast<std::uint32_t>(value)); }

  Bytes settings() const {
    const auto bytes = mccl::rendezvous::bytes_of(settings_);
    return {bytes.begin(), bytes.end()};
  }

  void receive() {
    append(transcript_, subject_.output());
    subject_.sent(subject_.output().size());
  }

  /// Edits the content, proves it if there is a label, and sends it. Returns the edited content.
  Bytes send(std::string_view label, Bytes content) {
    for (std::size_t edits = input_.byte() % 8; edits > 0; --edits) {
      const std::size_t at = input_.number<std::uint16_t>();
      const auto change = static_cast<std::byte>(input_.byte());
      if (content.empty()) continue;
      content[at % content.size()] ^= change;
      is_edited_ |= change != std::byte{0};
    }
    Bytes message = content;
    if (!label.empty()) {
      Bytes sealed = transcript_;
      append(sealed, content);
      auto proof = mccl::rendezvous::prove(kSelf.job_key, label, sealed);
      const std::size_t forged = input_.byte();
      if (forged > 0) proof[forged % proof.size()] ^= std::byte{1};
      is_edited_ |= forged > 0;
      has_forged_ |= forged > 0;
      append(message, proof);
    }
    append(transcript_, message);
    std::span<const std::byte> rest = message;
    while (!rest.empty() && subject_.wanted() > 0) feed(subject_, rest);
    receive();
    return content;
  }

  Handshake& subject_;
  Input& input_;
  std::string settings_ = kSelf.agreement;
  Bytes transcript_;
  Bytes hello_;
  bool is_edited_ = false;
  bool has_forged_ = false;
};

void meet_member(std::size_t flags, Input& input) {
  const bool dials = (flags & 1) != 0;
  Handshake subject = subject_of(dials);
  Member member(subject, input);
  dials ? member.accept() : member.dial();
  const bool is_done = subject.state() == Handshake::State::done;
  require(!is_done || !member.has_forged(), "a forged proof was accepted");
  require(is_done || !member.is_honest(), "an honest member was not accepted");
  require(!is_done || subject.proven(), "accepted, and not proven");
  require(subject.wanted() <= mccl::rendezvous::kMaxAgreementBytes + 64, "too much is wanted");
  if (is_done) {
    (void)subject.connection_key();
    (void)subject.link_number();
  }
  if (subject.state() != Handshake::State::refused) return;
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  require(!subject.reason().empty(), "no reason");
  require(std::ranges::none_of(subject.reason(), is_control), "the reason is not printable");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Input input(data, size);
  const std::size_t flags = input.byte();
  if ((flags & 0x80) != 0) {
    meet_member(flags, input);
  } else {
    meet_stranger(flags, input.rest());
  }
  return 0;
}
