// A stateful fuzzer of a whole rank. Rank 1 has the job's key and connects to rank 0 as any rank
// does. It then answers rank 0's requests for links. It sends control messages and frames that are
// valid, nearly valid or random, on all of its connections. Rank 0 must end every call, name rank 1
// if a call fails, and write no byte outside its buffers. It must not crash or leak memory.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "engine/groups/enqueued_calls.h"
#include "engine/links/frame.h"
#include "engine/messages/messages.h"
#include "engine/peers/control.h"
#include "kernels/checksum.h"
#include "rendezvous/meeting/meeting.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using engine::ControlKind;
using engine::ControlMessage;
using engine::Frame;
using engine::FrameKind;
using rendezvous::Met;
using testing::test_config;
using transport::Link;
using transport::LinkKey;
using transport::Purpose;

constexpr int kFrames = 1000;
constexpr std::size_t kElements = 200'000;
constexpr std::size_t kGuard = 64;

Config fuzz_config(bool two_rails, bool encrypts) {
  Config config = test_config();
  config.transport = "tcp";
  config.job_key = "the key that both ranks know";
  config.encryption = encrypts ? "on" : "off";
  config.calibrate = false;
  config.connect_timeout = 20;
  config.timeout = 2;
  config.liveness_interval = 5;
  config.port_base = 0;
  config.listen_addr = two_rails ? "127.0.0.1,127.0.0.1" : "127.0.0.1";
  return config;
}

/// Rank 0, which makes calls one after another until rank 1 has finished or is gone.
class Victim {
 public:
  Victim(std::shared_ptr<Store> store, const Config& config, const std::atomic<bool>& over)
      : over_(over), thread_([this, store, config] { run(store, config); }) {}
  ~Victim() {
    if (thread_.joinable()) thread_.join();
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  /// Waits until the thread ends. Returns a description of the fault; empty if there was none.
  std::string join() {
    thread_.join();
    return fault_;
  }

 private:
  void run(const std::shared_ptr<Store>& store, const Config& config) {
    try {
      const auto context = Context::create({0, 2, store, config, nullptr});
      for (int round = 0; !over_; ++round) make_calls(*context, round);
    } catch (const Error&) {
      // The context could not be made, or the world has failed.
    } catch (const std::exception& error) {
      fault_ = error.what();
    }
  }

  void make_calls(Context& context, int round) {
    // A group that has failed stays failed, so each round makes a new one.
    const auto group =
        context.group("round " + std::to_string(round), {0, 1}, std::chrono::seconds(2));
    std::vector<std::uint8_t> memory(kElements + kGuard, 0xa5);
    std::vector<std::uint8_t> other(kElements + kGuard, 0xa5);
    std::vector<Work> works;
    const auto attempt = [&](const auto& call) {
      try {
        works.push_back(call());
      } catch (const Error&) {
      }
    };
    attempt([&] { return group->recv({memory.data(), kElements, DType::u8}, 1, 1); });
    attempt([&] { return group->recv({other.data(), 100, DType::u8}, kAnySource, 2); });
    std::vector<float> sum(1000, 1);
    const Buffer floats = {sum.data(), sum.size(), DType::f32};
    if (round % 2 == 0) attempt([&] { return group->all_reduce(floats, floats, ReduceKind::sum); });
    std::vector<std::uint8_t> sent(kElements);
    if (round % 3 == 0)
      attempt([&] { return group->send({sent.data(), kElements, DType::u8}, 1, 3); });
    for (Work& work : works) {
      try {
        work.wait();
      } catch (const Error&) {
      }
    }
    for (const auto& each : {memory, other}) {
      if (std::any_of(each.end() - kGuard, each.end(), [](auto byte) { return byte != 0xa5; }))
        fault_ = "a byte was written outside of a buffer";
    }
  }

  const std::atomic<bool>& over_;
  std::string fault_;
  std::thread thread_;
};

/// Rank 1, which sends valid, nearly valid and random messages.
class Fuzzer {
 public:
  Fuzzer(Met met, unsigned seed) : met_(std::move(met)), random_(seed) {}

  /// Sends messages until kFrames have been sent, or rank 0 has closed the control connection.
  int run() {
    try {
      for (; sent_ < kFrames; ++sent_) {
        hear();
        make_links();
        act();
      }
    } catch (const transport::LinkClosed&) {
    } catch (const CorruptionError&) {
      ADD_FAILURE() << "rank 0 sent a malformed message";
    }
    return sent_;
  }

 private:
  unsigned below(unsigned limit) { return random_() % limit; }
  Link& control() { return *met_.controls[0]; }

  /// Reads rank 0's messages and remembers which groups and links it has mentioned.
  void hear() {
    for (int i = 0; i < 16; ++i) {
      const auto bytes = control().peek(1);
      if (bytes.empty()) return;
      const auto message = engine::decode_control(bytes);
      if (!message) {
        if (below(4) == 0) std::this_thread::yield();
        return;
      }
      groups_.insert(message->message.key.group);
      if (message->message.kind == ControlKind::open) asked_.insert(message->message.key);
      control().consume(message->bytes);
    }
  }

  /// Makes most of the links that rank 0 asks for, as the higher rank of a pair does.
  void make_links() {
    transport::Transport& tcp = *met_.transports.back();
    for (const LinkKey& key : asked_) {
      if (dialed_.contains(key)) continue;
      dialed_.insert(key);
      if (below(50) == 0) continue;
      ControlMessage open;
      open.kind = ControlKind::open;
      open.key = key;
      say(open);
      tcp.dial(WorldRank(0), key, Clock::now() + std::chrono::seconds(10));
    }
    std::vector<transport::LinkEvent> events;
    tcp.progress(events);
    for (transport::LinkEvent& event : events) {
      if (event.link) links_[event.key] = std::move(event.link);
    }
  }

  void say(const ControlMessage& message) { write(control(), engine::encode(message), {}); }

  /// Writes as much as the link takes; what it does not take is lost.
  void write(Link& link, std::span<const std::byte> first, std::span<const std::byte> second) {
    (void)link.write(first, second);
    link.release();
  }

  void act() {
    const unsigned choice = below(1000);
    if (choice < 200) return say_something();
    if (choice < 230) return std::this_thread::sleep_for(std::chrono::microseconds(below(2000)));
    if (choice == 230 && below(4) == 0) return write(control(), noise(1 + below(64)), {});
    if (links_.empty()) return std::this_thread::yield();
    auto link = links_.begin();
    std::advance(link, below(static_cast<unsigned>(links_.size())));
    try {
      if (choice < 240) {
        links_.erase(link);
      } else if (choice < 260) {
        write(*link->second, noise(1 + below(100)), {});
      } else if (choice < 400) {
        drain(*link->second);
      } else {
        send_frame(link->first, *link->second);
      }
    } catch (const transport::LinkClosed&) {
      links_.erase(link);
    }
  }

  std::vector<std::byte> noise(std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    for (std::byte& each : all) each = static_cast<std::byte>(random_());
    return all;
  }

  std::uint64_t a_group() {
    if (groups_.empty() || below(10) == 0) return random_() % 4 == 0 ? random_() : 0;
    auto group = groups_.begin();
    std::advance(group, below(static_cast<unsigned>(groups_.size())));
    return *group;
  }

  void say_something() {
    ControlMessage message;
    // Most messages are valid at any time, because an invalid one ends the connection.
    constexpr ControlKind kHarmless[] = {ControlKind::heartbeat, ControlKind::probe,
                                         ControlKind::status, ControlKind::blocked,
                                         ControlKind::enqueued};
    message.kind = below(10) != 0 ? kHarmless[below(5)]
                                  : static_cast<ControlKind>(below(engine::kControlKindCount));
    message.key = {a_group(), static_cast<Purpose>(1 + below(2)),
                   static_cast<std::uint8_t>(below(3))};
    if (message.kind == ControlKind::link) message.transport = below(2) == 0 ? "tcp" : "shm";
    message.call = a_call(below(2) == 0);
    if (message.kind == ControlKind::abort || message.kind == ControlKind::declined ||
        message.kind == ControlKind::ending) {
      if (message.kind == ControlKind::abort && below(4) != 0) return;
      message.failure = {
          engine::FailureKind::peer, std::string(below(3000), 'x'), {}, GroupRank(1)};
    }
    if (message.kind == ControlKind::status && below(50) != 0) {
      const auto flag = [this] { return static_cast<std::byte>(below(2)); };
      message.blob = {flag(), flag(), flag(), {}, {}, {}};
    } else if (message.kind == ControlKind::enqueued && below(50) != 0) {
      message.blob = encode(engine::Announcement{below(2) == 0, below(2) == 0, random_()});
      message.call.enqueued = true;
    } else if (below(3) == 0) {
      message.blob = noise(below(100));
    }
    say(message);
  }

  engine::Call a_call(bool collective) {
    engine::Call call;
    call.collective = collective ? Collective::all_reduce : Collective::send;
    call.dtype = collective ? DType::f32 : DType::u8;
    call.count = below(4) == 0 ? kElements : collective ? 1000 : 100;
    call.sequence = 1 + below(4);
    call.tag = collective ? 0 : 1 + below(3);
    if (below(50) == 0) call.count = std::uint64_t{1} << (below(63));
    return call;
  }

  void send_frame(const LinkKey& key, Link& link) {
    Frame frame;
    const bool collective = key.purpose == Purpose::collective;
    frame.kind = collective ? FrameKind::collective : static_cast<FrameKind>(1 + below(6));
    frame.call = a_call(collective);
    frame.call.sequence = frame.kind == FrameKind::eager || frame.kind == FrameKind::request
                              ? ++announced_[key]
                              : 1 + below(3);
    if (frame.kind == FrameKind::request || frame.kind == FrameKind::data) {
      frame.call.count = kElements;
      frame.call.tag = 1;
      frame.message = frame.kind == FrameKind::data ? below(3) : 0;
    }
    if (frame.kind == FrameKind::request && below(2) == 0) frame.payload_bytes = 8;
    if (frame.kind == FrameKind::data) {
      frame.payload_bytes = std::min<std::uint32_t>(engine::kPieceBytes, kElements);
    } else if (frame.kind == FrameKind::eager) {
      frame.call.count = 100;
      frame.call.tag = 2;
      frame.payload_bytes = 100;
    } else if (collective) {
      frame.payload_bytes = below(2) == 0 ? 2000 : 4000;
    }
    if (below(100) == 0) frame.kind = static_cast<FrameKind>(below(engine::kFrameKindCount));
    if (below(100) == 0) frame.payload_bytes = random_();
    // A part of the payload leaves the link in the middle of the message.
    const std::size_t whole = std::min<std::size_t>(frame.payload_bytes, 512 << 10);
    const std::size_t part = below(3) == 0 ? below(static_cast<unsigned>(whole + 1)) : whole;
    write(link, engine::encode(frame), noise(part));
  }

  static void drain(Link& link) {
    for (int i = 0; i < 8; ++i) {
      const auto bytes = link.peek(1);
      if (bytes.empty()) return;
      link.consume(bytes.size());
    }
  }

  Met met_;
  std::mt19937 random_;
  int sent_ = 0;
  std::set<std::uint64_t> groups_;
  std::set<LinkKey> asked_;
  std::set<LinkKey> dialed_;
  std::map<LinkKey, std::unique_ptr<Link>> links_;
  std::map<LinkKey, std::uint64_t> announced_;
};

/// One job. Returns the number of messages that rank 1 has sent.
int fuzz(unsigned seed) {
  const Config config = fuzz_config(seed % 2 == 0, seed % 4 >= 2);
  const std::shared_ptr<Store> store = make_memory_store();
  std::atomic<bool> over = false;
  Victim victim(store, config, over);
  int sent = 0;
  {
    Met met = rendezvous::meet({.rank = 1,
                                .size = 2,
                                .store = store,
                                .config = config,
                                .log = Log(1, LogLevel::off),
                                .on_refused = {},
                                .agree_on_key = [&](const auto&, auto) { return config.job_key; }});
    Fuzzer fuzzer(std::move(met), seed);
    sent = fuzzer.run();
    over = true;
  }
  EXPECT_EQ(victim.join(), "") << "seed " << seed;
  return sent;
}

/// The largest memory of this process since the last call of forget_peak(), in KiB.
std::size_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  return 0;
}
void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

TEST(RankFuzz, SurvivesAThousandMessagesOfAPeerThatMisbehaves) {
  int sent = 0, runs = 0;
  std::size_t before = 0, most = 0;
  for (unsigned seed = 1; sent < 20 * kFrames && seed < 400; ++seed, ++runs) {
    forget_peak();
    sent += fuzz(seed);
    (seed <= 10 ? before : most) = std::max(seed <= 10 ? before : most, peak_kib());
  }
  RecordProperty("messages", sent);
  RecordProperty("runs", runs);
  EXPECT_GE(sent, 20 * kFrames);
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(most, before + 64 * 1024) << "a job needs much memory, or that of ended jobs is kept";
#endif
  std::printf("%d messages in %d jobs, at most %zu MiB resident\n", sent, runs, most / 1024);
}

}  // namespace
}  // namespace mccl
