// Runs ranks as separate processes, which a test can kill, stop, or move to another host.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mccl/mccl.h"
#include "support/ranks.h"

#ifdef __linux__
/// Writes the counts of executed lines. Defined only in a build that counts them.
extern "C" void __gcov_dump() __attribute__((weak));
#endif

namespace mccl::testing {

/// Returns a port of this host that was free at the time of the call.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

/// The ranks of a job as child processes, each of which sends lines of text to this process. The
/// destructor kills the processes that are left. The constructor forks, so it must be called while
/// this process has a single thread.
class Processes {
 public:
  /// The body of one rank, which sends lines with `say`. When the body ends, the rank sends "done"
  /// or the text of the error.
  using Say = std::function<void(const std::string& line)>;
  using Body = std::function<void(Context& context, const Say& say)>;

  struct Options {
    std::string store_address;             ///< If empty, a free port of this host.
    std::function<Config(int)> config_of;  ///< If null, test_config().
    std::function<void(int)> enter;        ///< Called first in each process.
    /// Called when the rank has connected to the store, before it connects to the other ranks.
    std::function<void(int rank, Store& store)> at_the_store;
    /// Returns the store through which the ranks find each other. If null, the given store is used.
    std::function<std::shared_ptr<Store>(int rank, std::shared_ptr<Store> store)> store_for;
  };

  Processes(int size, const Body& body, Options options = {}) {
    if (options.store_address.empty()) {
      options.store_address = "127.0.0.1:" + std::to_string(free_port());
    }
    for (int rank = 0; rank < size; ++rank) start(rank, size, body, options);
  }
  ~Processes() {
    for (const Rank& rank : ranks_) {
      ::kill(rank.process, SIGKILL);
      ::waitpid(rank.process, nullptr, 0);
      ::close(rank.output);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void signal(int rank, int number) const { ::kill(ranks_[rank].process, number); }

  /// Returns the next line of a rank, "" at its end, or "(silence)" on timeout.
  std::string line(int rank, std::chrono::seconds patience = std::chrono::seconds(60)) {
    Rank& from = ranks_[rank];
    const auto limit = std::chrono::steady_clock::now() + patience;
    for (;;) {
      const std::size_t end = from.text.find('\n');
      if (end != std::string::npos) {
        const std::string line = from.text.substr(0, end);
        from.text.erase(0, end + 1);
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          limit - std::chrono::steady_clock::now());
      pollfd entry = {from.output, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) == 0) {
        return "(silence)";
      }
      char piece[4096];
      const ssize_t n = ::read(from.output, piece, sizeof piece);
      if (n > 0) from.text.append(piece, static_cast<std::size_t>(n));
      if (n == 0) return std::exchange(from.text, {});
    }
  }

  /// Expects that the next line of every rank is "done", so that no rank failed.
  void expect_good_end() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      EXPECT_EQ(line(static_cast<int>(rank)), "done") << "rank " << rank;
    }
  }

 private:
  struct Rank {
    pid_t process = -1;
    int output = -1;
    std::string text;
  };

  void start(int rank, int size, const Body& body, const Options& options) {
    int ends[2];
    if (::pipe(ends) != 0) throw Error("no pipe");
    const pid_t process = ::fork();
    if (process != 0) {
      ::close(ends[1]);
      ranks_.push_back({process, ends[0], {}});
      return;
    }
    for (const Rank& other : ranks_) ::close(other.output);
    ::close(ends[0]);
    const Say say = [out = ends[1]](std::string line) {
      for (char& c : line) c = c == '\n' ? ' ' : c;
      line += '\n';
      static_cast<void>(::write(out, line.data(), line.size()) < 0);
    };
    run(rank, size, body, options, say);
  }

  /// Runs the child process and never returns; only the parent continues the test program.
  [[noreturn]] static void run(int rank, int size, const Body& body, const Options& options,
                               const Say& say) {
    std::shared_ptr<Store> store;
    try {
      if (options.enter) options.enter(rank);
      store = make_tcp_store(options.store_address, rank, "key", std::chrono::seconds(60));
      if (options.at_the_store) options.at_the_store(rank, *store);
      const std::shared_ptr<Store> meets_at =
          options.store_for ? options.store_for(rank, store) : store;
      Config config = options.config_of ? options.config_of(rank) : test_config();
      // Ranks on several hosts need a key. A test with its own stores sets one if it needs one.
      if (options.enter && !options.store_for && config.job_key.empty())
        config.job_key = "the key of the hosts";
      const std::shared_ptr<Context> context =
          Context::create({rank, size, meets_at, config, nullptr});
      body(*context, say);
      say("done");
    } catch (const std::exception& error) {
      say(error.what());
    } catch (...) {
      say("(something else was thrown)");
    }
    if (store) leave(rank, size, *store);
#ifdef __linux__
    if (__gcov_dump) __gcov_dump();
#endif
    ::_exit(0);
  }

  /// Keeps rank 0, which serves the store, alive until all ranks have ended. If a rank was killed,
  /// rank 0 waits until the destructor kills it.
  static void leave(int rank, int size, Store& store) {
    try {
      store.add("ranks that have ended", 1);
      while (rank == 0 && store.add("ranks that have ended", 0) < size) ::usleep(1000);
    } catch (const std::exception&) {
      return;  // rank 0 was killed
    }
  }

  std::vector<Rank> ranks_;
};

}  // namespace mccl::testing
