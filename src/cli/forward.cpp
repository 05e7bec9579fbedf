// `mccl forward`: listens at a port of this host and forwards the connections of this user's
// processes to a local socket.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/no_signal.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/kit/process.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::forward {
namespace {

using namespace std::chrono_literals;
using transport::tcp::Address;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr const char* kFooter =
    R"(mccl launch starts this command; do not run it by hand. It prints one of these lines:
  mccl-forward direct ADDRESS   this address answers at the port; mccl forward ends
  mccl-forward listening PORT   no address answers; mccl forward forwards connections of this user
                                from this port of 127.0.0.1 to the socket, until its input ends)";
constexpr auto kForAnswer = 1500ms;

struct ForwardFlags {
  std::string socket;
  int port = 0;
  std::vector<std::string> addresses;
};
constexpr auto kBetweenTries = 200ms;
constexpr std::size_t kMostWaiting = std::size_t{256} << 10;
constexpr std::size_t kMostPairs = 8192;

/// Starts to connect; take_error() returns the outcome once the socket is writable. Returns an
/// empty socket if the attempt cannot start.
Socket dial(const std::string& address, std::uint16_t port) {
  try {
    const Address to = transport::tcp::resolve(address, port).front();
    Socket made = Socket::stream(to.family());
    const int error = transport::tcp::start_connect(made, to, nullptr);
    if (error == 0 || error == EINPROGRESS || error == ECONNREFUSED) return made;
  } catch (const Error&) {
    // The address does not resolve, or its family is not available on this host. Such an address
    // counts as not answering.
  }
  return {};
}

/// Listens at the port `wanted` of 127.0.0.1, or at any free port if that port is taken. Throws
/// Error if it cannot listen.
Listener listen_at(std::uint16_t wanted) {
  const Address here = *Address::parse_numeric("127.0.0.1", wanted);
  try {
    return Listener(here, 0);
  } catch (const transport::tcp::BindError&) {
    return Listener(here.with_port(0), 0);
  }
}

/// Sends as much of `waiting` as `to` accepts, and removes the sent bytes from `waiting`. Returns
/// false if the connection has failed.
bool send_from(std::string& waiting, int to) {
  if (waiting.empty()) return true;
  const ssize_t n = ::send(to, waiting.data(), waiting.size(), kNoSignal);
  if (n > 0) waiting.erase(0, static_cast<std::size_t>(n));
  return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/// Returns the user who owns a connection. Searches the kernel's table at `path` for the
/// connection's two addresses; returns nothing if the table does not contain them.
std::optional<uid_t> owner_of(const char* path, const std::string& local,
                              const std::string& remote) {
  std::ifstream table(path);
  for (std::string line; std::getline(table, line);) {
    std::array<char, 64> from = {};
    std::array<char, 64> to = {};
    unsigned uid = 0;
    if (std::sscanf(line.c_str(), " %*d: %63s %63s %*s %*s %*s %*s %u", from.data(), to.data(),
                    &uid) == 3 &&
        local == from.data() && remote == to.data())
      return static_cast<uid_t>(uid);
  }
  return {};
}

/// True if the process at `peer`, which has connected to 127.0.0.1:`port`, belongs to this user.
bool is_own(const Address& peer, std::uint16_t port) {
  // The kernel prints the four bytes of an address as one integer in the machine's byte order.
  const in_addr_t number = reinterpret_cast<const sockaddr_in*>(peer.data())->sin_addr.s_addr;
  const std::string there = fmt::format("{:08X}:{:04X}", number, peer.port());
  const std::string here = fmt::format("{:08X}:{:04X}", htonl(INADDR_LOOPBACK), port);
  const auto owner = owner_of("/proc/net/tcp", there, here);
  if (owner) return *owner == ::getuid();
  // The peer may be an IPv6 socket that is connected to an IPv4 address.
  const std::string mapped = fmt::format("0000000000000000{:08X}", htonl(0xffff));
  return owner_of("/proc/net/tcp6", mapped + there, mapped + here) == ::getuid();
}

/// Returns the first of `addresses` at which a host answers an attempt to connect to the port. A
/// refusal counts as an answer. Returns an empty text if no host answers within `patience`.
std::string first_that_answers(const std::vector<std::string>& addresses, std::uint16_t port,
                               std::chrono::milliseconds patience) {
  std::vector<Socket> dialled;
  dialled.reserve(addresses.size());
  std::vector<bool> answered(addresses.size(), false);
  for (const std::string& address : addresses) dialled.push_back(dial(address, port));
  const Clock::time_point limit = Clock::now() + patience;
  while (Clock::now() < limit) {
    Watch watch;
    bool waits = false;
    for (std::size_t i = 0; i < dialled.size(); ++i) {
      // Earlier addresses are preferred: until `limit`, a later address is returned only if all
      // earlier ones have failed.
      if (answered[i] && !waits) return addresses[i];
      if (answered[i] || !dialled[i]) continue;
      waits = true;
      watch.on(dialled[i].descriptor(), POLLOUT, [&, i] {
        const int error = dialled[i].take_error();
        answered[i] = error == 0 || error == ECONNREFUSED;
        if (!answered[i]) dialled[i].close();
      });
    }
    if (!waits) return {};
    watch.at(limit);
    watch.wait();
  }
  for (std::size_t i = 0; i < addresses.size(); ++i)
    if (answered[i]) return addresses[i];
  return {};
}

/// Listens on 127.0.0.1 and forwards each connection to the local socket. The server behind the
/// socket may not be listening yet. If the connection to the socket closes before the server's
/// first answer, the relay connects again and sends everything again that the client has sent.
class Relay {
 public:
  Relay(std::uint16_t wanted, std::string socket)
      : socket_(std::move(socket)), listener_(listen_at(wanted)) {}

  std::uint16_t port() const { return listener_.address().port(); }
  /// Relays connections until standard input ends.
  void run() {
    bool ends = false;
    while (!ends) {
      Watch watch;
      watch.on(STDIN_FILENO, POLLIN, [&] {
        std::array<char, 256> ignored;
        ends = read_some(STDIN_FILENO, ignored.data(), ignored.size()) <= 0;
      });
      if (pairs_.size() < kMostPairs)
        watch.on(listener_.descriptor(), POLLIN, [this] { accept(); });
      for (ForwardedConnection& pair : pairs_) this->watch(watch, pair);
      watch.wait();
      pairs_.remove_if([](const ForwardedConnection& pair) { return pair.over; });
    }
  }

 private:
  struct ForwardedConnection {
    transport::tcp::Socket client;
    Descriptor onward;
    std::string to_client;
    std::string to_onward;
    std::string unanswered;  ///< Bytes that the client sent before the server's first answer.
    bool answered = false;
    bool over = false;
    Clock::time_point retry_at = {};
  };

  void watch(Watch& watch, ForwardedConnection& pair) {
    if (!pair.onward) {
      if (Clock::now() >= pair.retry_at) lead_on(pair);
      watch.at(pair.retry_at);
    }
    const bool may_read_client = pair.answered ? pair.to_onward.size() < kMostWaiting
                                               : pair.unanswered.size() < kMostWaiting;
    if (may_read_client)
      watch.on(pair.client.descriptor(), POLLIN, [this, &pair] { read_client(pair); });
    if (!pair.to_client.empty()) {
      watch.on(pair.client.descriptor(), POLLOUT,
               [&pair] { pair.over |= !send_from(pair.to_client, pair.client.descriptor()); });
    }
    if (!pair.onward) return;
    if (pair.to_client.size() < kMostWaiting)
      watch.on(pair.onward.get(), POLLIN, [this, &pair] { read_onward(pair); });
    if (!pair.to_onward.empty()) {
      watch.on(pair.onward.get(), POLLOUT, [&pair] {
        // After a failure, poll(2) reports the socket as readable, and read_onward() closes it.
        if (!send_from(pair.to_onward, pair.onward.get())) pair.to_onward.clear();
      });
    }
  }

  void accept() {
    transport::tcp::Accepted accepted = listener_.accept();
    if (!accepted.socket || !is_own(accepted.from, port())) return;
    ForwardedConnection& pair = pairs_.emplace_back();
    pair.client = std::move(accepted.socket);
    lead_on(pair);
  }

  void lead_on(ForwardedConnection& pair) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_.c_str(), sizeof address.sun_path - 1);
    pair.retry_at = Clock::now() + kBetweenTries;
    pair.to_onward = pair.unanswered;
    pair.onward = Descriptor(::socket(AF_UNIX, SOCK_STREAM, 0));
    ::fcntl(pair.onward.get(), F_SETFD, FD_CLOEXEC);
    ::fcntl(pair.onward.get(), F_SETFL, O_NONBLOCK);
    if (::connect(pair.onward.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0)
      pair.onward.close();
  }

  void read_client(ForwardedConnection& pair) {
    std::array<char, 1 << 16> bytes;
    const ssize_t n = read_some(pair.client.descriptor(), bytes.data(), bytes.size());
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      pair.over = true;
      return;
    }
    const std::string_view read(bytes.data(), static_cast<std::size_t>(n));
    if (!pair.answered) pair.unanswered += read;
    if (!pair.onward) return;
    pair.to_onward += read;
  }

  void read_onward(ForwardedConnection& pair) {
    std::array<char, 1 << 16> bytes;
    const ssize_t n = read_some(pair.onward.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EAGAIN) return;
    if (n > 0) {
      pair.answered = true;
      pair.unanswered.clear();
      pair.to_client.append(bytes.data(), static_cast<std::size_t>(n));
      pair.over |= !send_from(pair.to_client, pair.client.descriptor());
    } else if (pair.answered) {
      pair.over = true;
    } else {
      pair.onward.close();
      pair.retry_at = Clock::now() + kBetweenTries;
    }
  }

  const std::string socket_;
  transport::tcp::Listener listener_;
  std::list<ForwardedConnection> pairs_;
};

/// Prints a message for the launcher. Begins a new line first, because a start-up file of the
/// host's shell may have printed an unfinished line.
int say(const std::string& what) {
  fmt::print("\nmccl-forward {}\n", what);
  return std::fflush(stdout) == 0 ? kGood : kFailed;
}

int run_forward(const ForwardFlags& flags) {
  const auto port = static_cast<std::uint16_t>(flags.port);
  const std::string direct = first_that_answers(flags.addresses, port, kForAnswer);
  if (!direct.empty()) return say("direct " + direct);
#ifndef __linux__
  throw Error(
      "this system does not report the owner of a connection, so no connection is forwarded");
#endif
  Relay relay(port, flags.socket);
  if (say(fmt::format("listening {}", relay.port())) != kGood) return kFailed;
  relay.run();
  return kGood;
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<ForwardFlags>();
  CLI::App* app = program.add_subcommand("forward", "Connect the ranks of a host to torch's store");
  app->group("");
  app->footer(kFooter);
  add_value(*app, "--socket", flags->socket, "Local socket that reaches the store")->required();
  add_value(*app, "--port", flags->port, "The store's port", integer_between(1, 65535))->required();
  add_value(*app, "--to", flags->addresses, "Address of the store's host; may be repeated")
      ->required();
  return {app, [flags] { return run_forward(*flags); }};
}

}  // namespace mccl::cli::forward
