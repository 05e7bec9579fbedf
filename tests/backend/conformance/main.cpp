// One rank of the conformance suite on the job that its environment tells of, whatever backend
// MCCL_BACKEND names: mpirun -n 4 mccl_group_conformance [--gtest_filter=…] [MOST]. With a number,
// MPI is asked to count no more elements than that in a call, as if an int were so short. Every
// rank runs the same checks in the same order; rank 0 writes.
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

/// A context whose calls go in pieces of at most so many elements, as those beyond what an int
/// counts do.
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

/// Destroyed with the program's other statics, which is after the mpi backend has ended MPI.
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

/// What ranks other than 0 say: what has failed.
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
