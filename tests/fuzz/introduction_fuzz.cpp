// Introductions of processes that claim to be ranks of this host, over local sockets and with the
// descriptors that they pass. Rank 1 of 3 dials rank 0 and is dialed by rank 2. It may find only
// ranks whose introduction is whole, proves the key and passes an arena.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/no_signal.h"
#include "input.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/meeting/neighbours.h"
#include "transport/tcp/link.h"

using namespace mccl;
using fuzz::Input;
using fuzz::require;
using node::LocalConnection;
using node::LocalListener;

namespace {

constexpr int kSelf = 1;
constexpr int kRanks = 3;
constexpr std::size_t kMostPassed = 5;
constexpr std::string_view kKey = "the job's key";

/// The message as rendezvous/meeting/neighbours.cpp defines it.
struct Introduction {
  std::uint64_t magic = 0x6d63636c2d6e6272ULL;
  std::int32_t rank = -1;
  std::int32_t to = kSelf;
  rendezvous::Proof proof = {};
};

/// The message of a process to this rank.
struct Said {
  std::vector<std::byte> bytes;
  std::vector<int> passed;
  bool is_valid = false;
};

/// The files and sockets that all inputs share, because making them would dominate the run time.
struct Shared {
  std::shared_ptr<node::Arena> own = node::Arena::make(std::size_t{128} << 10);
  std::shared_ptr<node::Arena> theirs = node::Arena::make(std::size_t{128} << 10);
  Descriptor empty = node::make_memory_file(1);
  Descriptor always_ready{::open("/dev/null", O_RDWR | O_CLOEXEC)};

  static const Shared& get() {
    static const Shared shared;
    return shared;
  }
  int passed(std::size_t kind) const {
    const int files[] = {theirs->descriptor(), always_ready.get(), empty.get()};
    return files[kind % std::size(files)];
  }
};

/// Reads what a process says. An input of zeros makes it valid.
Said said_by(int rank, const std::vector<std::string>& names, Input& input) {
  Introduction introduction;
  introduction.magic ^= input.byte();
  introduction.rank = rank ^ static_cast<std::int8_t>(input.byte());
  introduction.to ^= static_cast<std::int8_t>(input.byte());
  const std::string covered =
      std::to_string(rank) + " 1 " + names[static_cast<std::size_t>(rank)] + " " + names[kSelf];
  introduction.proof = rendezvous::prove(kKey, "mccl neighbour", std::as_bytes(std::span(covered)));
  const std::size_t forged = input.byte();
  introduction.proof[forged % introduction.proof.size()] ^= static_cast<std::byte>(forged);
  Said said;
  const auto bytes = std::as_bytes(std::span(&introduction, 1));
  const std::size_t missing = input.byte() % (bytes.size() + 1);
  said.bytes.assign(bytes.begin(), bytes.end() - static_cast<std::ptrdiff_t>(missing));
  const std::size_t kinds = input.byte();
  const std::size_t count = (kinds / 4 + 2) % (kMostPassed + 1);  // 2 is the right number.
  for (std::size_t i = 0; i < count; ++i)
    said.passed.push_back(Shared::get().passed(i == 0 ? kinds : 1));
  said.is_valid = introduction.magic == Introduction().magic && introduction.rank == rank &&
                  introduction.to == kSelf && forged == 0 && missing == 0 && count == 2 &&
                  kinds % 4 % 3 == 0;
  return said;
}

/// Sends as LocalConnection::send() does, but any number of descriptors.
void say(const LocalConnection& connection, const Said& said) {
  if (said.bytes.empty()) return;
  iovec part = {const_cast<std::byte*>(said.bytes.data()), said.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> room = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (const std::size_t bytes = said.passed.size() * sizeof(int); bytes > 0) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), said.passed.data(), bytes);
  }
  (void)!::sendmsg(connection.descriptor(), &message, kNoSignal);
}

/// The other two ranks, and the control connections to them.
class Others {
 public:
  explicit Others(Input& input) {
    names_ = {answers_.name(), own_.name(), "two"};
    for (const int peer : {0, 2}) {
      int ends[2] = {-1, -1};
      require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets");
      transport::tcp::Socket socket(ends[0]);
      transport::tcp::make_non_blocking(socket);
      links_[static_cast<std::size_t>(peer)] =
          std::make_unique<transport::tcp::TcpLink>(std::move(socket), "a rank");
      ends_[static_cast<std::size_t>(peer)] = Descriptor(ends[1]);
    }
    answer_ = said_by(0, names_, input);
    const std::size_t dials = 1 + input.byte() % 3;
    for (std::size_t i = 0; i < dials; ++i) {
      const Said said = said_by(2, names_, input);
      valid_from_2_ |= said.is_valid;
      say(dialed_.emplace_back(LocalConnection::dial(own_.name()).first), said);
    }
  }

  void meet() {
    rendezvous::NeighbourOptions options;
    options.rank = kSelf;
    options.key = SecretBytes(kKey);
    options.names = names_;
    options.listener = &own_;
    options.arena = Shared::get().own.get();
    options.bell_pipe = Shared::get().always_ready.get();
    for (const auto& link : links_) options.controls.push_back(link.get());
    options.deadline = Clock::now() + std::chrono::seconds(10);
    options.watch_beside = [](std::vector<pollfd>& entries) {
      entries.push_back({Shared::get().always_ready.get(), POLLIN, 0});
    };
    options.advance_beside = [this] { advance(); };
    const node::Neighbours found = rendezvous::find_neighbours(options);
    require(found.contains(WorldRank(2)) == valid_from_2_, "rank 2 was mistaken");
    require(found.contains(WorldRank(0)) == answer_.is_valid, "rank 0 was mistaken");
    require(found.size() <= 2, "more ranks than others");
  }

 private:
  /// Answers this rank's dials. After some rounds, reports that rank 2 is done.
  void advance() {
    pollfd waiting = {answers_.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, 0) > 0)
      say(answered_.emplace_back(answers_.accept(Clock::now())), answer_);
    // A connection without an answer must end, or this rank would wait for the answer.
    if (answer_.bytes.empty()) answered_.clear();
    constexpr int kRounds = 10;
    const std::byte settled{1};
    if (++rounds_ == kRounds) require(::write(ends_[2].get(), &settled, 1) == 1, "no room");
  }

  LocalListener answers_{8};
  LocalListener own_{8};
  std::vector<std::string> names_;
  std::array<std::unique_ptr<transport::Link>, kRanks> links_;
  std::array<Descriptor, kRanks> ends_;
  std::vector<LocalConnection> dialed_;
  std::vector<LocalConnection> answered_;
  Said answer_;
  bool valid_from_2_ = false;
  int rounds_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Others others(input);
  others.meet();
  return 0;
}
