#include "rendezvous/store_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/no_signal.h"
#include "base/thread.h"
#include "base/would_block.h"
#include "mccl/error.h"
#include "rendezvous/waiting.h"

namespace mccl::rendezvous {

namespace {

using namespace std::chrono_literals;
using transport::tcp::Accepted;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr std::size_t kMaxUnproven = 256;
/// Maximum number of clients: several for each rank of a large job.
constexpr std::size_t kMaxClients = std::size_t{1} << 14;
/// Size of the buffer that each client has for a request or an answer. Larger ones also use an
/// allowance of kSharedBytes, which all clients share, and wait while it is used up.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;
constexpr std::size_t kSharedBytes = std::size_t{32} << 20;
/// Burst and average rate of accepted connections. All ranks of a large job may start at the same
/// time.
constexpr AdmissionRate kAdmission = {4096, 1000};
constexpr Clock::duration kProofLimit = 5s;
/// Time limit for a client to send the rest of a request, or to receive an answer.
constexpr Clock::duration kTransferLimit = 30s;
constexpr Clock::duration kPauseForRoom = 100ms;

/// Throws InvalidArgument for keys that only rank 0 may write.
void check_writer(const std::string& key) {
  if (key.find(kServersOwn) == key.npos) return;
  throw InvalidArgument(fmt::format("only rank 0 may write the store key \"{}\"", key));
}

}  // namespace

StoreServer::StoreServer(MemoryStore& table, std::vector<Listener> listeners, std::string job_key,
                         const Log& log, std::function<void()> on_refused)
    : table_(table),
      listeners_(std::move(listeners)),
      job_key_(std::move(job_key)),
      turnstile_(log, std::move(on_refused)),
      shared_(kSharedBytes) {
  turnstile_.limit(kAdmission, Clock::now());
  int ends[2];
  if (::pipe(ends) != 0) {
    throw Error(
        fmt::format("the store cannot make a pipe: {}", transport::tcp::describe_errno(errno)));
  }
  wake_reader_ = Socket(ends[0]);
  wake_writer_ = Socket(ends[1]);
  make_non_blocking(wake_reader_);
  make_non_blocking(wake_writer_);
  thread_ = start_thread("mccl store", [this] { run(); });
}

StoreServer::~StoreServer() {
  stop_ = true;
  wake();
  thread_.join();
}

void StoreServer::wake() {
  // A full pipe also wakes the thread.
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_writer_.descriptor(), &byte, 1);
}

void StoreServer::run() {
  while (!stop_) {
    const Clock::time_point now = Clock::now();
    admit(now);
    for (auto client = clients_.begin(); client != clients_.end();) {
      const bool stays = serve(*client, now);
      if (!stays) count_death(*client);
      client = stays ? std::next(client) : clients_.erase(client);
    }
    // A value that one client has set may be awaited by a client that was served earlier in this
    // pass.
    for (Client& client : clients_) look_again(client, now);
    // If memory was given back, a client may be waiting for it, so serve all clients again
    // immediately.
    if (!shared_.was_given_back()) sleep();
  }
  clients_.clear();
  listeners_.clear();
}

void StoreServer::sleep() {
  std::vector<pollfd> entries = {{wake_reader_.descriptor(), POLLIN, 0}};
  Clock::time_point deadline = turnstile_.opens_at();
  if (deadline == Clock::time_point::max()) {
    for (const Listener& listener : listeners_)
      entries.push_back({listener.descriptor(), POLLIN, 0});
  }
  for (const Client& client : clients_) {
    if (client.conversation) {
      entries.push_back({client.conversation->descriptor(), client.conversation->events(), 0});
      deadline = std::min(deadline, client.deadline);
      continue;
    }
    int events = client.input.size() < client.input_limit ? POLLIN : 0;
    if (!client.output.empty()) events |= POLLOUT;
    if (events != 0) entries.push_back({client.socket.descriptor(), static_cast<short>(events), 0});
    if (client.in_transfer()) deadline = std::min(deadline, client.deadline);
    if (client.wait) deadline = std::min(deadline, client.wait->deadline);
  }
  (void)::poll(entries.data(), static_cast<nfds_t>(entries.size()), milliseconds_until(deadline));
  std::array<char, 256> drained;
  while (::read(wake_reader_.descriptor(), drained.data(), drained.size()) > 0) {
  }
}

void StoreServer::admit(Clock::time_point now) {
  for (Listener& listener : listeners_) {
    while (turnstile_.open(now)) {
      Accepted accepted = listener.accept();
      turnstile_.accept_gave(accepted.error, now);
      if (!accepted.socket) break;
      turnstile_.admitted();
      make_room(now);
      clients_.emplace_back(
          Conversation(std::move(accepted.socket), Handshake::acceptor({0, 0, job_key_, {}})),
          accepted.from, now + kProofLimit);
    }
  }
}

/// Makes room for one more client. If there are too many unproven clients, closes the oldest of
/// them; else, if there are too many clients in total, closes the newest.
void StoreServer::make_room(Clock::time_point now) {
  const auto unproven = std::count_if(clients_.begin(), clients_.end(),
                                      [](const Client& client) { return client.unproven(); });
  auto leaving = clients_.end();
  if (static_cast<std::size_t>(unproven) >= kMaxUnproven) {
    leaving = std::find_if(clients_.begin(), clients_.end(),
                           [](const Client& client) { return client.unproven(); });
  } else if (clients_.size() >= kMaxClients) {
    leaving = std::prev(clients_.end());
  }
  if (leaving == clients_.end()) return;
  turnstile_.turned_away(LogLevel::info, leaving->from.text(),
                         "too many other clients are connected to the store", now);
  clients_.erase(leaving);
}

bool StoreServer::serve(Client& client, Clock::time_point now) {
  try {
    if (client.conversation && !prove(client, now)) return false;
    if (client.conversation) return true;
    if (!client.in_transfer()) client.deadline = now + kTransferLimit;
    return receive(client) && answer_next(client, now) && flush(client) &&
           (!client.in_transfer() || now < client.deadline);
  } catch (const Error&) {
    // Without randomness or HMAC no client can be proven. The client sees its connection close.
    return false;
  }
}

bool StoreServer::prove(Client& client, Clock::time_point now) {
  const Handshake& handshake = client.conversation->handshake();
  const auto turn_away = [&](LogLevel level, const std::string& why) {
    turnstile_.turned_away(level, client.from.text(), why + " (at the store)", now);
    return false;
  };
  switch (client.conversation->advance()) {
    case Conversation::State::waiting:
      return now < client.deadline || turn_away(LogLevel::info, "it did not authenticate in time");
    case Conversation::State::done:
      if (handshake.key().purpose != transport::Purpose::store) {
        return turn_away(LogLevel::warn,
                         fmt::format("rank {} looks for a peer where rank 0 serves the store; give "
                                     "every rank the same MCCL_ROOT",
                                     handshake.peer()));
      }
      client.rank = handshake.peer();
      client.socket = client.conversation->take_socket();
      client.conversation.reset();
      return true;
    case Conversation::State::refused:
    case Conversation::State::broken:
      break;
  }
  return turn_away(level_of(handshake.refusal()), client.conversation->trouble());
}

bool StoreServer::receive(Client& client) {
  std::array<std::byte, 16384> buffer;
  while (make_room_for_input(client)) {
    const std::size_t limit = std::min(buffer.size(), client.input_limit - client.input.size());
    const ssize_t got = ::recv(client.socket.descriptor(), buffer.data(), limit, 0);
    if (got <= 0) return got < 0 && would_block(errno);
    append(client.input, std::span(buffer).first(static_cast<std::size_t>(got)));
  }
  return true;
}

/// Returns true if more of a request may be read. Once its header has shown that a request is
/// large, the request needs a part of the shared allowance.
bool StoreServer::make_room_for_input(Client& client) {
  client.input_limit = kSmallBytes + client.large_input.bytes();
  if (client.input.size() < client.input_limit) return true;
  if (client.large_input.bytes() > 0) return false;
  const auto header = decode_request(std::span(client.input).first(kRequestHeaderBytes));
  // answer_next() removes a client whose header is invalid.
  if (!header || header->total_bytes() <= kSmallBytes) return false;
  if (!client.large_input.take(shared_, header->total_bytes() - kSmallBytes)) return false;
  client.input_limit = header->total_bytes();
  client.input.reserve(client.input_limit);
  return true;
}

bool StoreServer::flush(Client& client) {
  while (client.sent < client.output.size()) {
    const ssize_t sent = ::send(client.socket.descriptor(), client.output.data() + client.sent,
                                client.output.size() - client.sent, kNoSignal);
    if (sent < 0) {
      const int error = errno;
      nap_if_memory_is_short(error);
      return would_block(error);
    }
    client.sent += static_cast<std::size_t>(sent);
  }
  client.output = {};
  client.sent = 0;
  client.large_output.give_back();
  return true;
}

bool StoreServer::answer_next(Client& client, Clock::time_point now) {
  if (client.wait || !client.output.empty() || client.input.size() < kRequestHeaderBytes)
    return true;
  const std::span<const std::byte> input = client.input;
  const auto header = decode_request(input.first(kRequestHeaderBytes));
  if (!header) return false;
  const std::size_t total = header->total_bytes();
  if (input.size() < total) return true;
  const std::string key(text_of(input.subspan(kRequestHeaderBytes, header->key_bytes)));
  const std::string value(
      text_of(input.subspan(kRequestHeaderBytes + header->key_bytes, header->value_bytes)));
  client.input.erase(client.input.begin(),
                     client.input.begin() + static_cast<std::ptrdiff_t>(total));
  client.input.shrink_to_fit();
  client.large_input.give_back();
  perform(client, header->call, key, value, header->number, now);
  return true;
}

void StoreServer::perform(Client& client, StoreCall call, const std::string& key,
                          std::string_view value, std::int64_t number, Clock::time_point now) {
  note(client, key);
  try {
    if (call != StoreCall::get) check_writer(key);
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

/// Records the run of the job that the client's requests belong to. All connections of the rank get
/// it, because count_death() reports the run of the connection that ends last.
void StoreServer::note(Client& client, const std::string& key) {
  client.has_asked = true;
  const std::string_view start = start_in(key);
  if (start.empty() || client.start == start) return;
  for (Client& each : clients_) {
    if (each.rank == client.rank) each.start = start;
  }
}

void StoreServer::count_death(const Client& client) {
  // A client that has sent no request gave up before it learned that it was proven, and dials
  // again.
  if (client.rank < 0 || client.has_left || !client.has_asked) return;
  if (client.input.size() >= kRequestHeaderBytes) {
    // Its `leave` may have arrived together with the end of the connection.
    const auto last = decode_request(std::span(client.input).first(kRequestHeaderBytes));
    if (last && last->call == StoreCall::leave) return;
  }
  const bool lives = std::any_of(clients_.begin(), clients_.end(), [&](const Client& other) {
    return &other != &client && other.rank == client.rank;
  });
  if (lives) return;
  const std::int64_t number = table_.add(kDeaths, 1);
  table_.set(kDeath + std::to_string(number), fmt::format("{} {}", client.rank, client.start));
}

void StoreServer::look_again(Client& client, Clock::time_point now) {
  if (!client.wait) return;
  if (const auto value = table_.find(client.wait->key)) {
    if (value->size() > kSmallBytes && !client.large_output.take(shared_, value->size())) {
      client.wait->deadline = std::max(client.wait->deadline, now + kPauseForRoom);
      return;
    }
    client.output = encode_answer(StoreAnswer::ok, *value, 0);
  } else if (now >= client.wait->deadline) {
    client.output = encode_answer(StoreAnswer::missing, {}, 0);
  } else {
    return;
  }
  client.wait.reset();
}

}  // namespace mccl::rendezvous
