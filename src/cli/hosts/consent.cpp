#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/hosts/setup_run.h"
#include "cli/kit/program.h"
#include "mccl/error.h"

namespace mccl::cli::hosts {
namespace {

using cluster::SetupStep;

/// Reads a line of standard input. Returns the line without its line end, or nothing at the end of
/// input.
std::optional<std::string> line_of_person(Signals& signals) {
  std::string line;
  for (bool ended = false, more = true; more;) {
    Watch watch;
    watch.on(STDIN_FILENO, POLLIN, [&] {
      char next = '\n';
      ended = ::read(STDIN_FILENO, &next, 1) != 1;
      more = !ended && next != '\n';
      if (more) line += next;
    });
    watch.on(signals.descriptor(), POLLIN, [&] { signals.heed("; nothing was changed"); });
    watch.wait();
    if (ended && line.empty()) return {};
  }
  return line;
}

/// Returns true if the user types "y", "Y" or "yes". Throws Error on a signal, or if standard input
/// has ended.
bool person_agrees(Signals& signals) {
  fmt::print(stderr, "Run these commands? [y/N] ");
  std::fflush(stderr);
  const auto answer = line_of_person(signals);
  if (!answer)
    throw Error(
        "nothing was changed: no answer could be read from standard input; pass --yes to skip the "
        "question");
  return *answer == "y" || *answer == "Y" || *answer == "yes";
}

/// Returns a script for the user that undoes the steps, the last one first.
std::string undo_script(std::span<const Host> hosts, std::span<const SetupStep> steps,
                        const std::vector<std::string>& ssh_arguments) {
  std::string text =
      "#!/bin/sh\n# Undoes the changes of mccl config --auto-setup or mccl doctor --fix: run it as "
      "sh FILE.\nstatus=0\n";
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Host& host = hosts[static_cast<std::size_t>(steps[i].host)];
    std::vector<std::string> words = {"sh", "-c"};
    if (!is_here(host)) {
      words = destination_words(host, ssh_arguments);
      words.insert(words.begin(), "ssh");
    }
    words.push_back(steps[i].undo);
    text += fmt::format("{} < /dev/null || status=1\n", command_line(words));
  }
  return text + "exit $status\n";
}

/// Writes the script to `path`, or to a numbered path beside it if `path` exists. Returns the path.
std::string write_undo_script(const std::string& path, const std::string& script) {
  std::string place = path;
  for (int number = 2; std::filesystem::exists(place); ++number)
    place = fmt::format("{}.{}", path, number);
  std::ofstream file(place, std::ios::binary);
  file << script;
  file.close();
  if (!file)
    throw Error(
        fmt::format("cannot write the script {} that undoes the changes: {}; nothing was changed",
                    place, std::strerror(errno)));
  ::chmod(place.c_str(), S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
  return place;
}

}  // namespace

std::string agree_to(const SetupPlan& plan, const std::string& undo_path, bool sure,
                     const Reaching& reaching, Signals& signals, const Say& say) {
  if (!sure && !person_agrees(signals)) return {};
  std::string undo =
      write_undo_script(undo_path, undo_script(plan.hosts, plan.steps, reaching.ssh_arguments));
  say(fmt::format("sh {} undoes the following changes", undo));
  return undo;
}

}  // namespace mccl::cli::hosts
