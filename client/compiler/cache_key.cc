#include "client/compiler/cache_key.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/compiler/executable_file.h"
#include "device/base/sha256.h"

namespace vpod::compiler {
namespace {

constexpr size_t kParts = kKeyPartNames.size(), kGraph = kParts - 1;
constexpr size_t kDigitsOfAll = 40, kDigitsOfPart = 4,
                 kDigits = kDigitsOfAll + kParts * kDigitsOfPart;
static_assert(kDigits == 64);  // as a file of an executable has them
constexpr int kMostNames = 4096;

bool IsKey(absl::string_view name) {
  return name.size() == kDigits &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isxdigit(c); });
}

absl::string_view DigitsOfPart(absl::string_view key, size_t part) {
  return key.substr(kDigitsOfAll + part * kDigitsOfPart, kDigitsOfPart);
}

std::vector<size_t> Differences(absl::string_view key, absl::string_view other) {
  std::vector<size_t> parts;
  for (size_t part = 0; part < kParts; ++part)
    if (DigitsOfPart(key, part) != DigitsOfPart(other, part)) parts.push_back(part);
  return parts;
}

struct Nearest {
  std::string key;
  std::vector<size_t> differences;
  std::filesystem::file_time_type written;
};

bool IsNearer(const Nearest& one, const Nearest& other) {
  const auto order = [](const Nearest& file) {
    const bool is_of_other_graph = !file.differences.empty() && file.differences.back() == kGraph;
    return std::tuple(is_of_other_graph, file.differences.size());
  };
  return std::tuple(order(one), other.written) < std::tuple(order(other), one.written);
}

}  // namespace

std::string KeyOf(const KeyParts& parts) {
  std::string all, ends;
  for (const std::string& part : parts) {
    const std::string hash = base::Sha256Hex(part);
    all += hash;
    ends += hash.substr(0, kDigitsOfPart);
  }
  return base::Sha256Hex(all).substr(0, kDigitsOfAll) + ends;
}

std::string DifferenceFromNearest(const std::string& directory, absl::string_view key) {
  Nearest nearest;
  std::error_code error;  // std::filesystem throws without one
  std::filesystem::directory_iterator files(directory, error);
  for (int names = 0;
       !error && names < kMostNames && files != std::filesystem::directory_iterator();
       ++names, files.increment(error)) {
    const std::string name = files->path().filename();
    absl::string_view other = name;
    if (!absl::ConsumeSuffix(&other, kExecutableFileEnd) || !IsKey(other) || other == key) continue;
    std::error_code removed;  // by another program; its time is then the oldest
    Nearest file{.key = std::string(other),
                 .differences = Differences(key, other),
                 .written = files->last_write_time(removed)};
    if (nearest.key.empty() || IsNearer(file, nearest)) nearest = std::move(file);
  }
  if (nearest.key.empty()) return "";
  if (nearest.differences.size() == kParts) return "no file there has any part of its key";
  // Programs whose parts have the same four digits differ nevertheless, most likely in the largest.
  if (nearest.differences.empty()) nearest.differences.push_back(kGraph);
  std::vector<absl::string_view> names;
  for (size_t part : nearest.differences) names.push_back(kKeyPartNames[part]);
  std::string subject(names.back());
  names.pop_back();
  const bool is_one = names.empty();
  if (!is_one) subject = absl::StrCat(absl::StrJoin(names, ", "), " and ", subject);
  return absl::StrCat(subject, is_one ? " differs from that of " : " differ from those of ",
                      nearest.key, kExecutableFileEnd, ", the nearest file");
}

}  // namespace vpod::compiler
