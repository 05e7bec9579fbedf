#include "rendezvous/store_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "mccl/error.h"
#include "rendezvous/waiting.h"

namespace mccl::rendezvous {

namespace {

using namespace std::chrono_literals;
using transport::tcp::Accepted;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr std::size_t kMaxUnproven = 256;
constexpr Clock::duration kProofLimit = 5s;
constexpr Clock::duration kPause = 100ms;
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// Signals are for the program's own threads: this one is started with all of them blocked.
template <typename Function>
std::thread start_without_signals(Function function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(function));
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

StoreServer::StoreServer(MemoryStore& table, std::vector<Listener> listeners, std::string job_key)
    : table_(table), listeners_(std::move(listeners)), job_key_(std::move(job_key)) {
  int ends[2];
  if (::pipe(ends) != 0) {
    throw Error(
        fmt::format("the store cannot make a pipe: {}", transport::tcp::describe_errno(errno)));
  }
  wake_reader_ = Socket(ends[0]);
  wake_writer_ = Socket(ends[1]);
  make_non_blocking(wake_reader_);
  make_non_blocking(wake_writer_);
  thread_ = start_without_signals([this] { run(); });
}

StoreServer::~StoreServer() {
  stop_ = true;
  wake();
  thread_.join();
}

void StoreServer::wake() {
  // A full pipe wakes the thread just as well.
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_writer_.descriptor(), &byte, 1);
}

void StoreServer::run() {
  while (!stop_) {
    const Clock::time_point now = Clock::now();
    if (now >= paused_until_) admit(now);
    for (auto client = clients_.begin(); client != clients_.end();) {
      const bool stays = serve(*client, now);
      if (!stays) count_death(*client);
      client = stays ? std::next(client) : clients_.erase(client);
    }
    // A value that one client set may be what another, served before it, waits for.
    for (Client& client : clients_) look_again(client, now);
    sleep();
  }
  clients_.clear();
  listeners_.clear();
}

void StoreServer::sleep() {
  std::vector<pollfd> entries = {{wake_reader_.descriptor(), POLLIN, 0}};
  const bool paused = Clock::now() < paused_until_;
  Clock::time_point deadline = paused ? paused_until_ : Clock::time_point::max();
  if (!paused) {
    for (const Listener& listener : listeners_)
      entries.push_back({listener.descriptor(), POLLIN, 0});
  }
  for (const Client& client : clients_) {
    if (client.conversation) {
      entries.push_back({client.conversation->descriptor(), client.conversation->events(), 0});
      deadline = std::min(deadline, client.deadline);
      continue;
    }
    int events = client.input.size() < kMaxRequestBytes ? POLLIN : 0;
    if (!client.output.empty()) events |= POLLOUT;
    entries.push_back({client.socket.descriptor(), static_cast<short>(events), 0});
    if (client.wait) deadline = std::min(deadline, client.wait->deadline);
  }
  (void)::poll(entries.data(), static_cast<nfds_t>(entries.size()), milliseconds_until(deadline));
  std::array<char, 256> drained;
  while (::read(wake_reader_.descriptor(), drained.data(), drained.size()) > 0) {
  }
}

void StoreServer::admit(Clock::time_point now) {
  for (Listener& listener : listeners_) {
    for (;;) {
      Accepted accepted = listener.accept();
      if (accepted.error != 0) paused_until_ = now + kPause;
      if (!accepted.socket) break;
      const auto unproven = [](const Client& client) { return client.conversation.has_value(); };
      const auto count = std::count_if(clients_.begin(), clients_.end(), unproven);
      if (static_cast<std::size_t>(count) >= kMaxUnproven)
        clients_.erase(std::find_if(clients_.begin(), clients_.end(), unproven));
      clients_.emplace_back(
          Conversation(std::move(accepted.socket), Handshake::acceptor({0, 0, job_key_, {}})),
          now + kProofLimit);
    }
  }
}

bool StoreServer::serve(Client& client, Clock::time_point now) {
  try {
    if (client.conversation && !prove(client, now)) return false;
    if (client.conversation) return true;
    return receive(client) && answer_next(client, now) && flush(client);
  } catch (const Error&) {
    // Without randomness or HMAC nobody can be proven; the client sees its connection close.
    return false;
  }
}

bool StoreServer::prove(Client& client, Clock::time_point now) {
  switch (client.conversation->advance()) {
    case Conversation::State::waiting:
      return now < client.deadline;
    case Conversation::State::done:
      if (client.conversation->handshake().key().purpose != Purpose::store) return false;
      client.rank = client.conversation->handshake().peer();
      client.socket = client.conversation->take_socket();
      client.conversation.reset();
      return true;
    case Conversation::State::refused:
    case Conversation::State::broken:
      break;
  }
  return false;
}

bool StoreServer::receive(Client& client) {
  std::array<std::byte, 16384> buffer;
  while (client.input.size() < kMaxRequestBytes) {
    const std::size_t limit = std::min(buffer.size(), kMaxRequestBytes - client.input.size());
    const ssize_t got = ::recv(client.socket.descriptor(), buffer.data(), limit, 0);
    if (got <= 0) return got < 0 && would_block(errno);
    append(client.input, std::span(buffer).first(static_cast<std::size_t>(got)));
  }
  return true;
}

bool StoreServer::flush(Client& client) {
  while (client.sent < client.output.size()) {
    const ssize_t sent = ::send(client.socket.descriptor(), client.output.data() + client.sent,
                                client.output.size() - client.sent, kSendFlags);
    if (sent < 0) return would_block(errno);
    client.sent += static_cast<std::size_t>(sent);
  }
  client.output.clear();
  client.sent = 0;
  return true;
}

bool StoreServer::answer_next(Client& client, Clock::time_point now) {
  if (client.wait || !client.output.empty() || client.input.size() < kRequestHeaderBytes)
    return true;
  const std::span<const std::byte> input = client.input;
  const auto header = decode_request(input.first(kRequestHeaderBytes));
  if (!header) return false;
  const std::size_t total = kRequestHeaderBytes + header->key_bytes + header->value_bytes;
  if (input.size() < total) return true;
  const std::string key(text_of(input.subspan(kRequestHeaderBytes, header->key_bytes)));
  const std::string value(
      text_of(input.subspan(kRequestHeaderBytes + header->key_bytes, header->value_bytes)));
  client.input.erase(client.input.begin(),
                     client.input.begin() + static_cast<std::ptrdiff_t>(total));
  perform(client, header->call, key, value, header->number, now);
  return true;
}

void StoreServer::perform(Client& client, StoreCall call, const std::string& key,
                          std::string_view value, std::int64_t number, Clock::time_point now) {
  try {
    switch (call) {
      case StoreCall::set:
        table_.set(key, value);
        client.output = encode_answer(StoreAnswer::ok, {}, 0);
        return;
      case StoreCall::add:
        client.output = encode_answer(StoreAnswer::ok, {}, table_.add(key, number));
        return;
      case StoreCall::leave:
        client.has_left = true;
        return;
      case StoreCall::get:
        client.wait =
            Wait{key, now + std::clamp(std::chrono::milliseconds(number), 0ms, kLongestWait)};
        return look_again(client, now);
    }
  } catch (const InvalidArgument& error) {
    client.output = encode_answer(StoreAnswer::invalid, error.what(), 0);
  }
}

/// A rank whose last connection ends without a word has died; whoever waits for it looks here.
void StoreServer::count_death(const Client& client) {
  if (client.rank < 0 || client.has_left) return;
  if (client.input.size() >= kRequestHeaderBytes) {
    // Its word may have come together with the end.
    const auto last = decode_request(std::span(client.input).first(kRequestHeaderBytes));
    if (last && last->call == StoreCall::leave) return;
  }
  const bool lives = std::any_of(clients_.begin(), clients_.end(), [&](const Client& other) {
    return &other != &client && other.rank == client.rank;
  });
  if (lives) return;
  const std::int64_t number = table_.add(kDeaths, 1);
  table_.set(kDeath + std::to_string(number), std::to_string(client.rank));
}

void StoreServer::look_again(Client& client, Clock::time_point now) {
  if (!client.wait) return;
  if (const auto value = table_.find(client.wait->key)) {
    client.output = encode_answer(StoreAnswer::ok, *value, 0);
  } else if (now >= client.wait->deadline) {
    client.output = encode_answer(StoreAnswer::missing, {}, 0);
  } else {
    return;
  }
  client.wait.reset();
}

}  // namespace mccl::rendezvous
