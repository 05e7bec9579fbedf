#include "engine/metrics_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <span>
#include <utility>

#include "base/thread.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

using transport::tcp::Address;
using transport::tcp::Socket;

constexpr int kLastPort = 65535;
/// Time that a client may take to send its request and to read the answer.
constexpr std::chrono::seconds kScrapePatience{2};
/// Pause after a connection could not be accepted, in milliseconds.
constexpr int kPauseAfterError = 100;

Address address_of(const std::string& host, int port) {
  if (port > kLastPort)
    throw Error(fmt::format("the highest possible port is {}; choose a lower MCCL_METRICS_PORT",
                            kLastPort));
  const auto address = Address::parse_numeric(host, static_cast<std::uint16_t>(port));
  if (!address) throw Error(fmt::format("{} is not an IP address", host));
  return *address;
}

std::string response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}",
      status, type, body.size(), body);
}

}  // namespace

MetricsServer::MetricsServer(const std::string& address, int port, Read read)
    : read_(std::move(read)), listener_(address_of(address, port), 0) {
  thread_ = start_thread("mccl metrics", [this] { run(); });
}

MetricsServer::~MetricsServer() {
  stopping_.store(true);
  wake_pipe_.wake();
  thread_.join();
}

void MetricsServer::abandon() noexcept {
  listener_.close();
  wake_pipe_.abandon();
}

void MetricsServer::run() {
  std::array<pollfd, 2> watched = {
      {{wake_pipe_.descriptor(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}}};
  while (!stopping_.load()) {
    ::poll(watched.data(), watched.size(), -1);
    const transport::tcp::Accepted accepted = listener_.accept();
    try {
      if (accepted.socket) answer(accepted.socket);
    } catch (const std::exception&) {
      // There is no memory for the answer. The client sees that the connection ends.
    }
    // If no descriptor is left for the connection, poll(2) would report the waiting connection
    // again immediately. So this thread pauses.
    if (accepted.error != 0) ::poll(watched.data(), 1, kPauseAfterError);
  }
}

/// Reads one request and answers it. If the connection fails or the client is too slow, returns
/// without an answer, because only the client is affected.
void MetricsServer::answer(const Socket& client) {
  const Clock::time_point deadline = Clock::now() + kScrapePatience;
  MetricsRequest request;
  while (!request.is_over()) {
    std::array<std::byte, 1024> bytes;
    if (!wait(client, POLLIN, deadline)) return;
    const auto received = client.receive(bytes);
    if (received.bytes == 0) return;
    request.add(std::span(bytes).first(received.bytes));
  }
  const std::string text = response_to(request);
  std::span<const std::byte> rest = std::as_bytes(std::span(text));
  while (!rest.empty()) {
    if (!wait(client, POLLOUT, deadline)) return;
    const auto sent = client.send(rest);
    if (sent.bytes == 0) return;
    rest = rest.subspan(sent.bytes);
  }
  (void)client.end_sending();
}

/// Waits for `events` on the client's socket. Returns false if the deadline has passed, or if the
/// server ends.
bool MetricsServer::wait(const Socket& client, short events, Clock::time_point deadline) {
  std::array<pollfd, 2> watched = {
      {{wake_pipe_.descriptor(), POLLIN, 0}, {client.descriptor(), events, 0}}};
  ::poll(watched.data(), watched.size(), milliseconds_until(deadline));
  return !stopping_.load() && Clock::now() < deadline;
}

std::string MetricsServer::response_to(const MetricsRequest& request) {
  constexpr std::string_view kPlain = "text/plain";
  if (const auto refusal = request.refusal())
    return response(refusal->status, kPlain, refusal->reason);
  const std::optional<RankFigures> figures = read_();
  if (!figures) {
    return response("503 Service Unavailable", kPlain,
                    "a callback of the program blocks this rank; try again\n");
  }
  const bool open_metrics = request.accepts_open_metrics();
  return response(
      "200 OK",
      open_metrics ? "application/openmetrics-text; version=1.0.0" : "text/plain; version=0.0.4",
      page_.text(*figures, open_metrics));
}

}  // namespace mccl::engine
