// Tests that every message whose send completed is received, even if the sender drops its group or
// ends before the receiver asks for the message.
#include <fmt/format.h>

#include <numeric>
#include <string>

#include "support/processes.h"

namespace mccl::departure {
namespace {

using testing::Processes;
using testing::test_config;

/// Rank 0 serves the store, so its process ends last.
constexpr int kReceiver = 0;
constexpr int kSender = 1;
constexpr int kMessages = 50;
constexpr std::size_t kBytes = 32'000;

using Bytes = std::vector<std::uint8_t>;

Bytes content(int message) {
  Bytes bytes(kBytes);
  std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(message));
  return bytes;
}

Buffer buffer_of(Bytes& bytes) { return {bytes.data(), bytes.size(), DType::u8}; }

Config config_of(const std::string& transport) {
  Config config = test_config();
  config.transport = transport;
  config.calibrate = false;
  return config;
}

/// Set in each rank's process before the ranks meet.
Store* the_store = nullptr;

bool has_happened(const std::string& event) { return the_store->add(event, 0) > 0; }

void wait_for(const std::string& event) {
  while (!has_happened(event)) ::usleep(1000);
}

/// Completes every send. The receiver takes a message only if a send cannot complete otherwise, so
/// that as many messages as possible are in flight at the end.
void send_all(Group& group) {
  for (int i = 0; i < kMessages; ++i) {
    Bytes bytes = content(i);
    group.send(buffer_of(bytes), kReceiver, 0)
        .wait_in_slices({}, std::chrono::milliseconds(50), [] { the_store->add("wanted", 1); });
  }
}

void expect_message(Group& group, int message) {
  Bytes got(kBytes);
  group.recv(buffer_of(got), kSender, 0).wait();
  if (got != content(message)) throw Error(fmt::format("message {} is damaged", message));
}

/// Receives one message for each that send_all() requests through the store, until `event`. Returns
/// the number of messages.
int take_until(const std::string& event, Group& group) {
  int taken = 0;
  while (!has_happened(event)) {
    if (taken < the_store->add("wanted", 0)) {
      expect_message(group, taken++);
    } else {
      ::usleep(1000);
    }
  }
  return taken;
}

/// Expects every remaining message, and then an error that names the sender.
void expect_the_rest(Group& group, int taken) {
  if (taken == kMessages) throw Error("no message was in flight");
  while (taken < kMessages) expect_message(group, taken++);
  try {
    expect_message(group, kMessages);
  } catch (const PeerError& error) {
    if (std::string(error.what()).find("rank 1 is gone") == std::string::npos) throw;
    return;
  }
  throw Error("a message came that was never sent");
}

class LateReceiver : public ::testing::TestWithParam<std::string> {
 protected:
  Processes::Options options() const {
    return {.store_address = {},
            .config_of = [transport = GetParam()](int) { return config_of(transport); },
            .enter = {},
            .at_the_store = [](int, Store& store) { the_store = &store; }};
  }
};

TEST_P(LateReceiver, GetsAllMessagesOfASenderThatHasDroppedItsGroup) {
  Processes job(
      2,
      [](Context& context, const Processes::Say&) {
        std::shared_ptr<Group> group = context.group("g", {0, 1}, std::chrono::seconds(60));
        if (context.rank() == kSender) {
          send_all(*group);
          group.reset();
          the_store->add("dropped", 1);
          wait_for("received");
        } else {
          const int taken = take_until("dropped", *group);
          ::sleep(3);  // delays the receiver
          expect_the_rest(*group, taken);
          the_store->add("received", 1);
        }
      },
      options());
  job.expect_good_end();
}

TEST_P(LateReceiver, GetsAllMessagesOfASenderThatHasLeft) {
  Processes job(
      2,
      [](Context& context, const Processes::Say&) {
        if (context.rank() == kSender) return send_all(*context.world());
        const int taken = take_until("ranks that have ended", *context.world());
        expect_the_rest(*context.world(), taken);
      },
      options());
  job.expect_good_end();
}

/// Only the message to the departed rank fails. Messages that it sent before are still received.
TEST_P(LateReceiver, GetsAllMessagesAfterItsOwnSendToADepartedRankFailed) {
  Processes job(
      2,
      [](Context& context, const Processes::Say&) {
        Group& world = *context.world();
        if (context.rank() == kSender) return send_all(world);
        const int taken = take_until("ranks that have ended", world);
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 20}) {
          Bytes answer(bytes);
          EXPECT_THROW(world.send(buffer_of(answer), kSender, 0).wait(), PeerError);
        }
        EXPECT_EQ(world.failure(), "");
        expect_the_rest(world, taken);
        if (::testing::Test::HasFailure()) throw Error("see above");
      },
      options());
  job.expect_good_end();
}

INSTANTIATE_TEST_SUITE_P(Over, LateReceiver, ::testing::Values("tcp", "shm"),
                         [](const auto& info) { return info.param; });

/// A receiver that reads nothing delays the sender's shutdown at most by the connect timeout.
TEST(AStoppedReceiver, IsGivenUpWithAWarning) {
  int start[2];
  int log[2];
  ASSERT_EQ(::pipe(start) + ::pipe(log), 0);
  Processes job(2,
                [&start](Context& context, const Processes::Say& say) {
                  Group& world = *context.world();
                  if (context.rank() == kReceiver) {
                    expect_message(world, 0);
                    say("ready");
                    ::sleep(60);  // killed by the test before that
                    return;
                  }
                  Bytes bytes = content(0);
                  world.send(buffer_of(bytes), kReceiver, 0).wait();
                  char byte = 0;
                  if (::read(start[0], &byte, 1) != 1) throw Error("no start");
                  for (int i = 0; i < 10; ++i) {
                    world.send(buffer_of(bytes), kReceiver, 0).wait();
                  }
                },
                {.store_address = {},
                 .config_of =
                     [](int) {
                       Config config = config_of("tcp");
                       config.connect_timeout = 5;
                       config.liveness_interval = 60;
                       // Less than is sent, so that the receiver's kernel cannot take all of it.
                       config.socket_buffer_bytes = 128 << 10;
                       config.log_level = "WARN";
                       return config;
                     },
                 .enter =
                     [&log](int rank) {
                       if (rank == kSender) ::dup2(log[1], STDERR_FILENO);
                     },
                 .at_the_store = {}});
  ASSERT_EQ(job.line(kReceiver), "ready");
  job.signal(kReceiver, SIGSTOP);
  ASSERT_EQ(::write(start[1], "x", 1), 1);
  ASSERT_EQ(job.line(kSender), "done");  // the sender leaves after this
  std::string said;
  while (said.find("may be lost") == std::string::npos) {
    pollfd entry = {log[0], POLLIN, 0};
    ASSERT_GT(::poll(&entry, 1, 30'000), 0) << said;
    char piece[4096];
    const ssize_t n = ::read(log[0], piece, sizeof piece);
    ASSERT_GT(n, 0);
    said.append(piece, static_cast<std::size_t>(n));
  }
  for (const char* word : {"rank 1", "rank 0", "MCCL_CONNECT_TIMEOUT"}) {
    EXPECT_NE(said.find(word), std::string::npos) << word << " in " << said;
  }
}

}  // namespace
}  // namespace mccl::departure
