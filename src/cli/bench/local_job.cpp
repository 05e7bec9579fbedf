#include "cli/bench/local_job.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>

#include "base/clock.h"
#include "cli/bench/local_ranks.h"
#include "cli/bench/port_pipe.h"
#include "mccl/mccl.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::bench {
namespace {

constexpr int kAttemptsAtAPort = 16;

std::string random_key() {
  std::random_device source;
  std::string key;
  for (int i = 0; i < 4; ++i) key += fmt::format("{:08x}", source());
  return key;
}

/// A free port may be taken before it is used. Then another port is tried.
std::shared_ptr<Store> serve_store(const Config& config, PortPipe& pipe) {
  using transport::tcp::Address;
  for (int attempt = 1;; ++attempt) {
    const std::uint16_t port =
        transport::tcp::Listener(*Address::parse_numeric("127.0.0.1", 0), 0).address().port();
    try {
      std::shared_ptr<Store> store =
          make_tcp_store(fmt::format("127.0.0.1:{}", port), 0, config.job_key,
                         milliseconds_of(config.connect_timeout));
      pipe.announce(port);
      return store;
    } catch (const InvalidArgument&) {
      if (attempt == kAttemptsAtAPort) throw;
    }
  }
}

}  // namespace

int run_local_job(int ranks, const char* who, Config config,
                  const std::function<void(Context&)>& body) {
  // Uses any free port, unless the environment sets the ports.
  if (!config.port_base_given.yes) config.port_base = 0;
  if (config.job_key.empty()) config.job_key = random_key();
  return run_local_ranks(ranks, who, [&](int rank, PortPipe& pipe) {
    std::shared_ptr<Store> store;
    if (rank == 0) {
      store = serve_store(config, pipe);
    } else {
      store = make_tcp_store(fmt::format("127.0.0.1:{}", pipe.learn()), rank, config.job_key,
                             milliseconds_of(config.connect_timeout));
    }
    const auto context = Context::create({rank, ranks, store, config, nullptr});
    body(*context);
    context->shutdown();
  });
}

}  // namespace mccl::cli::bench
