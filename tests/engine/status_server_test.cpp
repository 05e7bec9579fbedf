#include "engine/status_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "support/folder.h"

namespace mccl::engine {
namespace {

using testing::contents_of;
using testing::Folder;
using Json = nlohmann::json;

const FlightOrigin kOrigin{.job = "j", .host = "desk", .rank = 3, .size = 4};

/// Returns the path of the status socket that this process serves as rank 3; empty if there is
/// none.
std::string socket_path() {
  const std::string prefix = std::to_string(::getpid()) + "-3-";
  for (const auto& each : std::filesystem::directory_iterator(node::status_folder())) {
    if (each.path().filename().string().starts_with(prefix)) return each.path();
  }
  return {};
}

std::string answer_to(std::string_view request) {
  const node::LocalConnection connection = node::LocalConnection::dial(socket_path()).first;
  EXPECT_TRUE(connection);
  EXPECT_TRUE(connection.send(std::as_bytes(std::span(request)), {}));
  std::string answer;
  for (char bytes[4096];;) {
    const ssize_t n = ::recv(connection.descriptor(), bytes, sizeof bytes, 0);
    if (n <= 0) return answer;
    answer.append(bytes, static_cast<std::size_t>(n));
  }
}

struct Rank3 {
  FlightRecorder recorder{kOrigin};
  const Log log{3, LogLevel::off};
  Config config;
};

TEST(StatusServer, AnswersWithTheRecordAndTheStatus) {
  Rank3 scene;
  scene.recorder.write({});
  StatusServer server(
      scene.config, scene.recorder, scene.log,
      {.status = [] { return R"({"fine": 1})"; }, .others = [] { return R"({"ranks": []})"; }});
  EXPECT_EQ(Json::parse(answer_to(node::kRequestRecord))["calls"].size(), 1U);
  EXPECT_EQ(answer_to(node::kRequestStatus), R"({"fine": 1})");
  EXPECT_EQ(answer_to(node::kRequestOthers), R"({"ranks": []})");
  EXPECT_THAT(answer_to("record9\n"), ::testing::HasSubstr("another version"));
  server.stop();
  EXPECT_EQ(socket_path(), "");
}

TEST(StatusServer, ClientsThatSayNothingDoNotDelayTheEnd) {
  Rank3 scene;
  StatusServer server(scene.config, scene.recorder, scene.log, {});
  const auto silent = node::LocalConnection::dial(socket_path()).first;
  EXPECT_TRUE(silent);
  { const auto gone = node::LocalConnection::dial(socket_path()).first; }
  EXPECT_THAT(answer_to(node::kRequestRecord), ::testing::HasSubstr("\"rank\":3"));
}

/// The server waits two seconds for the first client's request, of which a part is missing.
TEST(StatusServer, HasFewWaitingClientsAndReadsLittle) {
  Rank3 scene;
  StatusServer server(scene.config, scene.recorder, scene.log, {});
  const auto slow = node::LocalConnection::dial(socket_path()).first;
  const std::string part(node::kRequestBytes - 1, 'x');
  EXPECT_TRUE(slow.send(std::as_bytes(std::span(part)), {}));
  std::vector<node::LocalConnection> waiting;
  bool is_full = false;
  while (!is_full && waiting.size() < 100) {
    auto [connection, full] = node::LocalConnection::dial(socket_path());
    is_full = full;
    if (connection) waiting.push_back(std::move(connection));
  }
  EXPECT_TRUE(is_full);
  EXPECT_LE(waiting.size(), 18U) << "16, one that Linux adds, and one that is being served";
  waiting.clear();
  // A longer request is answered after its first bytes.
  std::string answer;
  for (const Clock::time_point limit = Clock::now() + std::chrono::minutes(1); answer.empty();) {
    ASSERT_LT(Clock::now(), limit);
    auto [connection, full] = node::LocalConnection::dial(socket_path());
    if (!connection) continue;
    const std::string request = std::string(node::kRequestRecord) + std::string(100'000, 'x');
    (void)::send(connection.descriptor(), request.data(), request.size(), MSG_NOSIGNAL);
    char bytes[100];
    const ssize_t n = ::recv(connection.descriptor(), bytes, sizeof bytes, 0);
    if (n > 0) answer.assign(bytes, static_cast<std::size_t>(n));
  }
  EXPECT_THAT(answer, ::testing::HasSubstr("\"rank\":3"));
}

TEST(StatusServer, WritesTheRecordOfAFailureBeforeItEnds) {
  const Folder folder;
  Rank3 scene;
  scene.config.flight_recorder_file = folder.path() + "/%r.json";
  {
    StatusServer server(scene.config, scene.recorder, scene.log, {});
    server.write_record();
  }
  EXPECT_EQ(Json::parse(contents_of(folder.path() + "/3.json"))["reason"], "failure");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(StatusServer, AFolderThatDoesNotExistIsNoFailure) {
  Rank3 scene;
  scene.config.flight_recorder_file = "/nowhere/%r.json";
  StatusServer server(scene.config, scene.recorder, scene.log, {});
  server.write_record();
}

TEST(StatusServer, WritesTheRecordOnASignalThatTheProgramLeavesAlone) {
  const Folder folder;
  Rank3 scene;
  scene.config.flight_recorder_file = folder.path() + "/%r.json";
  scene.config.flight_recorder_signal = "USR2";
  const StatusServer server(scene.config, scene.recorder, scene.log, {});
  ::raise(SIGUSR2);
  while (!std::filesystem::exists(folder.path() + "/3.json")) std::this_thread::yield();
  EXPECT_EQ(Json::parse(contents_of(folder.path() + "/3.json"))["reason"], "signal");
}

TEST(StatusServer, AProgramsOwnHandlerStaysInPlace) {
  const Folder folder;
  Rank3 scene;
  scene.config.flight_recorder_file = folder.path() + "/%r.json";
  scene.config.flight_recorder_signal = "USR1";
  const auto own = +[](int) {};
  ::signal(SIGUSR1, own);
  {
    const StatusServer server(scene.config, scene.recorder, scene.log, {});
    struct sigaction now = {};
    ::sigaction(SIGUSR1, nullptr, &now);
    EXPECT_EQ(now.sa_handler, own);
  }
  ::signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace mccl::engine
