// A command line taken apart: words and flags in any order, values joined by "=" or a blank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/vipu/flags.h"

namespace vpod::tools {

// The user's mistake, which ends the tool with status 2 and a hint at --help.
absl::Status UsageError(const std::string& message);
bool IsUsageError(const absl::Status& status);

// A failure that what was printed as JSON already tells, or that came after it: one document is
// all that a reader takes.
absl::Status AfterJson(absl::Status status);
bool IsAfterJson(const absl::Status& status);

using FlagList = std::vector<const Flag*>;

// Finds "--name", "--alias" or "-x"; nullptr when it is none of `flags`.
const Flag* FindFlag(const FlagList& flags, const std::string& word);

// Whether the word after the flag is its value.
bool TakesWord(const Flag& flag);

class Arguments {
 public:
  // UsageError: an unknown flag, one given twice, one without its value, a word that is not one
  // line of UTF-8. Arguments before the mistake are kept.
  absl::Status Parse(const std::vector<std::string>& arguments, const FlagList& flags);

  const std::vector<std::string>& words() const { return words_; }
  FlagList given() const;

  bool Has(const Flag& flag) const { return values_.contains(&flag); }
  std::string Text(const Flag& flag) const;  // empty when absent
  bool Switch(const Flag& flag, bool absent = false) const;
  absl::StatusOr<uint32_t> Number(const Flag& flag, uint32_t absent) const;
  absl::StatusOr<double> Real(const Flag& flag, double absent) const;
  std::vector<std::string> List(const Flag& flag) const;

 private:
  absl::Status Add(const Flag& flag, const std::string& value);

  std::vector<std::string> words_;
  std::map<const Flag*, std::string> values_;
};

}  // namespace vpod::tools
