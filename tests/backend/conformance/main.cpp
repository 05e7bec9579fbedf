// Runs one rank of the conformance suite in the job that its environment describes, on the backend
// that MCCL_BACKEND names:
//
//   mpirun -n 4 mccl_group_conformance [--gtest_filter=…] [MOST]
//
// MOST limits the elements per MPI call, as if an int held no larger count. Every rank runs the
// same checks in the same order. Rank 0 prints the results, the other ranks their failures.
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/conformance/checks.h"
#include "backend/mpi/backend.h"

namespace mccl::conformance {
namespace {

/// A context that splits calls into pieces of at most `most` elements, as it splits calls whose
/// count exceeds an int.
class InPieces final : public Context {
 public:
  InPieces(const ContextOptions& options, std::size_t most)
      : config_(options.config), metrics_(options.metrics), backend_(options, most) {
    std::vector<int> everyone(static_cast<std::size_t>(backend_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    world_ = backend_.make_group("world", everyone, std::chrono::seconds(60), {});
  }
  ~InPieces() override { backend_.shutdown(); }
  int rank() const override { return backend_.rank(); }
  int size() const override { return backend_.size(); }
  const Config& config() const override { return config_; }
  std::shared_ptr<Metrics> metrics() const override { return metrics_; }
  Costs costs() const override { return {}; }
  std::shared_ptr<Group> world() override { return world_; }
  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               std::chrono::milliseconds timeout,
                               const std::optional<Compression>& compression) override {
    return backend_.make_group(name, members, timeout, compression);
  }
  void shutdown() override { backend_.shutdown(); }
  void before_fork() noexcept override { backend_.before_fork(); }
  void after_fork_in_parent() noexcept override { backend_.after_fork_in_parent(); }
  void abandon_after_fork() noexcept override { backend_.abandon_after_fork(); }

 private:
  const Config config_;
  const std::shared_ptr<Metrics> metrics_;
  mpi::MpiBackend backend_;
  std::shared_ptr<Group> world_;
};

std::shared_ptr<Context> make_context(std::size_t most) {
  if (most == 0) return Context::from_environment();
  ContextOptions options{-1, -1, nullptr, Config::from_environment(), std::make_shared<Metrics>()};
  return std::make_shared<InPieces>(options, most);
}

/// Returns the context, a static object. It is destroyed with the program's other statics, after
/// the mpi backend has finalised MPI.
std::shared_ptr<Context>& context() {
  static std::shared_ptr<Context> instance;
  return instance;
}

class OfCheck : public ::testing::Test {
 public:
  explicit OfCheck(Check check) : check_(check) {}
  void TestBody() override {
    if (context()->size() >= check_.least) {
      check_.run(*context());
    } else {
      GTEST_SKIP() << "needs " << check_.least << " ranks";
    }
  }
  void TearDown() override { context()->world()->barrier().wait(); }

 private:
  const Check check_;
};

/// Prints the failures of ranks other than 0.
class Failures : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override { name_ = test.name(); }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s: line %d: %s\n", context()->rank(), name_.c_str(),
                 result.line_number(), result.message());
  }

  std::string name_;
};

void add(const char* suite, std::span<const Check> checks) {
  for (const Check& check : checks) {
    ::testing::RegisterTest(suite, check.name, nullptr, nullptr, __FILE__, __LINE__,
                            [check]() -> ::testing::Test* { return new OfCheck(check); });
  }
}

}  // namespace
}  // namespace mccl::conformance

int main(int argc, char** argv) {
  using namespace mccl;
  using namespace mccl::conformance;
  ::testing::InitGoogleTest(&argc, argv);
  add("Collectives", collective_checks());
  add("Reductions", reduction_checks());
  add("Messages", message_checks());
  add("Groups", group_checks());
  if (Config::from_environment().backend == "mpi") add("Mpi", mpi_checks());
  int failed = 1;
  try {
    std::shared_ptr<Context>& own = context();
    own = make_context(argc > 1 ? std::stoull(argv[1]) : 0);
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    if (context()->rank() != 0) {
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new Failures);
    }
    failed = RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return failed;
}
