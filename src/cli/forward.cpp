// `mccl forward`: listens at a port of this host and forwards the connections of this user's
// processes to a local socket.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/open_files.h"
#include "base/rare_line.h"
#include "base/value_text.h"
#include "cli/command.h"
#include "cli/kit/process.h"
#include "mccl/error.h"
#include "rendezvous/connections/conversation.h"
#include "rendezvous/connections/wire.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::forward {
namespace {

using namespace std::chrono_literals;
using rendezvous::Bytes;
using rendezvous::ByteStream;
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
/// Time for which no connection is accepted after the system has refused one.
constexpr auto kAfterRefusal = 100ms;
constexpr std::size_t kMostWaiting = std::size_t{256} << 10;
constexpr std::size_t kMostRead = std::size_t{64} << 10;
constexpr std::size_t kMostPairs = 8192;

/// Returns an empty socket if the attempt cannot start.
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

/// Falls back to any free port.
Listener listen_at(std::uint16_t wanted) {
  const Address here = *Address::parse_numeric("127.0.0.1", wanted);
  try {
    return Listener(here, 0);
  } catch (const transport::tcp::BindError&) {
    return Listener(here.with_port(0), 0);
  }
}

/// Returns the owner of a connection, according to the kernel's table.
std::optional<uid_t> owner_of(std::ifstream& table, const std::string& local,
                              const std::string& remote) {
  table.clear();
  table.seekg(0);
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

/// The kernel's tables of connections. They stay open, so that a lookup needs no file descriptor.
class ConnectionTables {
 public:
  ConnectionTables() {
    if (!ipv4_)
      throw Error(
          "cannot read /proc/net/tcp, which names the owner of each connection, so no connection "
          "is forwarded; mount /proc on this host");
  }

  /// True if the process at `peer`, which has connected to 127.0.0.1:`port`, belongs to this user.
  bool is_own(const Address& peer, std::uint16_t port) {
    // The kernel prints the four bytes of an address as one integer in the machine's byte order.
    const in_addr_t number = reinterpret_cast<const sockaddr_in*>(peer.data())->sin_addr.s_addr;
    const std::string there = fmt::format("{:08X}:{:04X}", number, peer.port());
    const std::string here = fmt::format("{:08X}:{:04X}", htonl(INADDR_LOOPBACK), port);
    const auto owner = owner_of(ipv4_, there, here);
    if (owner) return *owner == ::getuid();
    // The peer may be an IPv6 socket that is connected to an IPv4 address.
    const std::string mapped = fmt::format("0000000000000000{:08X}", htonl(0xffff));
    return owner_of(ipv6_, mapped + there, mapped + here) == ::getuid();
  }

 private:
  std::ifstream ipv4_{"/proc/net/tcp"};
  std::ifstream ipv6_{"/proc/net/tcp6"};  ///< Not open if the kernel has no IPv6.
};

/// Throws InvalidArgument if the path is too long for the address of a local socket.
sockaddr_un local_address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  constexpr std::size_t kLongest = sizeof address.sun_path - 1;
  if (path.size() > kLongest)
    throw InvalidArgument(
        fmt::format("--socket: expected a path of at most {} bytes, the limit of the system; found "
                    "{} bytes: {}",
                    kLongest, path.size(), printable(path, path.size())));
  path.copy(address.sun_path, path.size());
  return address;
}

/// Returns the first address that accepts or refuses a connection within `patience`, if any.
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
  Relay(std::uint16_t wanted, const std::string& socket)
      : server_(local_address(socket)), listener_(listen_at(wanted)) {}

  std::uint16_t port() const { return listener_.address().port(); }
  void run() {
    bool ends = false;
    while (!ends) {
      Watch watch;
      watch.on(STDIN_FILENO, POLLIN, [&] {
        std::array<char, 256> ignored;
        ends = read_some(STDIN_FILENO, ignored.data(), ignored.size()) <= 0;
      });
      if (Clock::now() < accept_at_) {
        watch.at(accept_at_);
      } else if (pairs_.size() < kMostPairs) {
        watch.on(listener_.descriptor(), POLLIN, [this] { accept(); });
      }
      for (ForwardedConnection& pair : pairs_) this->watch(watch, pair);
      watch.wait();
      if (pairs_.remove_if([](const ForwardedConnection& pair) { return pair.over; }) > 0)
        accept_at_ = {};
    }
  }

 private:
  struct ForwardedConnection {
    ByteStream client;
    std::optional<ByteStream> onward;  ///< Empty until the server listens.
    Bytes unanswered;                  ///< Bytes that the client sent before the first answer.
    bool answered = false;
    bool over = false;
    Clock::time_point retry_at = {};
  };

  void watch(Watch& watch, ForwardedConnection& pair) {
    if (!pair.onward) {
      if (Clock::now() >= pair.retry_at) lead_on(pair);
      watch.at(pair.retry_at);
    }
    const auto on = [&](const ByteStream& stream, bool reads, std::function<void()> then) {
      if (!reads && (stream.has_ended() || !stream.has_output())) return;
      const pollfd entry = stream.watched(reads);
      watch.on(entry.fd, entry.events, std::move(then));
    };
    // Neither end is read faster than the other one takes the bytes.
    const bool reads_client =
        pair.answered ? !pair.onward->has_output() : pair.unanswered.size() < kMostWaiting;
    on(pair.client, reads_client, [&pair, reads_client] { serve_client(pair, reads_client); });
    if (!pair.onward) return;
    const bool reads_onward = !pair.client.has_output();
    on(*pair.onward, reads_onward, [&pair, reads_onward] { serve_onward(pair, reads_onward); });
  }

  void accept() {
    transport::tcp::Accepted accepted = listener_.accept();
    // The connection still waits, so poll(2) would report the listener again at once.
    if (accepted.error != 0) pause(accepted.error);
    if (!accepted.socket || !tables_.is_own(accepted.from, port())) return;
    ForwardedConnection& pair = pairs_.emplace_back();
    pair.client = ByteStream(std::move(accepted.socket));
    lead_on(pair);
  }

  /// Accepts no connection for a while, because the system has refused a socket.
  void pause(int error) {
    const Clock::time_point now = Clock::now();
    accept_at_ = now + kAfterRefusal;
    refusals_.write(log_, LogLevel::warn, now,
                    fmt::format("mccl forward cannot connect to the store for now, but keeps "
                                "trying: {}",
                                describe_errno(error)));
  }

  void lead_on(ForwardedConnection& pair) {
    pair.retry_at = Clock::now() + kBetweenTries;
    Socket socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    if (!socket) return pause(errno);
    transport::tcp::make_non_blocking(socket);
    if (::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&server_),
                  sizeof server_) != 0)
      return;
    pair.onward.emplace(std::move(socket));
    pair.onward->queue(pair.unanswered);
  }

  static void serve_client(ForwardedConnection& pair, bool reads) {
    Bytes bytes;
    pair.over |= !pair.client.flush() || (reads && !pair.client.receive(bytes, kMostRead));
    if (!pair.answered) rendezvous::append(pair.unanswered, bytes);
    if (!pair.onward || bytes.empty()) return;
    pair.onward->queue(bytes);
    pair.onward->flush();
  }

  static void serve_onward(ForwardedConnection& pair, bool reads) {
    if (!pair.onward) return;
    Bytes bytes;
    pair.onward->flush();  // After a failure, the socket may still hold an answer.
    if (reads) pair.onward->receive(bytes, kMostRead);
    if (!bytes.empty()) {
      pair.answered = true;
      pair.unanswered.clear();
      pair.client.queue(bytes);
      pair.over |= !pair.client.flush();
    } else if (pair.onward->has_ended() && reads) {
      pair.over |= pair.answered;
      pair.onward.reset();
      pair.retry_at = Clock::now() + kBetweenTries;
    }
  }

  const sockaddr_un server_;
  ConnectionTables tables_;
  transport::tcp::Listener listener_;
  std::list<ForwardedConnection> pairs_;
  Clock::time_point accept_at_ = {};  ///< Time before which no connection is accepted.
  const Log log_{-1, LogLevel::warn};
  RareLine refusals_;
};

/// Begins a new line first, because a start-up file of the shell may have printed a part of one.
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
  raise_open_files_limit();
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
