#include "cli/launch/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cli/kit/file.h"
#include "cli/kit/process.h"
#include "cli/launch/job.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 10ms;
/// Time from SIGTERM to SIGKILL for processes left behind by ranks that have ended. reap() has
/// already sent SIGTERM to the process groups of these ranks.
constexpr std::chrono::milliseconds kShortGrace = 1s;
constexpr pid_t kFinish = 0;

/// Closes all descriptors except `kept`, and connects the standard streams to /dev/null. If the
/// guardian kept another pipe's write end open, that pipe's reader would never see end of file.
void close_all_but(int kept) {
  std::vector<int> open;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/fd", ignored))
    open.push_back(std::atoi(entry.path().filename().c_str()));
  for (const int descriptor : open)
    if (descriptor != kept) ::close(descriptor);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int stream = 0; stream <= STDERR_FILENO; ++stream)
    if (stream != nowhere && stream != kept) ::dup2(nowhere, stream);
}

/// Returns all processes with this job's kMark in their environment. They include processes that
/// left their rank's process group. Finds no process on systems without /proc, such as macOS.
std::vector<pid_t> marked_processes(const std::string& folder) {
  std::vector<pid_t> found;
  const std::string mark = fmt::format("{}={}/", kMark, folder);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || process == ::getpid()) continue;
    const std::string environment = contents_of(fmt::format("/proc/{}/environ", process));
    if (environment.starts_with(mark) || environment.find('\0' + mark) != std::string::npos)
      found.push_back(process);
  }
  return found;
}

/// Ends the process groups, and all processes with the mark of the job that has this folder.
void end_leftovers(const std::string& folder, std::set<pid_t> groups,
                   std::chrono::milliseconds grace) {
  // Sends the signal, and returns true if any of these groups and processes still exists.
  const auto signal = [&](int number) {
    std::erase_if(groups, [&](pid_t group) { return ::kill(-group, number) != 0; });
    const std::vector<pid_t> strays = marked_processes(folder);
    for (const pid_t process : strays) ::kill(process, number);
    return !groups.empty() || !strays.empty();
  };
  if (!signal(SIGTERM)) return;
  const Clock::time_point limit = Clock::now() + grace;
  while (signal(0) && Clock::now() < limit) std::this_thread::sleep_for(kBetweenLooks);
  while (signal(SIGKILL) && Clock::now() < limit + grace)
    std::this_thread::sleep_for(kBetweenLooks);
}

[[noreturn]] void guard(const std::string& folder, int pipe, std::chrono::milliseconds grace) {
  ::setsid();
  for (const int number : {SIGCHLD, SIGWINCH}) std::signal(number, SIG_DFL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGUSR1, SIGUSR2})
    std::signal(number, SIG_IGN);
  close_all_but(pipe);
  std::set<pid_t> groups;
  pid_t word = 0;
  bool finished = false;
  while (!finished && read_some(pipe, &word, sizeof word) == sizeof word) {
    finished = word == kFinish;
    if (word > 0) groups.insert(word);
    if (word < 0) groups.erase(-word);
  }
  end_leftovers(folder, std::move(groups), finished ? kShortGrace : grace);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian(std::chrono::milliseconds grace)
    : folder_(make_temporary_folder("mccl-launch")) {
  Pipe pipe = make_pipe();
  process_ = ::fork();
  if (process_ < 0) {
    const int cause = errno;
    std::filesystem::remove_all(folder_);
    throw Error(fmt::format("cannot create a process: {}", std::strerror(cause)));
  }
  if (process_ == 0) {
    pipe.writer.close();
    guard(folder_, pipe.reader.get(), grace);
  }
  pipe_ = std::move(pipe.writer);
}

Guardian::~Guardian() {
  send(kFinish);
  pipe_.close();
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t leader) { send(leader); }
void Guardian::forget(pid_t leader) { send(-leader); }

void Guardian::send(pid_t what) {
  while (::write(pipe_.get(), &what, sizeof what) < 0 && errno == EINTR) {
  }
}

}  // namespace mccl::cli::launch
