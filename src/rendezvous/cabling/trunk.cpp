#include "rendezvous/cabling/trunk.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/no_signal.h"
#include "base/would_block.h"

namespace mccl::rendezvous {
namespace {

Cable cable_of(int self, const std::string& here, int peer, const std::string& there) {
  if (self < peer) return {.a = self, .b = peer, .at_a = here, .at_b = there};
  return {.a = peer, .b = self, .at_a = there, .at_b = here};
}

}  // namespace

std::string bare_host(const transport::tcp::Address& address) {
  const std::string host = address.host();
  return host.substr(0, host.find('%'));
}

Trunk::Trunk(transport::tcp::Socket socket, int self, int peer, int size, Clock::time_point now)
    : socket_(std::move(socket)),
      peer_(peer),
      size_(size),
      here_(socket_.local()),
      there_(socket_.remote()),
      cable_(cable_of(self, bare_host(here_), peer, bare_host(there_))),
      heard_at_(now) {
  transport::tcp::tune_stream(socket_);
}

void Trunk::tell(const CableNews& news) {
  append(output_, std::span<const std::byte>(encode(news)));
}

void Trunk::tell_once(const Sighting& sighting) {
  const auto [told, is_first] = told_.emplace(sighting.rank, sighting.version);
  if (!is_first && told->second >= sighting.version) return;
  told->second = sighting.version;
  tell({CableNews::Kind::sighting, sighting});
}

bool Trunk::advance(Clock::time_point now, std::vector<CableNews>& news) {
  if (!flush()) return false;
  const std::size_t before = input_.size();
  const bool open = receive();
  if (input_.size() != before) heard_at_ = now;
  std::size_t at = 0;
  while (input_.size() - at >= kNewsHeaderBytes) {
    const std::span<const std::byte> rest = std::span(input_).subspan(at);
    const std::size_t bytes = news_bytes(rest.first(kNewsHeaderBytes));
    if (rest.size() < kNewsHeaderBytes + bytes) break;
    news.push_back(decode_news(rest.subspan(kNewsHeaderBytes, bytes), size_));
    at += kNewsHeaderBytes + bytes;
  }
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(at));
  return open;
}

/// Returns false once the connection has ended.
bool Trunk::flush() {
  std::size_t sent = 0;
  while (sent < output_.size()) {
    const ssize_t n =
        ::send(socket_.descriptor(), output_.data() + sent, output_.size() - sent, kNoSignal);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (would_block(errno)) {
      nap_if_memory_is_short(errno);
      break;
    } else if (errno != EINTR) {
      return false;
    }
  }
  output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent));
  return true;
}

/// Returns false once the connection has ended. Buffers at most one message of the maximum size.
bool Trunk::receive() {
  std::array<std::byte, 16384> piece;
  while (input_.size() < kMostNewsBytes + kNewsHeaderBytes) {
    const ssize_t n = ::recv(socket_.descriptor(), piece.data(), piece.size(), 0);
    if (n > 0) {
      append(input_, std::span(piece).first(static_cast<std::size_t>(n)));
    } else if (n < 0 && would_block(errno)) {
      return true;
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

void Trunk::watch(std::vector<pollfd>& descriptors) const {
  const short events = output_.empty() ? POLLIN : POLLIN | POLLOUT;
  descriptors.push_back({socket_.descriptor(), events, 0});
}

}  // namespace mccl::rendezvous
