// Runs the seeds of every fuzz target, truncated at every length and with every byte changed. `make
// fuzz` searches further; this test guards known cases in every run.
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

using Target = int(const std::uint8_t* data, std::size_t size);

// The generated targets.inc has a line MCCL_FUZZ_TARGET(name) for each <name>_fuzz.cpp. Its
// LLVMFuzzerTestOneInput is called fuzz_<name> here.
extern "C" {
#define MCCL_FUZZ_TARGET(name) Target fuzz_##name;
#include "targets.inc"
#undef MCCL_FUZZ_TARGET
}

namespace {

namespace fs = std::filesystem;

const std::map<std::string, Target*> kTargets = {
#define MCCL_FUZZ_TARGET(name) {#name, fuzz_##name},
#include "targets.inc"
#undef MCCL_FUZZ_TARGET
};

/// Saves the failing case to a file, so that it can be replayed, and reports its path.
void report(const std::string& name, const std::vector<std::uint8_t>& bytes, const char* what) {
  const fs::path path = fs::path(::testing::TempDir()) / ("mccl_fuzz_" + name);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  FAIL() << name << ": " << what << "; the case is in " << path;
}

void run(const std::string& name, const std::vector<std::uint8_t>& bytes) {
  // Copies the bytes to memory of exactly their size, so that a sanitizer detects reads past the
  // end.
  const std::vector<std::uint8_t> exact(bytes);
  try {
    kTargets.at(name)(exact.data(), exact.size());
  } catch (const std::exception& error) {
    report(name, exact, error.what());
  }
}

void run_changed(const std::string& name, const std::vector<std::uint8_t>& seed) {
  for (std::size_t length = 0; length <= seed.size(); ++length) {
    run(name, {seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(length)});
    if (::testing::Test::HasFatalFailure()) return;
  }
  std::vector<std::uint8_t> changed = seed;
  for (std::uint8_t& byte : changed) {
    const std::uint8_t before = byte;
    for (const int now : {0, 0xff, before ^ 1, before ^ 0x80, before + 1}) {
      byte = static_cast<std::uint8_t>(now);
      run(name, changed);
      if (::testing::Test::HasFatalFailure()) return;
    }
    byte = before;
  }
}

class Corpus : public ::testing::TestWithParam<std::string> {};

TEST_P(Corpus, GoesThroughItsParser) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(MCCL_FUZZ_CORPUS) / GetParam())) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<std::uint8_t> seed{std::istreambuf_iterator<char>(file), {}};
    SCOPED_TRACE(entry.path().string());
    run_changed(GetParam(), seed);
    if (HasFatalFailure()) return;
    ++files;
  }
  EXPECT_GT(files, 0);
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, target] : kTargets) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(Corpora, BelongToTargets) {
  for (const auto& entry : fs::directory_iterator(MCCL_FUZZ_CORPUS)) {
    EXPECT_TRUE(kTargets.contains(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
