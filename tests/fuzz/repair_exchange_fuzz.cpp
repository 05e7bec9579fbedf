// The messages by which a rank continues a link over a new connection, as another rank may send
// them. The link may only be continued from a byte that it has written and kept, and then sends
// exactly the bytes after it.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/no_signal.h"
#include "input.h"
#include "mccl/error.h"
#include "rendezvous/meeting/repair_exchange.h"

using mccl::Descriptor;
using mccl::fuzz::Input;
using mccl::fuzz::require;
using mccl::rendezvous::RepairExchange;
using namespace mccl::transport::tcp;

namespace {

using Bytes = std::vector<std::byte>;

struct NoRepairs final : Repairer {
  bool begin(TcpLink&, const std::string&) noexcept override { return true; }
  void suspect(TcpLink&) noexcept override {}
  void forget(const TcpLink&) noexcept override {}
};

/// A connection: this rank's end, and the peer's.
struct Connection {
  Connection() {
    int ends[2] = {-1, -1};
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets");
    here = Socket(ends[0]);
    there = Descriptor(ends[1]);
    make_non_blocking(here);
  }
  void send(std::span<const std::byte> bytes) const {
    require(::send(there.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | mccl::kNoSignal) ==
                static_cast<ssize_t>(bytes.size()),
            "a short message does not fit");
  }
  Bytes receive() const {
    Bytes bytes(std::size_t{128} << 10);
    const auto got = ::recv(there.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }

  Socket here;
  Descriptor there;
};

Bytes numbered(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

RepairExchange::State converse(RepairExchange& exchange, const Descriptor& peer, Input& input) {
  const std::size_t piece = 1 + input.byte() % 16;
  auto state = exchange.advance();
  while (state == RepairExchange::State::waiting && !input.empty()) {
    const auto bytes = input.take(piece);
    if (::send(peer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | mccl::kNoSignal) < 0) break;
    state = exchange.advance();
  }
  if (state != RepairExchange::State::waiting) return state;
  ::shutdown(peer.get(), SHUT_WR);
  return exchange.advance();
}

void resume(TcpLink& link, RepairExchange& exchange, const Descriptor& peer, const Bytes& written) {
  const auto from = exchange.peer_has();
  try {
    link.resume(exchange.take_socket(), from);
  } catch (const mccl::CorruptionError&) {
    return;
  }
  require(from <= written.size(), "the peer has received bytes that were not written");
  Bytes again(written.size() + 1024);
  const auto got = ::recv(peer.get(), again.data(), again.size(), MSG_DONTWAIT);
  again.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  // The exchange's own message comes first, if the peer has not read it.
  require(again.size() >= written.size() - from &&
              std::equal(written.begin() + static_cast<std::ptrdiff_t>(from), written.end(),
                         again.end() - static_cast<std::ptrdiff_t>(written.size() - from)),
          "other bytes are sent again than those that the peer lacks");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::size_t flags = input.byte();
  const auto role = flags & 1 ? RepairExchange::Role::dialer : RepairExchange::Role::acceptor;
  const bool has_link = role == RepairExchange::Role::dialer || (flags & 2) == 0;
  Connection before, after;
  const Bytes written = numbered(input.number<std::uint16_t>() % 4096);
  const Bytes arrived = numbered(input.byte());
  before.send(arrived);
  TcpLinkOptions options;
  options.repairer = std::make_shared<NoRepairs>();
  TcpLink link(std::move(before.here), "rank 1", std::move(options));
  require(link.write(written) == written.size(), "a short message does not fit");
  if (flags & 4) (void)before.receive();
  RepairExchange exchange(std::move(after.here), role, has_link ? &link : nullptr);
  if (converse(exchange, after.there, input) == RepairExchange::State::done) {
    require(has_link, "a link that this rank does not have was continued");
    resume(link, exchange, after.there, written);
    Bytes read(arrived.size());
    if (!arrived.empty())
      require(link.read(read) == read.size() && read == arrived, "bytes are lost");
  }
  return 0;
}
