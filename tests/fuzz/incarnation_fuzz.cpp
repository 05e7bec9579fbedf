// The store's entries about one run of a job, which a stranger may have written to a store that
// cannot be guarded. The first bytes hold the rank and the store's counters; the rest holds its
// texts, with a zero byte after each. Each call must return or throw an error of MCCL at once.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "input.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/incarnation.h"

namespace {

using mccl::fuzz::Input;

class EntriesStore final : public mccl::Store {
 public:
  void read_counters(Input& input) {
    for (const char* name : {"mccl/arrivals", "mccl/answered", "mccl/deaths", "mccl/reigns"})
      counters_[name] += static_cast<std::int8_t>(input.byte());
    for (const char* name : {"failures", "present"}) others_[name] += input.byte() % 3;
  }
  void read_texts(std::string_view text) {
    for (const char* name :
         {"mccl/arrival/", "mccl/welcome/", "failure", "mccl/death/", "mccl/met", "second", "who"})
      texts_[name] = mccl::rendezvous::next_part(text, '\0');
  }

  void set(const std::string&, std::string_view) override {}
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    for (const auto& [name, text] : texts_)
      if (!text.empty() && key.find(name) != key.npos) return text;
    throw mccl::TimeoutError(key + " was not set");
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    // Every rank has read the report of a failure, so that fail() does not wait.
    if (key.ends_with("/told")) return 1000;
    for (const auto& [name, value] : others_)
      if (key.find("/" + name) != key.npos) return value + amount;
    return counters_[key] += amount;
  }

 private:
  std::map<std::string, std::int64_t> counters_;
  std::map<std::string, std::int64_t> others_;  ///< Counters whose names contain that of the run.
  std::map<std::string, std::string> texts_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::rendezvous;
  Input input(data, size);
  const int rank = static_cast<int>(input.byte() % 3);
  const auto store = std::make_shared<EntriesStore>();
  store->read_counters(input);
  Input later = input;
  (void)input.take(6);
  store->read_texts(input.text());
  try {
    JoinRequest self{.rank = rank, .size = 3, .agreement = "a=1\n"};
    self.on_second = [](const std::string&) {};
    Incarnation run(store, self, std::chrono::milliseconds(0));
    store->read_counters(later);
    run.look();
    (void)run.get("a card", std::chrono::milliseconds(0));
  } catch (const mccl::Error& error) {
    mccl::fuzz::require(*error.what() != '\0', "an error without a text");
  }
  return 0;
}
