#include "cli/kit/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "base/environment.h"
#include "base/value_text.h"
#include "cli/kit/process.h"
#include "cluster/text.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

namespace fs = std::filesystem;

bool is_program(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

template <typename Visit>
void each_in(const fs::path& folder, std::string_view begin, Visit&& visit) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with(begin)) visit(entry.path());
}

constexpr std::string_view kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,-";

constexpr std::string_view kBlanks = " \t\r\n";
/// Characters that a backslash escapes inside double quotes.
constexpr std::string_view kEscapedInQuotes = "\"\\$`";

}  // namespace

std::string path_of(const std::map<std::string, std::string>& environment,
                    const std::string& usual) {
  const auto path = environment.find("PATH");
  return path == environment.end() ? usual : path->second;
}

std::string find_program(const std::string& program, const std::string& path,
                         const std::string& directory) {
  if (program.find('/') != std::string::npos) {
    const bool whole = program.front() == '/' || directory.empty();
    return is_program(whole ? program : directory + "/" + program) ? program : "";
  }
  for (const std::string_view folder : cluster::split(path, ':')) {
    std::string found = fmt::format("{}/{}", folder, program);
    if (is_program(found)) return found;
  }
  return {};
}

std::filesystem::path this_program() {
  std::error_code unknown;
#ifdef __APPLE__
  std::array<char, PATH_MAX> path = {};
  auto length = static_cast<std::uint32_t>(path.size());
  if (::_NSGetExecutablePath(path.data(), &length) != 0) return {};
  return std::filesystem::canonical(path.data(), unknown);
#else
  return std::filesystem::read_symlink("/proc/self/exe", unknown);
#endif
}

std::string find_python(const std::string& path) {
  const std::string beside = this_program().parent_path().string();
  for (const std::string& folders : {beside, path}) {
    for (const char* name : {"python3", "python"}) {
      std::string found = find_program(name, folders);
      if (!found.empty()) return found;
    }
  }
  return {};
}

void become_python(const std::string& who, const std::string& module,
                   std::vector<std::string> arguments) {
  const auto environment = process_environment();
  const std::string python = find_python(path_of(environment));
  if (python.empty())
    throw Error("this command needs Python 3; install it, or add its folder to PATH");
  std::vector<std::string> words = {python, "-c",
                                    fmt::format(R"(
import sys
# Python files in the current directory must not replace packages.
sys.path[:] = [path for path in sys.path if path]
try:
    from mccl.{module} import main
except ModuleNotFoundError as error:
    print(f"{who}: {{sys.executable}} has no module {{error.name}}; install it with: "
          f"{{sys.executable}} -m pip install 'mccl-engine[{module}]'", file=sys.stderr)
    sys.exit(2)
sys.exit(main())
)",
                                                fmt::arg("who", who), fmt::arg("module", module))};
  std::ranges::move(arguments, std::back_inserter(words));
  execute(python, std::move(words), environment);
  throw Error(fmt::format("cannot run {}: {}", python, std::strerror(errno)));
}

bool runs_mlx_on_cuda(const std::string& python, const std::string& devices) {
  std::error_code unknown;
  // WSL (Linux under Windows) has the GPU device dxg.
  if (!fs::exists(devices + "/nvidiactl", unknown) && !fs::exists(devices + "/dxg", unknown))
    return false;
  bool found = false;
  const fs::path prefix = fs::path(python).parent_path().parent_path();
  each_in(prefix, "lib", [&](const fs::path& lib) {
    each_in(lib, "python3", [&](const fs::path& version) {
      for (const char* packages : {"site-packages", "dist-packages"})
        each_in(version / packages, "mlx_cuda", [&](const fs::path&) { found = true; });
    });
  });
  return found;
}

std::string shell_word(std::string_view word) {
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string command_line(std::span<const std::string> words) {
  std::string result;
  for (const std::string& word : words) {
    if (!result.empty()) result += ' ';
    result += shell_word(word);
  }
  return result;
}

std::vector<std::string> split_words(std::string_view where, std::string_view text) {
  std::vector<std::string> words;
  std::optional<std::string> word;  // The word that is being read.
  char quote = '\0';
  const auto add = [&](char c) { word = word.value_or("") + c; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool last = at + 1 == text.size();
    if (c == '\\' && quote != '\'' && !last &&
        (quote == '\0' || kEscapedInQuotes.find(text[at + 1]) != kEscapedInQuotes.npos)) {
      add(text[++at]);
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
      word = word.value_or("");
    } else if (quote == '\0' && kBlanks.find(c) != kBlanks.npos) {
      if (word) words.push_back(*word);
      word.reset();
    } else {
      add(c);
    }
  }
  if (quote != '\0')
    throw InvalidArgument(fmt::format("{}: unclosed {} in {}", where, quote, in_quotes(text)));
  if (word) words.push_back(*word);
  return words;
}

}  // namespace mccl::cli
