// Feeds arbitrary bytes to both roles of the handshake. The first byte selects the role, and how
// many messages an honest peer sends before, so that later steps are reached as well.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "rendezvous/connections/handshake.h"

using mccl::rendezvous::Handshake;

namespace {

const mccl::rendezvous::Party kSelf = {1, 4, "key", "chunk_bytes=1\n"};

void feed(Handshake& handshake, std::span<const std::byte>& bytes) {
  const std::size_t n = std::min(handshake.wanted(), bytes.size());
  handshake.feed(bytes.first(n));
  handshake.sent(handshake.output().size());
  bytes = bytes.subspan(n);
}

/// Exchanges `messages` messages with the honest peer.
void converse(Handshake& subject, Handshake& honest, int messages) {
  for (int i = 0; i < messages; ++i) {
    for (auto [from, to] : {std::pair{&honest, &subject}, std::pair{&subject, &honest}}) {
      while (!from->output().empty() && to->wanted() > 0) {
        const std::size_t n = std::min(from->output().size(), to->wanted());
        const mccl::rendezvous::Bytes bytes(from->output().begin(), from->output().begin() + n);
        from->sent(n);
        to->feed(bytes);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool dials = (data[0] & 1) != 0;
  const int honest_messages = (data[0] >> 1) % 3;
  Handshake subject = dials ? Handshake::dialer(kSelf, 2, {}) : Handshake::acceptor(kSelf);
  mccl::rendezvous::Party other = kSelf;
  other.rank = 2;
  Handshake honest = dials ? Handshake::acceptor(other) : Handshake::dialer(other, 1, {});
  converse(subject, honest, honest_messages);
  if (subject.state() == Handshake::State::done) return 0;
  std::span<const std::byte> bytes = std::as_bytes(std::span(data + 1, size - 1));
  while (!bytes.empty() && subject.wanted() > 0) feed(subject, bytes);
  // A peer without the key must never complete the handshake.
  if (subject.state() == Handshake::State::done) std::abort();
  if (subject.state() == Handshake::State::refused && subject.reason().empty()) std::abort();
  return 0;
}
