// Runs ranks as threads of one process. Every test of a group uses real contexts and real sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mccl/mccl.h"

namespace mccl::testing {

/// Settings for tests: any free port, and timeouts short enough that a fault ends a test instead of
/// hanging it.
inline Config test_config() {
  Config config;
  config.backend = "native";  // on a machine with GPUs, `auto` makes additional calls
  config.port_base = 0;
  config.timeout = 60;
  config.connect_timeout = 60;
  config.log_level = "ERROR";
  return config;
}

/// Runs `body` on `size` ranks at once. Returns the exception of each rank, or null if it threw
/// none.
inline std::vector<std::exception_ptr> outcomes_of_ranks(
    int size, const std::function<void(Context&)>& body,
    const std::function<Config(int)>& config_of = {}) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const std::shared_ptr<Context> context = Context::create(
            {rank, size, store, config_of ? config_of(rank) : test_config(), nullptr});
        body(*context);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Runs `body` on `size` ranks, and rethrows the exception of the lowest rank that threw one.
inline void run_ranks(int size, const std::function<void(Context&)>& body,
                      const std::function<Config(int)>& config_of = {}) {
  const auto and_wait = [&body](Context& context) {
    body(context);
    context.world()->barrier().wait();  // no rank leaves while others check
  };
  for (const std::exception_ptr& error : outcomes_of_ranks(size, and_wait, config_of)) {
    if (error) std::rethrow_exception(error);
  }
}

/// Runs `body` on `size` ranks. Returns the error text of each rank, or "" if it threw nothing.
inline std::vector<std::string> run_failing_ranks(
    int size, const std::function<void(Context&)>& body,
    const std::function<Config(int)>& config_of = {}) {
  std::vector<std::string> texts;
  for (const std::exception_ptr& error : outcomes_of_ranks(size, body, config_of)) {
    texts.emplace_back();
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& thrown) {
      texts.back() = thrown.what();
    }
  }
  return texts;
}

}  // namespace mccl::testing
