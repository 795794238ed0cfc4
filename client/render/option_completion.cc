#include "client/render/option_completion.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace vpod::render {
namespace {

namespace po = boost::program_options;

const po::option_description* Find(const po::options_description& options,
                                   const std::string& word) {
  if (absl::StartsWith(word, "--"))
    return options.find_nothrow(word.substr(2, word.find('=') - 2), /*approx=*/false);
  return word.size() < 2 ? nullptr : options.find_nothrow(word.substr(0, 2), /*approx=*/false);
}

bool TakesValue(const po::option_description& option) {
  return option.semantic()->max_tokens() > 0;
}

Candidates Values(const po::option_description& option, const ValuesOf& values) {
  const std::string name = option.long_name();
  for (const char* word : {"file", "config", "path"}) {
    if (absl::StrContains(name, word)) return {{kFiles, ""}};
  }
  return values == nullptr ? Candidates() : values(name);
}

}  // namespace

Candidates CompleteOptions(const po::options_description& options,
                           const std::vector<std::string>& words, const ValuesOf& values) {
  const std::string last = words.empty() ? "" : words.back();
  std::set<std::string> given;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (!absl::StartsWith(words[i], "-") || words[i] == "--") return {{kFiles, ""}};
    const po::option_description* option = Find(options, words[i]);
    if (option == nullptr) return {};
    given.insert(option->long_name());
    const bool is_long = absl::StartsWith(words[i], "--");
    const bool has_value = is_long ? absl::StrContains(words[i], "=") : words[i].size() > 2;
    if (!TakesValue(*option) || has_value) continue;
    if (i + 2 == words.size()) return Values(*option, values);
    ++i;
  }
  const size_t sign = last.find('=');
  if (absl::StartsWith(last, "--") && sign != std::string::npos) {
    const po::option_description* option = Find(options, last);
    if (option == nullptr || !TakesValue(*option)) return {};
    Candidates candidates = Values(*option, values);
    for (auto& [word, what] : candidates) {
      if (word != kFiles) word = last.substr(0, sign + 1) + word;
    }
    return candidates;
  }
  if (!last.empty() && last[0] != '-') return {{kFiles, ""}};
  Candidates candidates;
  for (const auto& option : options.options()) {
    if (!given.contains(option->long_name()))
      candidates.emplace_back("--" + option->long_name(), option->description());
  }
  return candidates;
}

}  // namespace vpod::render
