#include "engine/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "mccl/error.h"
#include "support/free_places.h"

namespace mccl::engine {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using transport::tcp::Address;

std::optional<RankFigures> one_rank() { return RankFigures{.origin = {.rank = 0}}; }

struct Served {
  int port = support::free_places(1).front().front().port;
  MetricsServer server;

  explicit Served(MetricsServer::Read read = one_rank)
      : server("127.0.0.1", port, std::move(read)) {}

  Descriptor connect() const {
    Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    const Address address =
        Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port)).value();
    EXPECT_EQ(::connect(client.get(), address.data(), address.size()), 0);
    return client;
  }
  /// Returns the answer to a request. Does not fail if the server closes before it has read all.
  std::string answer_to(const std::string& request) const {
    const Descriptor client = connect();
    ::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    for (char bytes[4096];;) {
      const ssize_t n = ::recv(client.get(), bytes, sizeof bytes, 0);
      if (n <= 0) return answer;
      answer.append(bytes, static_cast<std::size_t>(n));
    }
  }
};

TEST(MetricsServer, AnswersInTheFormatThatTheClientAccepts) {
  const Served served;
  const std::string text = served.answer_to("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;"));
  EXPECT_THAT(text, HasSubstr("\nmccl_total_ops{rank=\"0\"} 0\n"));
  const std::string open = served.answer_to(
      "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n");
  EXPECT_THAT(open, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0;"));
  EXPECT_THAT(open, EndsWith("# EOF\n"));
}

TEST(MetricsServer, RefusesOtherRequests) {
  const Served served;
  EXPECT_THAT(served.answer_to("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(served.answer_to("GET /metrics/x HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(served.answer_to("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(served.answer_to("\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(served.answer_to("GET /metrics HTTP/1.1\r\nX: " + std::string(8200, 'x')),
              StartsWith("HTTP/1.1 431 "));
}

TEST(MetricsServer, SaysSoIfTheRankCannotBeRead) {
  const Served served([] { return std::nullopt; });
  EXPECT_THAT(served.answer_to("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 "));
}

TEST(MetricsServer, NamesATakenPort) {
  const Served served;
  try {
    MetricsServer second("127.0.0.1", served.port, one_rank);
    FAIL() << "the port is taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(served.port)));
  }
  EXPECT_THROW(MetricsServer("127.0.0.1", 65536, one_rank), Error);
  EXPECT_THROW(MetricsServer("localhost", served.port, one_rank), Error);
}

TEST(MetricsServer, AChildOfAForkDoesNotKeepThePort) {
  std::optional<Served> served(std::in_place);
  const int port = served->port;
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(::pipe(to_child), 0);
  ASSERT_EQ(::pipe(to_parent), 0);
  char byte = 0;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(to_child[1]);
    served->server.abandon();
    const bool told = ::write(to_parent[1], &byte, 1) == 1;
    ::_exit(told && ::read(to_child[0], &byte, 1) == 0 ? 0 : 1);  // once the parent has finished
  }
  EXPECT_EQ(::read(to_parent[0], &byte, 1), 1);
  served.reset();
  EXPECT_NO_THROW(MetricsServer("127.0.0.1", port, one_rank));
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(end);
  ::waitpid(child, nullptr, 0);
}

TEST(MetricsServer, ClientsThatSayNothingDoNotDelayTheEnd) {
  std::vector<Descriptor> silent;
  {
    const Served served;
    for (int i = 0; i < 4; ++i) silent.push_back(served.connect());
  }
  for (const Descriptor& client : silent) {
    char byte;
    EXPECT_LE(::recv(client.get(), &byte, 1, 0), 0) << "the connection is still open";
  }
}

TEST(MetricsServer, AClientThatSaysNothingDelaysOthersBriefly) {
  const Served served;
  const Descriptor silent = served.connect();
  EXPECT_THAT(served.answer_to("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace mccl::engine
