#include "cli/probe/packets.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/thread.h"
#include "cluster/read_facts.h"
#include "transport/tcp/interfaces.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostBytes = 65536;
constexpr std::size_t kLongestHead = 400;
constexpr auto kForEcho = 150ms;
constexpr int kTries = 4;

/// Packets are sent whole or not at all, whatever path MTU the system assumes.
void forbid_pieces([[maybe_unused]] const Socket& socket, [[maybe_unused]] int family) {
#if defined(IP_MTU_DISCOVER) && defined(IP_PMTUDISC_PROBE)
  const int probe = IP_PMTUDISC_PROBE;
  if (family == AF_INET)
    ::setsockopt(socket.descriptor(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
#endif
#if defined(IPV6_MTU_DISCOVER) && defined(IPV6_PMTUDISC_PROBE)
  const int probe6 = IPV6_PMTUDISC_PROBE;
  if (family == AF_INET6)
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe6, sizeof probe6);
#endif
#ifdef IP_DONTFRAG
  const int on = 1;
  if (family == AF_INET) ::setsockopt(socket.descriptor(), IPPROTO_IP, IP_DONTFRAG, &on, sizeof on);
#endif
}

/// The port is fixed, because hosts do not know each other's ports before the calls.
constexpr std::uint16_t kCallPort = 29599;

constexpr auto kBetweenLooksAtCalls = 50ms;
constexpr const char* kAllHosts = "ff02::1";
/// A question (a "who" message) is sent so often, at intervals of kForAnswer.
constexpr int kQuestions = 3;
constexpr auto kForAnswer = 120ms;
constexpr std::size_t kMostQuestions = 4096;
constexpr std::size_t kMostCalled = 4096;

/// An interface that has just come up cannot send before the system has checked that its address is
/// unique (RFC 4862, 5.4: a random delay of up to a second, then one more second).
constexpr auto kForAddresses = 2500ms;
constexpr auto kBetweenTries = 20ms;

/// Calls are sent through the bridge, which receives the packets of its ports.
bool is_port_of_bridge(const std::string& interface) {
  std::error_code ignored;
  return std::filesystem::exists("/sys/class/net/" + interface + "/brport", ignored);
}

/// Interfaces that are up and have a link-local IPv6 address, even one that is still checked.
std::set<std::string> calling_interfaces() {
  std::set<std::string> names;
  for (const transport::tcp::InterfaceAddress& interface : transport::tcp::list_interfaces())
    if (interface.up && !interface.loopback && interface.address.is_link_local() &&
        interface.address.family() == AF_INET6 && !is_port_of_bridge(interface.name))
      names.insert(interface.name);
  return names;
}

std::string name_of(unsigned interface) {
  std::array<char, IF_NAMESIZE> name = {};
  return ::if_indextoname(interface, name.data()) == nullptr ? "" : name.data();
}

std::optional<Address> all_on(const std::string& interface) {
  return Address::parse_numeric(fmt::format("{}%{}", kAllHosts, interface), kCallPort);
}

/// Empty if the system provides no such socket. An IPv6 socket also receives IPv4, and reports the
/// interface through which a packet came.
Socket packet_socket(int family, std::uint16_t port) {
  Socket socket(::socket(family, SOCK_DGRAM, 0));
  if (!socket) return socket;
  const int on = 1;
  const int off = 0;
  if (family == AF_INET6) {
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  }
  if (port != 0) ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const Address here = Address::wildcard(family, port);
  if (::bind(socket.descriptor(), here.data(), here.size()) != 0) socket.close();
  return socket;
}

/// Does not block; the head is empty if no packet is pending.
Packet receive(const Socket& socket) {
  Packet packet;
  std::vector<char> bytes(kMostBytes);
  sockaddr_storage from = {};
  alignas(cmsghdr) std::array<char, 256> control = {};
  iovec part = {bytes.data(), bytes.size()};
  msghdr message = {};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket.descriptor(), &message, MSG_DONTWAIT);
  if (n <= 0) return packet;
  const std::string_view all(bytes.data(), static_cast<std::size_t>(n));
  packet.head = all.substr(0, std::min(all.find('\n'), kLongestHead));
  if (const auto address =
          Address::from(reinterpret_cast<const sockaddr*>(&from), message.msg_namelen))
    packet.from = *address;
  for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr;
       entry = CMSG_NXTHDR(&message, entry)) {
    if (entry->cmsg_level != IPPROTO_IPV6 || entry->cmsg_type != IPV6_PKTINFO) continue;
    in6_pktinfo about = {};
    std::memcpy(&about, CMSG_DATA(entry), sizeof about);
    packet.interface = static_cast<unsigned>(about.ipi6_ifindex);
    packet.to_all = IN6_IS_ADDR_MULTICAST(&about.ipi6_addr);
  }
  return packet;
}

bool send(const Socket& socket, const std::string& bytes, const Address& to) {
  return ::sendto(socket.descriptor(), bytes.data(), bytes.size(), 0, to.data(), to.size()) >= 0;
}

}  // namespace

std::optional<Message> parse_message(const Secret& secret, std::string_view head) {
  using Kind = Message::Kind;
  const auto words = cluster::words_of(head);
  const auto proves = [&](const char* purpose, std::initializer_list<std::string_view> covered) {
    return secret.is_proof(words.back(), purpose, covered);
  };
  if (words.size() == 3 && proves("sends", {words[0], words[1]})) return Message{Kind::test, words};
  if (words.size() == 4 && words[0] == "who" && proves("who", {words[1], words[2]}))
    return Message{Kind::who, words};
  if (words.size() != 5 || (words[0] != "call" && words[0] != "here")) return {};
  const bool calls = words[0] == "call";
  if (!proves(calls ? "call" : "here", {words[1], words[2], words[3]})) return {};
  return Message{calls ? Kind::call : Kind::here, words};
}

MulticastProbe::MulticastProbe(const Secret& secret, Say say)
    : secret_(secret),
      say_(std::move(say)),
      socket_(packet_socket(AF_INET6, kCallPort)),
      packets_(packet_socket(AF_INET6, 0)) {
  if (!packets_) packets_ = packet_socket(AF_INET, 0);
  thread_ = start_thread("mccl-calls", [this] { run(); });
}

MulticastProbe::~MulticastProbe() {
  stopping_ = true;
  thread_.join();
}

void MulticastProbe::run() {
  while (!stopping_) {
    std::array waiting = {pollfd{socket_.descriptor(), POLLIN, 0},
                          pollfd{packets_.descriptor(), POLLIN, 0}};
    ::poll(waiting.data(), waiting.size(), kBetweenLooksAtCalls / 1ms);
    if (waiting[0].revents != 0) take(receive(socket_));
    if (waiting[1].revents != 0) answer(receive(packets_));
    ask_again();
  }
}

void MulticastProbe::answer(const Packet& packet) {
  const auto message = parse_message(secret_, packet.head);
  if (!message || message->kind != Message::Kind::test) return;
  const auto& words = message->words;
  send(packets_, fmt::format("{} {}\n", words[0], secret_.prove("got", {words[0], words[1]})),
       packet.from);
}

void MulticastProbe::take(const Packet& packet) {
  const auto message = parse_message(secret_, packet.head);
  if (!message) return;
  if (message->kind == Message::Kind::call) take_call(packet, message->words);
  if (message->kind == Message::Kind::who) take_question(packet, message->words);
  if (message->kind == Message::Kind::here) take_answer(packet, message->words);
}

std::optional<MulticastProbe::Place> MulticastProbe::called(std::string_view nonce) {
  const std::scoped_lock lock(mutex_);
  const auto found = called_.find(std::string(nonce));
  if (found == called_.end()) return {};
  return found->second;
}

void MulticastProbe::take_call(const Packet& packet, std::span<const std::string_view> words) {
  // Ignores this host's own calls, which the system may also deliver to this host, calls that were
  // already received, and all calls while kMostQuestions are open.
  const std::string nonce(words[1]);
  if (called(nonce) || questions_.size() == kMostQuestions ||
      !heard_.insert({nonce, packet.interface}).second)
    return;
  const std::string mine = make_nonce();
  const Place place{packet.interface, std::string(words[2]), std::string(words[3])};
  const std::string text =
      fmt::format("who {} {} {}\n", nonce, mine, secret_.prove("who", {nonce, mine}));
  send(socket_, text, packet.from);
  questions_[mine] = {place, text, Clock::now() + kForAnswer};
}

void MulticastProbe::take_question(const Packet& packet, std::span<const std::string_view> words) {
  const std::optional<Place> place = called(words[1]);
  if (!place || place->interface != packet.interface) return;
  const std::string proof = secret_.prove("here", {words[2], place->name, place->from});
  // A question that arrives by multicast repeats a question that got no answer. Several probes of
  // the asking host may share the port, and a unicast packet reaches only one of these probes. So
  // the answer is sent by multicast, too.
  const auto all = packet.to_all ? all_on(name_of(packet.interface)) : std::nullopt;
  send(socket_, fmt::format("here {} {} {} {}\n", words[2], place->name, place->from, proof),
       all.value_or(packet.from));
}

void MulticastProbe::take_answer(const Packet& packet, std::span<const std::string_view> words) {
  const auto question = questions_.find(std::string(words[1]));
  if (question == questions_.end()) return;
  const Place& place = question->second.place;
  if (place.interface != packet.interface || place.name != words[2] || place.from != words[3])
    return;
  report("heard", place);
  questions_.erase(question);
}

void MulticastProbe::report(const char* what, const Place& place) {
  say_({{what,
         {{"at", name_of(place.interface)},
          {"name", cluster::count_of(place.name)},
          {"from", place.from}}}});
}

void MulticastProbe::ask_again() {
  for (auto each = questions_.begin(); each != questions_.end();) {
    Challenge& question = each->second;
    if (Clock::now() < question.again) {
      ++each;
      continue;
    }
    if (question.asked == kQuestions) {
      report("unanswered", question.place);
      each = questions_.erase(each);
      continue;
    }
    // The question is repeated by multicast, because the first question may have reached another
    // probe of that host with the same port.
    if (const auto to = all_on(name_of(question.place.interface)))
      send(socket_, question.text, *to);
    ++question.asked;
    question.again = Clock::now() + kForAnswer;
    ++each;
  }
}

void MulticastProbe::call(const std::string& name) {
  std::set<std::string> called;
  const Clock::time_point limit = Clock::now() + kForAddresses;
  for (bool waits = true; waits;) {
    waits = false;
    for (const std::string& interface : calling_interfaces()) {
      const auto to = all_on(interface);
      if (called.contains(interface) || !to) continue;
      const std::string nonce = make_nonce();
      const std::string text = fmt::format("call {} {} {} {}\n", nonce, name, interface,
                                           secret_.prove("call", {nonce, name, interface}));
      {
        const std::scoped_lock lock(mutex_);
        if (called_.size() == kMostCalled) called_.clear();
        called_[nonce] = {::if_nametoindex(interface.c_str()), name, interface};
      }
      if (send(socket_, text, *to))
        called.insert(interface);
      else if (errno == EADDRNOTAVAIL)
        waits = true;
    }
    if (Clock::now() >= limit) return;
    if (waits) ::poll(nullptr, 0, kBetweenTries / 1ms);
  }
}

bool packet_arrives(const Secret& secret, const Address& to, const Address* source, int bytes) {
  Socket socket(::socket(to.family(), SOCK_DGRAM, 0));
  if (!socket) return false;
  if (source != nullptr) {
    const Address from = source->with_port(0);
    if (::bind(socket.descriptor(), from.data(), from.size()) != 0) return false;
  }
  forbid_pieces(socket, to.family());
  const std::string nonce = make_nonce();
  const std::string size = std::to_string(bytes);
  std::string packet = fmt::format("{} {} {}\n", nonce, size, secret.prove("sends", {nonce, size}));
  const int headers = (to.family() == AF_INET ? 20 : 40) + 8;
  const auto payload = static_cast<std::size_t>(std::max(0, bytes - headers));
  if (packet.size() < payload) packet.resize(payload, '.');
  const std::string expected = fmt::format("{} {}", nonce, secret.prove("got", {nonce, size}));
  for (int tried = 0; tried < kTries; ++tried) {
    send(socket, packet, to);
    pollfd waiting = {socket.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, kForEcho / 1ms) > 0 && receive(socket).head == expected) return true;
  }
  return false;
}

}  // namespace mccl::cli::probe
