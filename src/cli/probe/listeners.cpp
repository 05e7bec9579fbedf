#include "cli/probe/listeners.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/thread.h"
#include "mccl/error.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;
using transport::tcp::BindError;
using transport::tcp::Listener;

constexpr auto kPatience = 5s;
constexpr auto kBetweenLooks = 100ms;
constexpr int kTries = 64;
constexpr std::size_t kMostConversations = 256;

Listener listen_from(std::uint16_t port) {
  for (int tried = 0; tried < kTries; ++tried) {
    for (const int family : {AF_INET6, AF_INET}) {
      try {
        const auto here = static_cast<std::uint16_t>(port + tried);
        return Listener(Address::wildcard(family, here), 0);
      } catch (const BindError& error) {
        if (error.code == EADDRINUSE) break;  // of a machine without IPv6 there is another errno
      }
    }
  }
  throw Error(fmt::format("none of the ports {} to {} is free here", port, port + kTries - 1));
}

}  // namespace

Listeners::Listeners(std::string key, const std::vector<std::uint16_t>& ports)
    : key_(std::move(key)) {
  for (const std::uint16_t port : ports) {
    listeners_.push_back(listen_from(port));
    ports_.push_back(listeners_.back().address().port());
  }
  thread_ = start_thread("mccl-listen", [this] { run(); });
}

Listeners::~Listeners() {
  stopping_ = true;
  thread_.join();
}

void Listeners::run() {
  std::vector<std::thread> conversations;
  while (!stopping_) {
    std::vector<pollfd> waiting;
    for (const Listener& listener : listeners_)
      waiting.push_back({listener.descriptor(), POLLIN, 0});
    ::poll(waiting.data(), static_cast<nfds_t>(waiting.size()), kBetweenLooks / 1ms);
    for (Listener& listener : listeners_) {
      transport::tcp::Accepted accepted = listener.accept();
      if (!accepted.socket || conversations.size() == kMostConversations) continue;
      conversations.push_back(start_thread(
          "mccl-answer",
          [this, stream = std::make_shared<Stream>(std::move(accepted.socket), kPatience)] {
            answer(std::move(*stream));
          }));
    }
  }
  for (std::thread& conversation : conversations) conversation.join();
}

void Listeners::answer(Stream stream) const {
  const auto line = stream.read_line();
  if (!line || !line->starts_with(key_ + " ")) return;
  const std::string purpose = line->substr(key_.size() + 1);
  if (!stream.write("ok\n", 3)) return;
  std::vector<char> bytes(std::size_t{1} << 18);
  std::size_t counted = 0;
  while (const std::size_t n = stream.read(bytes.data(), bytes.size())) {
    counted += n;
    if (purpose == kEcho && !stream.write(bytes.data(), n)) return;
  }
  const std::string number = fmt::format("{}\n", counted);
  if (purpose == kCount) stream.write(number.data(), number.size());
}

}  // namespace mccl::cli::probe
