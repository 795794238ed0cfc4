#include "tools/vipu/completion.h"

#include <algorithm>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/render/completion.h"
#include "tools/vipu/commands.h"

namespace vpod::tools {
namespace {

using render::Candidates;
using render::kFiles;

template <class Object>
Candidates Ids(const absl::StatusOr<std::vector<Object>>& objects) {
  Candidates ids;
  if (!objects.ok()) return ids;
  for (const Object& object : *objects) ids.emplace_back(object.id(), "");
  return ids;
}

// Existing objects of a noun, as far as the user may list them.
Candidates Objects(bool admin, const std::string& noun, const Arguments& arguments) {
  const auto config = vipu::DiscoverConfig(ServerFlags(arguments));
  if (!config.ok()) return {};
  vipu::Client client(*config, std::chrono::seconds(2));
  Candidates ids;
  if (noun == "partition") {
    const auto partitions = client.ListPartitions();
    if (!partitions.ok()) return ids;
    for (const auto& partition : *partitions)
      ids.emplace_back(partition.requirements().id(), vipu::StateText(partition.status().state()));
  } else if (noun == "allocation") {
    ids = Ids(client.ListAllocations());
  } else if (noun == "agent") {
    ids = Ids(client.ListAgents());
  } else if (noun == "user") {
    ids = Ids(client.ListUsers());
  } else if (noun == "cluster" && admin) {
    ids = Ids(client.ListClusters());
  } else if (noun == "cluster") {
    // Users see clusters through their allocations.
    std::set<std::string> clusters;
    if (const auto allocations = client.ListAllocations(); allocations.ok()) {
      for (const auto& allocation : *allocations) clusters.insert(allocation.spec().cluster_id());
    }
    for (const std::string& cluster : clusters) ids.emplace_back(cluster, "");
  }
  return ids;
}

Candidates Values(bool admin, const Flag& flag, const std::string& begun,
                  const Arguments& arguments) {
  const absl::string_view value = flag.value;
  if (value == "<file>") return {{kFiles, ""}};
  Candidates candidates;
  if (absl::StartsWith(value, "[")) return {};
  if (!absl::StartsWith(value, "<")) {
    for (absl::string_view choice : absl::StrSplit(value, '|', absl::SkipEmpty()))
      candidates.emplace_back(choice, "");
    return candidates;
  }
  // "<agent>", or "<agent,…>": the last of a list is to be completed, and none comes twice.
  const std::string noun(value.substr(1, value.find_first_of(",>") - 1));
  candidates = Objects(admin, noun, arguments);
  if (!absl::StrContains(value, ",")) return candidates;
  const size_t comma = begun.rfind(',');
  const std::string before = comma == std::string::npos ? "" : begun.substr(0, comma + 1);
  const std::vector<std::string> taken = absl::StrSplit(before, ',', absl::SkipEmpty());
  std::erase_if(candidates, [&](const auto& candidate) {
    return std::find(taken.begin(), taken.end(), candidate.first) != taken.end();
  });
  for (auto& [word, what] : candidates) word = before + word;
  return candidates;
}

Candidates Flags(const Command* command, const FlagList& given) {
  Candidates candidates;
  const auto add = [&](const FlagList& flags) {
    for (const Flag* flag : flags) {
      if (std::find(given.begin(), given.end(), flag) == given.end())
        candidates.emplace_back(absl::StrCat("--", flag->name), flag->help);
    }
  };
  if (command != nullptr) {
    add(command->required);
    add(command->optional);
  }
  add(GlobalFlags());
  return candidates;
}

Candidates Verbs(bool admin) {
  Candidates candidates;
  std::set<std::string> seen;
  for (const Command& command : Commands()) {
    if ((admin || !command.admin_only) && seen.insert(command.verb).second)
      candidates.emplace_back(command.verb, "");
  }
  return candidates;
}

Candidates Nouns(bool admin, const std::string& verb) {
  Candidates candidates;
  for (const Command& command : Commands()) {
    if (verb == command.verb && (admin || !command.admin_only)) {
      if (command.TakesFile()) return {{kFiles, ""}};
      const std::string name = command.Name();
      candidates.emplace_back(name.substr(name.find(' ') + 1), command.summary);
    }
  }
  return candidates;
}

Candidates CandidatesFor(bool admin, std::vector<std::string> words) {
  const FlagList flags = AllFlags();
  const std::string current = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  // A flag at the end waits for the current word as its value.
  const Flag* waiting = nullptr;
  if (!words.empty() && !absl::StrContains(words.back(), '=')) {
    waiting = FindFlag(flags, words.back());
    if (waiting != nullptr && !TakesWord(*waiting)) waiting = nullptr;
    if (waiting != nullptr) words.pop_back();
  }
  Arguments arguments;
  if (!arguments.Parse(words, flags).ok()) return {};
  if (waiting != nullptr) return Values(admin, *waiting, current, arguments);

  const auto& given = arguments.words();
  const auto command = FindCommand(admin, given);
  if (absl::StartsWith(current, "-")) {
    const size_t sign = current.find('=');
    if (sign == std::string::npos)
      return Flags(command.ok() ? *command : nullptr, arguments.given());
    const Flag* flag = FindFlag(flags, current.substr(0, sign));
    if (flag == nullptr) return {};
    Candidates values = Values(admin, *flag, current.substr(sign + 1), arguments);
    for (auto& [word, what] : values) {
      if (word != kFiles) word = current.substr(0, sign + 1) + word;
    }
    return values;
  }
  if (given.empty()) return Verbs(admin);
  if (given.size() == 1) return Nouns(admin, CanonicalVerb(given[0]));
  if (!command.ok()) return {};
  if (given.size() == 2 && (*command)->TakesId() && !(*command)->TakesFile()) {
    return absl::string_view((*command)->verb) == "create"
               ? Candidates()
               : Objects(admin, (*command)->noun, arguments);
  }
  return Flags(*command, arguments.given());
}

}  // namespace

std::string Complete(bool admin, const std::vector<std::string>& words) {
  return render::CompletionText(CandidatesFor(admin, words), words.empty() ? "" : words.back());
}

absl::Status PrintCompletion(const Call& call) {
  call.out << render::CompletionScript(call.command.noun, ToolName(call.admin));
  return absl::OkStatus();
}

}  // namespace vpod::tools
