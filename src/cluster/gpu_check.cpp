#include "cluster/gpu_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/value_text.h"
#include "cluster/text.h"

namespace mccl::cluster {
namespace {

using Matrix = std::vector<std::vector<std::string>>;

/// Removes terminal escape sequences, with which nvidia-smi underlines its first line.
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\x1b') {
      plain += text[at];
      continue;
    }
    while (at < text.size() && text[at] != 'm' && text[at] != '\n') ++at;
  }
  return plain;
}

/// True for words such as "NV18"; false for others such as "NVMe".
bool is_nvlink(const std::string& cell) {
  return cell.starts_with("NV") && cell.size() > 2 &&
         cell.find_first_not_of("0123456789", 2) == cell.npos;
}

/// Explains a word in the output of `nvidia-smi topo -p2p`.
std::string meaning_of(const std::string& word) {
  const std::map<std::string, std::string> known = {
      {"CNS", "the chipset does not support it"},
      {"GNS", "the GPUs do not support it"},
      {"TNS", "their positions in the topology do not reach each other"},
      {"DR", "it is disabled by a registry key"},
      {"NS", "it is not supported"},
      {"U", "the reason is unknown"}};
  const auto found = known.find(word);
  return found == known.end() ? in_quotes(word) : found->second;
}

/// True if a user can change the cause. Missing support in the GPUs themselves cannot be changed.
bool can_be_changed(const std::string& word) {
  return word == "CNS" || word == "TNS" || word == "DR";
}

void check_links(const HostFacts& facts, std::vector<Finding>& findings) {
  const Matrix links = gpu_matrix(facts.gpu_links, facts.gpus.size());
  const bool any = std::ranges::any_of(
      links, [](const auto& row) { return std::ranges::any_of(row, is_nvlink); });
  if (links.empty() || any) return;
  findings.push_back({"gpu-no-nvlink", Severity::note,
                      fmt::format("no NVLink joins its {} GPUs", facts.gpus.size()), facts.host,
                      "data between them goes over PCIe", "see: nvidia-smi topo -m"});
}

void check_peers(const HostFacts& facts, std::vector<Finding>& findings) {
  const Matrix peers = gpu_matrix(facts.gpu_peers, facts.gpus.size());
  // Pairs without access, keyed by the word that gives the reason.
  std::map<std::string, std::vector<std::string>> pairs;
  for (std::size_t a = 0; a < peers.size(); ++a)
    for (std::size_t b = a + 1; b < peers.size(); ++b)
      for (const std::string& word : {peers[a][b], peers[b][a]})
        if (word != "OK") pairs[word].push_back(fmt::format("{} and {}", a, b));
  for (auto& [word, of] : pairs) {
    of.erase(std::unique(of.begin(), of.end()), of.end());
    const std::size_t shown = std::min<std::size_t>(of.size(), 4);
    findings.push_back(
        {"gpu-no-peer-access", can_be_changed(word) ? Severity::warning : Severity::note,
         fmt::format("{} pair{} of GPUs cannot read each other's memory: {}", of.size(),
                     of.size() == 1 ? "" : "s", meaning_of(word)),
         fmt::format("{} (GPUs {}{})", facts.host,
                     fmt::join(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     of.size() > shown ? ", …" : ""),
         "data between them goes through host memory, at half the rate or less",
         can_be_changed(word)
             ? "turn off IOMMU and ACS in the firmware if nothing needs them; see: nvidia-smi "
               "topo -p2p r"
             : ""});
  }
}

}  // namespace

Matrix gpu_matrix(std::string_view text, std::size_t count) {
  const std::string plain = without_escapes(text);
  Matrix matrix(count);
  for (const std::string_view line : lines_of(plain)) {
    const auto words = words_of(line);
    if (words.size() < count + 1 || !words[0].starts_with("GPU")) continue;
    const auto number = parse_integer(words[0].substr(3));
    if (!number || *number < 0 || static_cast<std::size_t>(*number) >= count) continue;
    const auto row = static_cast<std::size_t>(*number);
    // The heading also begins with "GPU0", but has no "X" on the diagonal.
    if (words[row + 1] != "X") continue;
    matrix[row].assign(words.begin() + 1, words.begin() + 1 + static_cast<std::ptrdiff_t>(count));
  }
  if (std::ranges::any_of(matrix, [](const auto& row) { return row.empty(); })) return {};
  return matrix;
}

std::vector<Finding> check_gpus(const HostFacts& facts) {
  std::vector<Finding> findings;
  if (facts.gpus.size() < 2) return findings;
  check_links(facts, findings);
  check_peers(facts, findings);
  return findings;
}

}  // namespace mccl::cluster
