#include "cli/probe/listeners.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/no_signal.h"
#include "base/thread.h"
#include "cluster/text.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kToProve = 5s;
constexpr auto kForConversation = 5s;
constexpr auto kBetweenLooksAtListeners = 100ms;
constexpr std::size_t kLongestIntroduction = 200;
/// Maximum number of conversations. It suffices, because each host takes part in one measurement at
/// a time.
constexpr std::size_t kMostConversations = 64;

bool is_purpose(std::string_view text) { return text == kHello || text == kEcho || text == kCount; }

/// Sends a line without blocking. The line fits into the empty buffer of a new socket.
bool send_line(const Socket& socket, const std::string& line) {
  return ::send(socket.descriptor(), line.data(), line.size(), kNoSignal | MSG_DONTWAIT) ==
         static_cast<ssize_t>(line.size());
}

}  // namespace

Listeners::Listeners(const Secret& secret, std::vector<transport::tcp::Listener> listeners)
    : secret_(secret), listeners_(std::move(listeners)) {
  thread_ = start_thread("mccl-listen", [this] { run(); });
}

Listeners::~Listeners() {
  stopping_ = true;
  thread_.join();
  for (Conversation& each : conversations_) each.stream->shut();
  for (Conversation& each : conversations_) each.thread.join();
}

std::vector<std::uint16_t> Listeners::ports() const {
  std::vector<std::uint16_t> ports;
  for (const transport::tcp::Listener& listener : listeners_)
    ports.push_back(listener.address().port());
  return ports;
}

void Listeners::run() {
  while (!stopping_) {
    std::vector<pollfd> waiting;
    for (const transport::tcp::Listener& listener : listeners_)
      waiting.push_back({listener.descriptor(), POLLIN, 0});
    for (const Stranger& stranger : strangers_)
      waiting.push_back({stranger.socket.descriptor(), POLLIN, 0});
    ::poll(waiting.data(), static_cast<nfds_t>(waiting.size()), kBetweenLooksAtListeners / 1ms);
    std::size_t place = listeners_.size();
    for (auto stranger = strangers_.begin(); stranger != strangers_.end(); ++place) {
      const bool stays =
          Clock::now() < stranger->limit && (waiting[place].revents == 0 || hear(*stranger));
      stranger = stays ? std::next(stranger) : strangers_.erase(stranger);
    }
    for (transport::tcp::Listener& listener : listeners_) accept(listener);
    forget_ended();
  }
}

void Listeners::accept(transport::tcp::Listener& listener) {
  transport::tcp::Accepted accepted = listener.accept();
  if (accepted.error != 0 && !strangers_.empty()) strangers_.pop_front();
  if (!accepted.socket) return;
  const std::string address = accepted.from.host();
  const auto is_of_address = [&](const Stranger& each) { return each.address == address; };
  const auto of_address =
      static_cast<std::size_t>(std::ranges::count_if(strangers_, is_of_address));
  if (of_address >= kMostOfAddress) {
    strangers_.erase(std::ranges::find_if(strangers_, is_of_address));
  } else if (strangers_.size() >= kMostUnproved) {
    strangers_.pop_front();
  }
  std::string nonce = make_nonce();
  if (!send_line(accepted.socket, fmt::format("mccl {}\n", nonce))) return;
  strangers_.push_back(
      {std::move(accepted.socket), address, std::move(nonce), "", Clock::now() + kToProve});
}

bool Listeners::hear(Stranger& stranger) {
  std::array<char, kLongestIntroduction> bytes;
  const ssize_t n = ::recv(stranger.socket.descriptor(), bytes.data(),
                           bytes.size() - stranger.said.size(), MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  stranger.said.append(bytes.data(), static_cast<std::size_t>(n));
  const std::size_t end = stranger.said.find('\n');
  if (end == std::string::npos) return stranger.said.size() < kLongestIntroduction;
  const auto words = cluster::words_of(std::string_view(stranger.said).substr(0, end));
  // A probe sends nothing more before it has the answer.
  if (end + 1 != stranger.said.size() || words.size() != 3 || !is_purpose(words[1])) return false;
  if (!secret_.is_proof(words[2], "dials", {stranger.nonce, words[0], words[1]})) return false;
  const std::string proof = secret_.prove("answers", {stranger.nonce, words[0], words[1]});
  if (send_line(stranger.socket, fmt::format("ok {}\n", proof)) && words[1] != kHello)
    converse(stranger, std::string(words[0]), std::string(words[1]));
  return false;
}

void Listeners::converse(Stranger& stranger, const std::string& nonce, const std::string& purpose) {
  if (conversations_.size() == kMostConversations) return;
  Conversation& conversation = conversations_.emplace_back();
  conversation.stream = std::make_unique<Stream>(std::move(stranger.socket), kForConversation);
  conversation.thread = start_thread("mccl-answer", [this, &conversation, nonce, purpose] {
    hold(*conversation.stream, nonce, purpose);
    conversation.over = true;
  });
}

void Listeners::hold(Stream& stream, const std::string& nonce, const std::string& purpose) const {
  std::vector<char> bytes(std::size_t{1} << 18);
  std::size_t counted = 0;
  while (const std::size_t n = stream.read(bytes.data(), bytes.size())) {
    counted += n;
    if (purpose == kEcho && !stream.write(bytes.data(), n)) return;
  }
  if (purpose != kCount) return;
  const std::string number = std::to_string(counted);
  const std::string line = fmt::format("{} {}\n", number, secret_.prove("counts", {nonce, number}));
  stream.write(line.data(), line.size());
}

void Listeners::forget_ended() {
  std::erase_if(conversations_, [](Conversation& each) {
    const bool over = each.over;
    if (over) each.thread.join();
    return over;
  });
}

}  // namespace mccl::cli::probe
