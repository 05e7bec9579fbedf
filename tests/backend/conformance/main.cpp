// Runs one rank of the conformance suite in the job that its environment describes, on the backend
// that MCCL_BACKEND names:
//
//   mpirun -n 4 mccl_group_conformance [--gtest_filter=…] [MOST]
//
// MOST limits the elements per MPI call, as if an int held no larger count. Every rank runs the
// same checks in the same order. Rank 0 prints the results, the other ranks their failures.
#include <cstdio>
#include <memory>
#include <string>

#include "backend/conformance/checks.h"
#include "backend/mpi/carrier.h"

namespace mccl::conformance {
namespace {

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
    if (argc > 1) mpi::count_at_most(std::stoull(argv[1]));
    own = Context::from_environment();
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
