#include "rendezvous/store/store_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/thread.h"
#include "mccl/error.h"

namespace mccl::rendezvous {

namespace {

using namespace std::chrono_literals;
using transport::tcp::Listener;

/// Size of the buffer that each client has for a request or an answer. Larger ones also use an
/// allowance of kSharedBytes, which all clients share, and wait while it is used up.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;
constexpr std::size_t kSharedBytes = std::size_t{32} << 20;
/// Burst and average rate of accepted connections. All ranks of a large job may start at the same
/// time.
constexpr AdmissionRate kAdmission = {4096, 1000};
constexpr Clock::duration kPauseForRoom = 100ms;

/// Throws InvalidArgument for keys that only rank 0 may write.
void check_writer(const std::string& key) {
  if (key.find(kServersOwn) == key.npos) return;
  throw InvalidArgument(fmt::format("only rank 0 may write the store key \"{}\"", key));
}

Party party_of(const StoreAccess& access) {
  Party self = {
      .job_key = access.job_key, .keyless = access.keyless, .encryption = access.encryption};
  if (!access.job_key.empty() || access.keyless == Keyless::anyone) return self;
  const std::vector<std::string> folders = private_folders();
  self.key_file = std::make_shared<const KeyFile>(folders);
  self.key_file->require(folders);
  return self;
}

}  // namespace

StoreServer::StoreServer(MemoryStore& table, std::vector<Listener> listeners,
                         const StoreAccess& access, const Log& log,
                         std::function<void()> on_refused, const StoreLimits& limits)
    : table_(table),
      limits_(limits),
      acceptor_(std::move(listeners), party_of(access), log, std::move(on_refused),
                " (at the store)"),
      shared_(kSharedBytes) {
  acceptor_.limit(kAdmission, Clock::now());
  thread_ = start_thread("mccl store", [this] { run(); });
}

StoreServer::~StoreServer() {
  stop_ = true;
  wake();
  thread_.join();
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
  acceptor_.close();
}

void StoreServer::sleep() {
  std::vector<pollfd> entries = {{wake_.descriptor(), POLLIN, 0}};
  acceptor_.watch(entries);
  Clock::time_point deadline = acceptor_.next_deadline();
  for (const Client& client : clients_) {
    const pollfd entry = client.stream.watched(client.input.size() < client.input_limit);
    if (entry.events != 0) entries.push_back(entry);
    if (client.stream.has_input() && client.input.size() < client.input_limit)
      deadline = Clock::now();
    if (client.in_transfer()) deadline = std::min(deadline, client.deadline);
    if (client.wait) deadline = std::min(deadline, client.wait->deadline);
  }
  (void)::poll(entries.data(), static_cast<nfds_t>(entries.size()), milliseconds_until(deadline));
  wake_.drain();
}

void StoreServer::admit(Clock::time_point now) {
  std::vector<Newcomer> newcomers;
  acceptor_.advance(now, newcomers);
  for (Newcomer& newcomer : newcomers) {
    if (!newcomer.socket) {
      acceptor_.refuse(newcomer, LogLevel::info, newcomer.reason, now);
    } else if (newcomer.key.purpose != transport::Purpose::store) {
      acceptor_.refuse(newcomer, LogLevel::warn,
                       fmt::format("rank {} looks for a peer where rank 0 serves the store; give "
                                   "every rank the same MCCL_ROOT",
                                   newcomer.peer),
                       now);
    } else if (clients_.size() >= limits_.clients) {
      acceptor_.refuse(newcomer, LogLevel::info,
                       "too many other clients are connected to the store", now);
    } else {
      clients_.emplace_back(newcomer.peer, std::move(newcomer.socket));
    }
  }
}

bool StoreServer::serve(Client& client, Clock::time_point now) {
  if (!client.in_transfer()) client.deadline = now + limits_.transfer;
  if (!receive(client) || !answer_next(client, now) || !client.stream.flush()) return false;
  if (!client.stream.has_output()) client.large_output.give_back();
  return !client.in_transfer() || now < client.deadline;
}

bool StoreServer::receive(Client& client) {
  while (make_room_for_input(client)) {
    if (!client.stream.receive(client.input, client.input_limit)) return false;
    if (client.input.size() < client.input_limit) return true;
  }
  return true;
}

/// Returns true if more of a request may be read. Once its header has shown that a request is
/// large, the request needs a part of the shared allowance.
bool StoreServer::make_room_for_input(Client& client) {
  client.input_limit = kSmallBytes + client.large_input.bytes();
  if (client.input.size() < client.input_limit) return true;
  if (client.large_input.bytes() > 0) return false;
  const auto header = decode_store_header(client.input);
  // answer_next() removes a client whose header is invalid.
  if (!header || header->total_bytes() <= kSmallBytes) return false;
  if (!client.large_input.take(shared_, header->total_bytes() - kSmallBytes)) return false;
  client.input_limit = header->total_bytes();
  client.input.reserve(client.input_limit);
  return true;
}

bool StoreServer::answer_next(Client& client, Clock::time_point now) {
  if (client.wait || client.stream.has_output() || client.input.size() < kStoreHeaderBytes)
    return true;
  const std::span<const std::byte> input = client.input;
  const auto header = decode_store_header(input);
  if (!header || header->is_answer()) return false;
  const std::size_t total = header->total_bytes();
  if (input.size() < total) return true;
  const std::string key(text_of(input.subspan(kStoreHeaderBytes, header->key_bytes)));
  const std::string value(
      text_of(input.subspan(kStoreHeaderBytes + header->key_bytes, header->value_bytes)));
  client.input.erase(client.input.begin(),
                     client.input.begin() + static_cast<std::ptrdiff_t>(total));
  client.input.shrink_to_fit();
  client.large_input.give_back();
  perform(client, *header, key, value, now);
  return true;
}

void StoreServer::perform(Client& client, const StoreHeader& header, const std::string& key,
                          std::string_view value, Clock::time_point now) {
  note(client, key);
  try {
    if (header.kind == StoreKind::get) {
      const auto wait = std::clamp(std::chrono::milliseconds(header.number), 0ms, kLongestWait);
      client.wait = Wait{key, now + wait};
      return look_again(client, now);
    }
    check_writer(key);
    if (header.kind == StoreKind::leave) {
      client.has_left = true;
      return;
    }
    std::int64_t sum = 0;
    if (header.kind == StoreKind::set) {
      table_.set(key, value);
    } else {
      sum = table_.add(key, header.number);
    }
    client.stream.queue(encode(StoreKind::ok, {}, {}, sum));
  } catch (const InvalidArgument& error) {
    client.stream.queue(encode(StoreKind::invalid, {}, error.what(), 0));
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
  if (client.has_left || !client.has_asked) return;
  if (client.input.size() >= kStoreHeaderBytes) {
    // Its `leave` may have arrived together with the end of the connection.
    const auto last = decode_store_header(client.input);
    if (last && last->kind == StoreKind::leave) return;
  }
  const bool lives = std::ranges::any_of(clients_, [&](const Client& other) {
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
    client.stream.queue(encode(StoreKind::ok, {}, *value, 0));
  } else if (now >= client.wait->deadline) {
    client.stream.queue(encode(StoreKind::missing, {}, {}, 0));
  } else {
    return;
  }
  client.wait.reset();
}

}  // namespace mccl::rendezvous
