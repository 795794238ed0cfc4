#include "client/launch/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace vpod::launch {
namespace {

namespace fs = std::filesystem;

// "0-3,8": a list as the kernel writes it. Other text is left out.
std::vector<uint32_t> ParseList(absl::string_view text) {
  std::vector<uint32_t> numbers;
  for (absl::string_view part :
       absl::StrSplit(absl::StripAsciiWhitespace(text), ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    uint32_t first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) continue;
    for (uint32_t number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

absl::Status Refused(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

std::vector<NumaNode> ReadNumaNodes(const std::string& directory) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    std::string name = entry.path().filename().string();
    absl::string_view number = name;
    NumaNode node;
    if (!absl::ConsumePrefix(&number, "node") || !absl::SimpleAtoi(number, &node.id)) continue;
    std::string list;
    std::ifstream file(entry.path() / "cpulist");
    std::getline(file, list);
    node.cpus = ParseList(list);
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  return nodes;
}

std::vector<NumaNode> ShareOfNodes(const std::vector<NumaNode>& nodes, uint32_t index,
                                   uint32_t instances) {
  const uint64_t count = nodes.size();
  const uint64_t first = index * count / instances;
  const uint64_t end = std::max((index + uint64_t{1}) * count / instances, first + 1);
  std::vector<NumaNode> share;
  for (uint64_t i = first; i < std::min(end, count); ++i) share.push_back(nodes[i]);
  return share;
}

absl::Status BindTo(const std::vector<NumaNode>& nodes) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> node_mask;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const NumaNode& node : nodes) {
    for (const uint32_t cpu : node.cpus) {
      if (cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);
    }
    node_mask.resize(std::max(node_mask.size(), size_t{node.id / kBits + 1}));
    node_mask[node.id / kBits] |= 1ul << (node.id % kBits);
  }
  if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0) return Refused("CPUs");
  // One more than the bits: the kernel takes the number for one beyond the last.
  if (syscall(SYS_set_mempolicy, MPOL_BIND, node_mask.data(), node_mask.size() * kBits + 1) != 0)
    return Refused("memory");
  return absl::OkStatus();
}

}  // namespace vpod::launch
