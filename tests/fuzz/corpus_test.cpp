// Runs the seeds of every fuzz target, truncated at every length, with every byte changed, and with
// random changes that are the same in every run. `make fuzz` searches further.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

using Bytes = std::vector<std::uint8_t>;
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

const fs::path kFolder = MCCL_FUZZ_FOLDER;

const std::map<std::string, Target*> kTargets = {
#define MCCL_FUZZ_TARGET(name) {#name, fuzz_##name},
#include "targets.inc"
#undef MCCL_FUZZ_TARGET
};

/// Saves the failing case to a file, so that it can be replayed, and reports its path.
void report(const std::string& name, const Bytes& bytes, const char* what) {
  const fs::path path = fs::path(::testing::TempDir()) / ("mccl_fuzz_" + name);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  FAIL() << name << ": " << what << "; the case is in " << path;
}

void run(const std::string& name, const Bytes& bytes) {
  // Copies the bytes to memory of exactly their size, so that a sanitizer detects reads past the
  // end.
  const Bytes exact(bytes);
  try {
    kTargets.at(name)(exact.data(), exact.size());
  } catch (const std::exception& error) {
    report(name, exact, error.what());
  }
}

void run_changed(const std::string& name, const Bytes& seed) {
  for (std::size_t length = 0; length <= seed.size(); ++length) {
    run(name, {seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(length)});
    if (::testing::Test::HasFatalFailure()) return;
  }
  Bytes changed = seed;
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

/// Changes inputs in ways that parsers tend to overlook. Uses no distribution of the standard
/// library, so that all systems make the same changes.
class Changer {
 public:
  explicit Changer(const std::vector<Bytes>& seeds) : seeds_(seeds) {}

  Bytes change() {
    Bytes bytes = seeds_[below(seeds_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  static Bytes::iterator at(Bytes& bytes, std::size_t place) {
    return bytes.begin() + static_cast<std::ptrdiff_t>(place);
  }

  void change(Bytes& bytes) {
    const std::size_t place = below(bytes.size());
    const std::size_t length = below(std::min<std::size_t>(bytes.size() - place, 64) + 1);
    switch (below(bytes.empty() ? 1 : 6)) {
      case 0: {
        const std::size_t count = 1 + below(8);
        bytes.insert(at(bytes, place), count, static_cast<std::uint8_t>(below(256)));
        return;
      }
      case 1:
        bytes[place] = static_cast<std::uint8_t>(below(256));
        return;
      case 2:
        bytes[place] ^= static_cast<std::uint8_t>(1 << below(8));
        return;
      case 3:
        bytes.erase(at(bytes, place), at(bytes, place + length));
        return;
      case 4: {
        const Bytes part(at(bytes, place), at(bytes, place + length));
        bytes.insert(at(bytes, below(bytes.size())), part.begin(), part.end());
        return;
      }
      default: {
        Bytes other = seeds_[below(seeds_.size())];
        const std::size_t from = below(other.size());
        bytes.resize(place);
        bytes.insert(bytes.end(), at(other, from), other.end());
        return;
      }
    }
  }

  const std::vector<Bytes>& seeds_;
  std::mt19937 random_{1};
};

class Corpus : public ::testing::TestWithParam<std::string> {};

TEST_P(Corpus, GoesThroughItsParser) {
  // A folder lists its files in any order.
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kFolder / "corpus" / GetParam()))
    files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Bytes> seeds;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    SCOPED_TRACE(path.string());
    run_changed(GetParam(), seeds.back());
    if (HasFatalFailure()) return;
  }
  ASSERT_FALSE(seeds.empty());
  Changer changer(seeds);
  for (int i = 0; i < MCCL_FUZZ_CHANGES; ++i) {
    run(GetParam(), changer.change());
    if (HasFatalFailure()) return;
  }
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, target] : kTargets) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(Corpora, BelongToTargets) {
  // Builds without the mccl program lack some targets, so the sources are looked up.
  for (const auto& entry : fs::directory_iterator(kFolder / "corpus")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(fs::exists(kFolder / (name + "_fuzz.cpp"))) << entry.path();
  }
}

}  // namespace
