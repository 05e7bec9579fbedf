// Tests that the job's key and the keys of connections are in no memory of a rank that a core dump
// contains, and that the job's key is not in its environment and arguments as other processes see
// them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/descriptor.h"
#include "mccl/mccl.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/tcp_store.h"
#include "support/folder.h"
#include "support/hex.h"
#include "support/processes.h"
#include "transport/tcp_pair.h"

// The sanitizers map terabytes of memory, and never forget what a program has freed.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace mccl {
namespace {

using namespace std::chrono_literals;
using mccl::testing::contents_of;
using ::testing::HasSubstr;
using ::testing::Not;

/// A rank, which KeyMemory.IsInNoCoreDump starts in a new process.
TEST(KeyMemory, DISABLED_ARank) {
  const auto context = Context::from_environment();
  float value = 1;
  context->world()
      ->all_reduce({&value, 1, DType::f32}, {&value, 1, DType::f32}, ReduceKind::sum)
      .wait();
  ASSERT_EQ(value, 2);
  std::puts("ready");
  std::fflush(stdout);
  ::pause();
}

/// A process with an encrypted connection to itself, which KeyMemory.HoldsNoSessionKey starts. It
/// writes the secrets of the connection to its standard output, and keeps no copy.
TEST(KeyMemory, DISABLED_AnEncryptedConnection) {
  using namespace transport::tcp;
  const auto encryption = Encryption::by_key();
  SSL_CTX_set_keylog_callback(encryption->context(), [](const SSL* ssl, const char* line) {
    const std::string_view text(line);
    if (::write(STDOUT_FILENO, text.data(), text.size()) < 0 || ::write(STDOUT_FILENO, "\n", 1) < 0)
      std::abort();
    TlsHandshake::keep_secret(ssl, line);
  });
  const SocketPair ends = encrypted_sockets("127.0.0.1", encryption);
  const std::array<std::byte, 100> bytes{};
  for (const Socket* end : {&ends.first, &ends.second}) {
    end->secure()->use(std::make_shared<Outbox>(2));
    ASSERT_EQ(end->send(bytes).bytes, bytes.size());
  }
  std::array<std::byte, 200'000> got;  // So large that further threads get the key.
  for (const Socket* end : {&ends.first, &ends.second}) {
    pollfd entry = {end->descriptor(), POLLIN, 0};
    ASSERT_GT(::poll(&entry, 1, 20'000), 0);
    ASSERT_EQ(end->receive(got).bytes, bytes.size());
  }
  ASSERT_TRUE(ends.first.secure()->replace_key());
  ASSERT_EQ(ends.first.send(bytes).bytes, bytes.size());
  pollfd entry = {ends.second.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&entry, 1, 20'000), 0);
  ASSERT_EQ(ends.second.receive(got).bytes, bytes.size());
  std::puts("ready");
  std::fflush(stdout);
  ::pause();
}

/// A process that executes this program anew, so that it inherits no memory of this one.
class Child {
 public:
  Child(const std::map<std::string, std::string>& environment, const std::string& folder,
        const std::string& test = "DISABLED_ARank") {
    std::array<int, 2> ends = {};
    if (::pipe(ends.data()) != 0) throw Error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      std::vector<std::string> entries;
      entries.reserve(environment.size());
      for (const auto& [name, value] : environment)
        entries.push_back(fmt::format("{}={}", name, value));
      std::vector<char*> pointers;
      pointers.reserve(entries.size() + 1);
      for (std::string& entry : entries) pointers.push_back(entry.data());
      pointers.push_back(nullptr);
      std::string disabled = "--gtest_also_run_disabled_tests";
      std::string filter = "--gtest_filter=KeyMemory." + test;
      std::string name = "rank";
      char* const arguments[] = {name.data(), disabled.data(), filter.data(), nullptr};
      const std::string program = std::filesystem::read_symlink("/proc/self/exe");
      const rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
      (void)::setrlimit(RLIMIT_CORE, &unlimited);
      ::dup2(ends[1], STDOUT_FILENO);
      if (::chdir(folder.c_str()) == 0) ::execve(program.c_str(), arguments, pointers.data());
      ::_exit(1);
    }
    ::close(ends[1]);
    output_ = Descriptor(ends[0]);
  }
  ~Child() { end(SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits until the process is ready. Returns false if it fails instead.
  bool is_ready() {
    std::array<char, 512> piece;
    while (said_.find("ready\n") == said_.npos) {
      const ssize_t n = ::read(output_.get(), piece.data(), piece.size());
      if (n <= 0) return false;
      said_.append(piece.data(), static_cast<std::size_t>(n));
    }
    return true;
  }
  /// The output until the process was ready.
  const std::string& said() const { return said_; }
  /// Ends the process with the signal, and returns its status.
  int end(int signal) {
    int status = 0;
    if (process_ < 0) return status;
    ::kill(process_, signal);
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return status;
  }
  std::string file(const std::string& name) const {
    return "/proc/" + std::to_string(process_) + "/" + name;
  }

 private:
  pid_t process_ = -1;
  Descriptor output_;
  std::string said_;
};

/// The memory of a process: what a core dump may contain, and what is marked MADV_DONTDUMP.
struct Memory {
  std::string dumped;
  std::string left_out;
};

Memory memory_of(const Child& child) {
  std::ifstream bytes(child.file("mem"), std::ios::binary);
  std::istringstream lines(contents_of(child.file("smaps")));
  Memory memory;
  unsigned long begin = 0, end = 0;
  char readable = '-';
  for (std::string line; std::getline(lines, line);) {
    unsigned long first = 0, last = 0;
    char access = '-';
    if (std::sscanf(line.c_str(), "%lx-%lx %c", &first, &last, &access) == 3) {
      begin = first;
      end = last;
      readable = access;
    }
    if (!line.starts_with("VmFlags:") || readable != 'r') continue;
    std::string& part = line.find(" dd") == line.npos ? memory.dumped : memory.left_out;
    // The process still runs, so parts of the mapping may be gone.
    constexpr unsigned long kPiece = 4096;
    for (unsigned long at = begin; at < end; at += kPiece) {
      std::array<char, kPiece> piece;
      bytes.clear();
      bytes.seekg(static_cast<std::streamoff>(at));
      bytes.read(piece.data(), piece.size());
      part.append(piece.data(), static_cast<std::size_t>(bytes.gcount()));
    }
  }
  return memory;
}

/// The name of the job's run, which its key is derived from.
std::string name_of_run(const std::string& root, const std::string& key) {
  const auto store = rendezvous::make_tcp_store_for(
      {.job_key = key, .encryption = transport::tcp::Encryption::by_key()}, root, 2, 20s, {});
  const std::string welcome = store->get("mccl/welcome/1", 20s);
  return welcome.substr(0, welcome.find('\n'));
}

std::string core_dump_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("core")) return contents_of(entry.path());
  }
  return {};
}

bool contains(const std::string& bytes, std::string_view text) {
  return bytes.find(text) != bytes.npos;
}

/// True if the bytes contain a piece of the secret. Freed memory may lack the beginning.
bool contains_part(const std::string& bytes, std::string_view secret) {
  constexpr std::size_t kPiece = 16;
  for (; secret.size() >= kPiece; secret.remove_prefix(kPiece)) {
    if (contains(bytes, secret.substr(0, kPiece))) return true;
  }
  return false;
}

TEST(KeyMemory, IsInNoCoreDump) {
  const mccl::testing::Folder folder;
  const std::string key(rendezvous::make_job_key().view());
  const std::string other = rendezvous::make_random_name(32);
  const std::string root = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  std::map<std::string, std::string> environment = {
      {"MCCL_JOB_KEY", key},       {"MCCL_ENCRYPTION", "on"}, {"MCCL_TRANSPORT", "tcp"},
      {"MCCL_WORLD_SIZE", "2"},    {"MCCL_PORT_BASE", "0"},   {"MCCL_ROOT", root},
      {"MCCL_LOG_LEVEL", "DEBUG"}, {"OTHER_TEXT", other},     {"MCCL_RANK", "0"},
      {"MCCL_LOG_FILE", "log-%r"}};
  Child first(environment, folder.path());
  environment["MCCL_RANK"] = "1";
  Child second(environment, folder.path());
  for (Child* child : {&first, &second}) ASSERT_TRUE(child->is_ready());
  const std::string run(rendezvous::text_of(
      rendezvous::prove(key, "mccl incarnation", rendezvous::bytes_of(name_of_run(root, key)))));
  for (int rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    Child& child = rank == 0 ? first : second;
    const std::string seen = contents_of(child.file("environ"));
    EXPECT_THAT(seen, HasSubstr(other));
    EXPECT_THAT(seen, Not(HasSubstr(key)));
    EXPECT_THAT(contents_of(child.file("cmdline")), Not(HasSubstr(key)));
    const Memory memory = memory_of(child);
    if (memory.dumped.empty()) GTEST_SKIP() << "this process cannot read the memory of another";
    EXPECT_TRUE(contains(memory.dumped, other)) << "the search must find what is there";
    EXPECT_TRUE(contains(memory.left_out, key));
    EXPECT_TRUE(contains(memory.left_out, run));
    EXPECT_FALSE(contains_part(memory.dumped, key));
    EXPECT_FALSE(contains_part(memory.dumped, run));
  }
  // A core dump, if this machine writes it to the folder in which the rank runs.
  const bool goes_elsewhere =
      contents_of("/proc/sys/kernel/core_pattern").find_first_of("|/") != std::string::npos;
  if (WCOREDUMP(second.end(SIGABRT)) && !goes_elsewhere) {
    const std::string dump = core_dump_in(folder.path());
    EXPECT_TRUE(contains(dump, other)) << "the core dump must be found and contain what is there";
    EXPECT_FALSE(contains_part(dump, key));
    EXPECT_FALSE(contains_part(dump, run));
  }
  for (const char* log : {"log-0", "log-1"}) {
    const std::string text = contents_of(folder.path() + "/" + log);
    EXPECT_TRUE(contains(text, "(set) (MCCL_JOB_KEY"));
    EXPECT_FALSE(contains_part(text, key));
  }
}

/// HKDF-Expand-Label (RFC 8446, section 7.1).
std::string derived(const std::string& secret, const std::string& label, char bytes) {
  using namespace std::literals;
  const std::string text = "tls13 " + label;
  const std::string info = "\0"s + bytes + static_cast<char>(text.size()) + text + "\0\x01"s;
  std::array<unsigned char, 32> key{};
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(info.data()), info.size(), key.data(), nullptr);
  return {key.begin(), key.begin() + bytes};
}

TEST(KeyMemory, HoldsNoSessionKeyInACoreDump) {
  const mccl::testing::Folder folder;
  Child child({}, folder.path(), "DISABLED_AnEncryptedConnection");
  ASSERT_TRUE(child.is_ready());
  const Memory memory = memory_of(child);
  if (memory.dumped.empty()) GTEST_SKIP() << "this process cannot read the memory of another";
  int secrets = 0;
  std::istringstream lines(child.said());
  for (std::string line; std::getline(lines, line);) {
    const bool is_used = line.find("TRAFFIC_SECRET_0 ") != line.npos;
    if (!is_used && line.find("SECRET") == line.npos) continue;
    SCOPED_TRACE(line.substr(0, line.find(' ')));
    const std::string secret(rendezvous::text_of(
        mccl::testing::bytes_of_hex(std::string_view(line).substr(line.rfind(' ') + 1))));
    // The key of the client's direction has been replaced.
    const std::string next = derived(secret, "traffic upd", 32);
    for (const std::string& each : {secret, next}) {
      EXPECT_FALSE(contains_part(memory.dumped, each));
      EXPECT_FALSE(contains(memory.dumped, derived(each, "key", 16)));
    }
    if (!is_used) continue;
    ++secrets;
    const std::string& present = line.starts_with("CLIENT") ? next : secret;
    EXPECT_TRUE(contains(memory.left_out, present));
    EXPECT_TRUE(contains(memory.left_out, derived(present, "key", 16)));
  }
  EXPECT_EQ(secrets, 4) << "both ends report both secrets";
}

}  // namespace
}  // namespace mccl

#endif
