#include "engine/status_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/no_signal.h"
#include "base/rank_path.h"
#include "base/replace_file.h"
#include "base/thread.h"
#include "engine/calls/membership.h"
#include "engine/record_signal.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

constexpr int kBacklog = 16;
/// Time that a client may take to send its request, or to read the answer.
constexpr std::chrono::seconds kPatience{2};
/// Pause after a client could not be accepted or answered, in milliseconds.
constexpr int kAfterError = 100;

/// Sends the whole text. Throws Error if the connection fails or this takes longer than kPatience.
void send_all(int socket, std::string_view text) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  while (!text.empty()) {
    const ssize_t sent = ::send(socket, text.data(), text.size(), kNoSignal);
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      throw Error(fmt::format("cannot send the answer: {}", std::strerror(errno)));
    pollfd ready = {socket, POLLOUT, 0};
    ::poll(&ready, 1, milliseconds_until(deadline));
    if (Clock::now() >= deadline) throw Error("the process does not read the answer");
  }
}

}  // namespace

StatusServer::StatusServer(const Config& config, const FlightRecorder& recorder, const Log& log,
                           Sources sources)
    : setting_(config.flight_recorder_file),
      recorder_(recorder),
      log_(log),
      sources_(std::move(sources)) {
  try {
    listen();
  } catch (const std::exception& error) {
    log_.info("mccl status and mccl dump cannot attach to this rank: {}", error.what());
  }
  const std::string& signal = config.flight_recorder_signal;
  if (signal != "none" && !setting_.empty()) {
    by_signal_ = on_record_signal(signal, signalled_, wake_pipe_.writing_end());
    if (!by_signal_) {
      log_.warn(
          "MCCL_FLIGHT_RECORDER_SIGNAL has no effect: the program handles or ignores SIG{}; choose "
          "the other of USR1 and USR2, or use `mccl dump {}`",
          signal, ::getpid());
    }
  }
  try {
    thread_ = start_thread("mccl status", [this] { run(); });
  } catch (const Error& error) {
    listener_.reset();
    log_.warn("no flight record will be written, and mccl status cannot attach to this rank: {}",
              error.what());
  }
}

/// The name of the socket is unique among the living contexts of the user. So an existing file of
/// this name was left by a process that was killed.
void StatusServer::listen() {
  const std::string folder = node::make_status_folder();
  const FlightOrigin& origin = recorder_.origin();
  const std::string path = fmt::format("{}/{}-{}-{:08x}", folder, ::getpid(), origin.rank,
                                       static_cast<std::uint32_t>(group_id(origin.job)));
  ::unlink(path.c_str());
  listener_.emplace(path, kBacklog);
}

void StatusServer::write_record() noexcept {
  if (setting_.empty()) return;
  has_failed_.store(true);
  wake_pipe_.wake();
}

void StatusServer::stop() noexcept {
  by_signal_.reset();
  if (!thread_.joinable()) return;
  stopping_.store(true);
  wake_pipe_.wake();
  thread_.join();
  listener_.reset();
}

void StatusServer::abandon() noexcept {
  if (listener_) listener_->abandon();
  wake_pipe_.abandon();
}

void StatusServer::run() {
  std::array<pollfd, 2> watched = {{{wake_pipe_.descriptor(), POLLIN, 0},
                                    {listener_ ? listener_->descriptor() : -1, POLLIN, 0}}};
  while (!stopping_.load()) {
    for (pollfd& each : watched) each.revents = 0;
    ::poll(watched.data(), watched.size(), -1);
    wake_pipe_.drain();
    if (signalled_.exchange(false)) write_file("signal");
    if (watched[1].revents != 0) answer();
    if (has_failed_.exchange(false)) write_file("failure");
  }
  if (has_failed_.exchange(false)) write_file("failure");
}

/// Accepts one client and answers its request. An error ends only the connection of this client.
void StatusServer::answer() {
  try {
    const node::LocalConnection client = listener_->accept(Clock::now() + kPatience);
    if (!client.same_user()) return;
    // A child of a fork may hold a copy of the descriptor, which would keep the connection open.
    // The connection is therefore shut down explicitly.
    const std::unique_ptr<const node::LocalConnection, void (*)(const node::LocalConnection*)> end(
        &client,
        [](const node::LocalConnection* each) { ::shutdown(each->descriptor(), SHUT_RDWR); });
    std::array<char, node::kRequestBytes> request = {};
    static_cast<void>(
        client.receive(std::as_writable_bytes(std::span(request)), Clock::now() + kPatience));
    const std::string_view asked(request.data(), request.size());
    if (asked == node::kRequestRecord)
      return send_all(client.descriptor(), recorder_.to_json("asked"));
    if (asked == node::kRequestStatus && sources_.status)
      return send_all(client.descriptor(), sources_.status());
    if (asked == node::kRequestOthers && sources_.others)
      return send_all(client.descriptor(), sources_.others());
    send_all(client.descriptor(),
             R"({"error": "this rank uses another version of MCCL than the program mccl"})");
  } catch (const std::exception& error) {
    log_.debug("a process that asked for the status of this rank got no answer: {}", error.what());
    // If no descriptor is left for the connection, it stays in the queue, and run() would try again
    // at once. So this thread pauses.
    pollfd wake = {wake_pipe_.descriptor(), POLLIN, 0};
    ::poll(&wake, 1, kAfterError);
  }
}

void StatusServer::write_file(std::string_view reason) {
  try {
    const std::string path =
        path_of_rank(setting_, recorder_.origin().rank, recorder_.origin().host, ".json");
    try {
      replace_file(path, recorder_.to_json(reason), S_IRUSR | S_IWUSR);
      log_.warn("the flight record is in {}", path);
    } catch (const Error& error) {
      log_.warn("the flight record of this rank is not written: {}", error.what());
    }
  } catch (const std::exception&) {
    // There is no memory for the record.
  }
}

}  // namespace mccl::engine
