#include "cli/launch/remote_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/value_text.h"
#include "cli/kit/program.h"
#include "cli/kit/ssh.h"

namespace mccl::cli::launch {
namespace {

/// Shell functions of the guard. $d is the folder, $g the seconds between SIGTERM and SIGKILL, and
/// $w the process that counts beats. Strays are processes that left their rank's process group; the
/// variable kMark in their environment identifies them. In count_beats(), descriptor 4 is the
/// guard's standard output.
constexpr const char* kGuard = R"sh(
say() { printf '\nTOKEN %s\n' "$*"; }
full() { say full "$d"; rm -rf "$d"; exit 97; }
each() {
  for f in "$d"/run.*; do
    [ -f "$f" ] && read -r p < "$f" && kill -s "$1" "$p" 2>/dev/null
  done
}
cores() {
  t=$(command -v taskset) && [ -r /proc/self/status ] || return 0
  a=
  while read -r k v; do [ "$k" = Cpus_allowed_list: ] && a=$v; done < /proc/self/status
  l=
  for c in /sys/devices/system/cpu/cpu[0-9]*; do
    read -r p < "$c/topology/physical_package_id" && read -r i < "$c/topology/core_id" || continue
    l="$l ${c##*/cpu}:$p:$i"
  done
  [ -z "$a" ] || say cores "$t" "$a" "$l"
}
groups() {
  for f in "$d"/pid.*; do
    [ -f "$f" ] && read -r p < "$f" && kill -s "$1" -- "-$p" 2>/dev/null && touched=yes
  done
}
strays() {
  [ -d /proc/self ] || return 0
  for p in $(grep -lsF "MARK=$d/" /proc/[0-9]*/environ 2>/dev/null); do
    p=${p#/proc/}
    kill -s "$1" "${p%/environ}" 2>/dev/null && touched=yes
  done
}
all() { touched=no; groups "$1"; strays "$1"; }
end_all() {
  all TERM
  n=0
  while [ "$touched" = yes ] && [ "$n" -lt $((g * 10)) ]; do
    sleep 0.1 || sleep 1
    n=$((n + 1))
    all 0
  done
  [ "$touched" = no ] || all KILL
  rm -rf "$d"
}
count_beats() {
  trap 'kill "$s" 2>/dev/null; exit 0' TERM
  missed=0
  while [ "$missed" -lt SILENCE ]; do
    sleep 1 4>&- & s=$!
    wait "$s"
    [ -d "$d" ] || exit 0
    if [ -f "$d/beat" ]; then rm -f "$d/beat"; missed=0; else missed=$((missed + 1)); fi
  done
  all 0
  [ "$touched" = no ] || say silence >&4
  end_all
  kill -s KILL $$
}
stay() {
  count_beats 4>&1 < /dev/null > /dev/null 2>&1 & w=$!
  while read -r word; do
    case $word in
      beat) : > "$d/beat"; say beat ;;
      usr1) each USR1 ;;
      usr2) each USR2 ;;
      quit) each QUIT ;;
      term) groups TERM ;;
      kill) all KILL ;;
      finish) break ;;
    esac
  done
  kill "$w" 2>/dev/null
  [ ! -f "$d/ON_MCCL" ] || echo TOKEN ON_MCCL 2>/dev/null
  end_all
}
)sh";

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

/// The test must be made in the rank's directory.
std::string test_of_program(const std::string& program) {
  const std::string word = shell_word(program);
  if (program.find('/') == program.npos) return fmt::format("command -v -- {}", word);
  return fmt::format("[ -x {} ] && ! [ -d {} ]", word, word);
}

/// Searches at the path that mccl has here, beside the Python of the ranks, and in PATH.
std::string place_of_mccl(const std::vector<const RankPlan*>& ranks) {
  std::vector<std::string> places = {this_program().string()};
  if (!ranks.empty()) {
    const std::string& program = ranks.front()->argv.front();
    const std::size_t slash = program.rfind('/');
    if (slash != program.npos) places.push_back(program.substr(0, slash) + "/mccl");
  }
  return fmt::format(
      "for m in {} \"$(command -v mccl)\"; do\n"
      "  if [ -x \"$m\" ]; then say mccl \"$m\"; break; fi\ndone\n",
      command_line(places));
}

std::string check_of(const RankPlan& rank, std::size_t number) {
  const std::string inside = fmt::format("cd -- {}", shell_word(rank.directory));
  std::string text =
      fmt::format("if ! ( {} ) >/dev/null 2>&1; then say no-directory {}\n", inside, number) +
      fmt::format("elif ! ( {} && {} ) >/dev/null 2>&1; then say no-program {}\n", inside,
                  test_of_program(rank.argv.front()), number);
  if (const std::string* script = script_of(rank))
    text += fmt::format("elif ! ( {} && [ -r {} ] ) >/dev/null 2>&1; then say no-script {}\n",
                        inside, shell_word(*script), number);
  return text + "fi\n";
}

constexpr std::string_view kMoreRoom =
    "free some space in it, or make sshd set another TMPDIR for its sessions (SetEnv)";

/// `word` is a message of the guard, such as "no-program".
std::string missing_text(std::string_view word, const RankPlan& rank) {
  const std::string directory = in_quotes(rank.directory);
  if (word == "no-directory") {
    return fmt::format(
        "the host has no directory {} that you may enter; create the directory, or give another "
        "with --cwd, or \"cwd\" in the hostfile",
        directory);
  }
  if (word == "no-program") {
    return fmt::format(
        "the host has no program {} that you may run; install the program, or give its full "
        "path (for Python: --python, or \"python\" in the hostfile)",
        in_quotes(rank.argv.front()));
  }
  if (const std::string* script = script_of(rank)) {
    return fmt::format(
        "the host has no script {} in {}; copy the script, or give another directory with --cwd",
        in_quotes(*script), directory);
  }
  return {};
}

constexpr std::string_view kBegin = " begin";
constexpr std::string_view kExit = " exit ";
/// Maximum length of a message after the token.
constexpr std::size_t kLongestWord = 16;
constexpr std::size_t kMostDropped = std::size_t{64} << 10;

/// Returns the length of the longest suffix of `text` that is a proper prefix of `word`.
std::size_t begun_at_end(std::string_view text, std::string_view word) {
  std::size_t length = std::min(text.size(), word.size() - 1);
  while (length > 0 && !word.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

}  // namespace

std::string guard_command(const std::string& token) {
  return replaced(
      "exec sh -c 'trap \"\" HUP PIPE; umask 077; "
      "d=$(mktemp -d \"${TMPDIR:-/tmp}/mccl-launch.XXXXXXXXXX\") || { "
      "printf \"\\nTOKEN no-folder %s\\n\" \"${TMPDIR:-/tmp}\"; exit 97; }; "
      "take() { while IFS= read -r l; do [ \"$l\" = TOKEN ] && return 0; "
      "printf \"%s\\n\" \"$l\" || return 97; done; return 1; }; "
      "printf \"\\nTOKEN folder %s\\n\" \"$d\"; take > \"$d/check\"; s=$?; "
      "[ $s = 0 ] && . \"$d/check\"; [ $s = 97 ] && printf \"\\nTOKEN full %s\\n\" \"$d\"; "
      "rm -rf \"$d\"'",
      "TOKEN", token);
}

std::string check_script(const std::string& token, const std::vector<const RankPlan*>& ranks,
                         const std::string& path, std::chrono::seconds grace,
                         std::chrono::seconds silence) {
  std::string text = replaced(kGuard, "SILENCE", std::to_string(silence.count()));
  text = replaced(std::move(text), "MARK", kMark);
  text = replaced(std::move(text), "ON_MCCL", kOnMccl);
  text = replaced(std::move(text), "TOKEN", token);
  text += fmt::format("g={}\n", grace.count());
  text += "say from $SSH_CONNECTION\ncores 2> /dev/null\n";
  // State 0A means that the socket listens. The port is hexadecimal and follows the last colon.
  text +=
      "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r n l r s x; do\n"
      "  [ \"$s\" != 0A ] || say taken ${l##*:}\ndone\n";
  text += place_of_mccl(ranks);
  std::string checks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool same =
        i > 0 && ranks[i]->argv == ranks[0]->argv && ranks[i]->directory == ranks[0]->directory;
    if (!same) checks += check_of(*ranks[i], i);
  }
  const std::string own_path = path.empty() ? "" : fmt::format("PATH={}\n", shell_word(path));
  text += fmt::format("(\n{}{})\nsay checked\n", own_path, checks);
  return text + "take > \"$d/files\"; s=$?\n[ $s != 97 ] || full\n[ $s = 0 ] && . \"$d/files\"\n";
}

std::string files_script(std::span<const NamedText> files) {
  std::string text;
  for (const auto& [name, content] : files)
    text +=
        fmt::format("printf %s {} > \"$d\"/{} || full\n", shell_word(content), shell_word(name));
  return text + "say ready\nstay\n";
}

std::string rank_script(const RankPlan& rank, const Variables& variables, const std::string& folder,
                        const std::string& token) {
  std::string text = fmt::format("printf %s {}\n", shell_word(begin_word(token)));
  // Looks up sh before the variables are set, because they may set another PATH.
  text += "_mccl_sh=$(command -v sh)\n";
  for (const auto& [name, value] : variables)
    text += fmt::format("export {}={}\n", name, shell_word(value));
  text += fmt::format("test -z \"$1\" || export {}=\"$1\"\n", kRestartCount);
  const std::string group = shell_word(fmt::format("{}/pid.{}", folder, rank.rank));
  const std::string process = shell_word(fmt::format("{}/run.{}", folder, rank.rank));
  text += fmt::format("cd -- {} || exit 126\n", shell_word(rank.directory));
  // The shell must outlive the program to report how the program ended. Its traps do nothing; the
  // program gets the default actions again.
  text += "trap : HUP INT QUIT TERM USR1 USR2\n";
  text += fmt::format("echo $$ > {} || exit 126\n", group);
  // Hides the shell's own "Killed" message.
  text += "exec 3>&2 2>/dev/null\n";
  text += fmt::format(
      "( exec 2>&3 3>&-; exec \"$_mccl_sh\" -c 'echo $$ > \"$0\"; exec \"$@\"' {} {} )\n", process,
      command_line(rank.argv));
  text += "s=$?\ntrap '' HUP INT QUIT TERM USR1 USR2\n";
  const std::string exit_line = exit_word(token, "%s");
  text +=
      fmt::format("rm -f {0}\nprintf {1} $s\nprintf {1} $s >&3\n", process, shell_word(exit_line));
  text += fmt::format("kill -s TERM -- -$$ 2>/dev/null\nrm -f {}\nexit $s\n", group);
  return text;
}

std::string rank_file(int rank) { return fmt::format("rank.{}", rank); }

std::string rank_command(const std::string& folder, int rank, int restarts) {
  return fmt::format("exec sh {}{}", shell_word(folder + "/" + rank_file(rank)),
                     restarts > 0 ? fmt::format(" {}", restarts) : "");
}

std::string holder_command(const std::string& token) {
  return fmt::format("exec sh -c 'printf \"\\n{} ready\\n\"; exec cat > /dev/null'", token);
}

std::string begin_word(std::string_view token) { return fmt::format("{}{}\n", token, kBegin); }

std::string exit_word(std::string_view token, std::string_view status) {
  return fmt::format("{}{}{}\n", token, kExit, status);
}

std::size_t RankWords::put_held(std::span<char> space) {
  const std::size_t bytes = held_.size();
  std::memcpy(space.data(), held_.data(), bytes);
  held_.clear();
  return bytes;
}

std::size_t RankWords::filter(std::span<char> bytes) {
  if (token_.empty()) return bytes.size();
  std::string_view rest(bytes.data(), bytes.size());
  char* kept = bytes.data();
  const auto keep = [&](std::size_t count) {
    if (begun_) {
      std::memmove(kept, rest.data(), count);
      kept += count;
    } else if (dropped_.size() < kMostDropped) {
      dropped_.append(rest.substr(0, count));
    }
    rest.remove_prefix(count);
  };
  for (;;) {
    const std::size_t at = rest.find(token_);
    if (at == rest.npos) {
      const std::size_t held = begun_at_end(rest, token_);
      keep(rest.size() - held);
      break;
    }
    keep(at);
    // A longer word is output of the rank, whether or not its end has arrived.
    const std::size_t end = rest.substr(0, token_.size() + kLongestWord).find('\n', token_.size());
    if (end == rest.npos && rest.size() < token_.size() + kLongestWord) break;
    std::string_view word = rest.substr(token_.size(), end - token_.size());
    if (word.ends_with('\r')) word.remove_suffix(1);
    const auto status = word.starts_with(kExit) ? parse_integer(word.substr(kExit.size()))
                                                : std::optional<std::int64_t>();
    if (end == rest.npos || (word != kBegin && !status)) {
      keep(token_.size());
      continue;
    }
    if (word == kBegin) begun_ = true;
    if (status) status_ = static_cast<int>(*status);
    rest.remove_prefix(end + 1);
  }
  held_.assign(rest);
  return static_cast<std::size_t>(kept - bytes.data());
}

std::string RankWords::rest() {
  std::string text = begun_ ? std::string() : std::exchange(dropped_, {});
  return text + std::exchange(held_, {});
}

void GuardReport::take(std::string_view word, const std::string& rest,
                       const std::vector<const RankPlan*>& ranks) {
  std::istringstream words(rest);
  if (word == "folder") reached.folder = rest;
  if (word == "no-folder") no_folder = rest;
  if (word == "mccl") mccl = rest;
  if (word == "full")
    faults.push_back(
        fmt::format("the host cannot write the job's files to {}: no space is left; {}",
                    in_quotes(rest), kMoreRoom));
  if (word == "from") {
    std::string launcher;
    std::string port;
    std::string address;
    words >> launcher >> port >> address;
    reached.launcher = printable(launcher);
    reached.address = printable(address);
  }
  if (word == "taken")
    reached.taken.insert(static_cast<std::uint16_t>(std::strtoul(rest.c_str(), nullptr, 16)));
  if (word == "cores") {
    std::string list;
    std::string places;
    words >> taskset >> list;
    std::getline(words, places);
    processors = processors_of(list, places);
  }
  const auto number = parse_integer(rest);
  if (!word.starts_with("no-") || !number || *number < 0 ||
      static_cast<std::size_t>(*number) >= ranks.size())
    return;
  std::string missing = missing_text(word, *ranks[static_cast<std::size_t>(*number)]);
  if (!missing.empty()) faults.push_back(std::move(missing));
}

std::string GuardReport::fault_of_folder(std::string_view complaint) const {
  std::string_view cause = last_line_of(complaint);
  if (const std::size_t colon = cause.rfind(": "); colon != cause.npos)
    cause.remove_prefix(colon + 2);
  return fmt::format("the host cannot create a folder for the job's files in {} (mktemp: {}); {}",
                     in_quotes(no_folder), printable(cause), kMoreRoom);
}

}  // namespace mccl::cli::launch
