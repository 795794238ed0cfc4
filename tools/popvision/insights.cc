// Says what limits a program, and what to try.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/pva/schema.h"
#include "device/model/memory_options.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using pva::Report;

// Shares of a run, in percent, from which on it is worth a word.
constexpr double kMuchOfRun = 10, kWorthNaming = 2, kPoorBalance = 60;
constexpr size_t kNamed = 5;

bool IsCollective(const std::string& instruction) {
  return instruction == "all_reduce" || instruction == "reduce_scatter" ||
         instruction == "all_gather" || instruction == "all_to_all";
}

class InsightsBuilder {
 public:
  explicit InsightsBuilder(const Report& report) : report_(report) {}

  Document Build() {
    std::vector<std::string> memory;
    for (uint32_t ipu = 0; ipu < report_.target.ipus_per_replica; ++ipu) {
      for (std::string& note : MemoryInsights(report_, ipu)) memory.push_back(std::move(note));
    }
    const bool advises = std::any_of(memory.begin(), memory.end(), [](const std::string& note) {
      return absl::StrContains(note, "To try: ");
    });
    if (advises) memory.push_back("None of this was tried: a profile is read without its program.");
    if (CyclesOfRun(report_) == 0) {
      time_.push_back(WhyNoRun(report_));
    } else {
      LookAtTime();
      LookAtOperations();
      if (time_.empty()) time_.push_back("Nothing stands out.");
    }
    return {.name = "insights",
            .blocks = {Notes{"Memory", std::move(memory)}, Notes{"Time", time_}}};
  }

 private:
  void LookAtTime() {
    uint64_t busiest = 0, all = 0;
    uint32_t slowest = 0;
    const uint32_t ipus = report_.target.ipus_per_replica;
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      const uint64_t busy = ExecutionOf(report_, ipu).cycles.total();
      all += busy;
      if (busy > busiest) busiest = busy, slowest = ipu;
    }
    // While the busiest one waits, another works. In a pipeline, however unbalanced it is, the
    // others do most of their work while the busiest one works, too.
    const double others_alone =
        static_cast<double>(CyclesOfRun(report_)) - static_cast<double>(busiest);
    const auto others = static_cast<double>(all - busiest);
    const bool take_turns = others > 0 && 2 * others_alone > others;
    if (take_turns) {
      time_.push_back(
          "The IPUs take turns: one works while the others wait. A pipelined schedule lets them "
          "work on different micro-batches.");
    }
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      if (ipus > 1 && !take_turns) LookAtIdleness(ipu, slowest);
      LookAtTimeOf(ipu);
    }
  }

  void LookAtIdleness(uint32_t ipu, uint32_t slowest) {
    const auto total = static_cast<double>(CyclesOfRun(report_));
    const double idle = Percent(static_cast<double>(ExecutionOf(report_, ipu).waiting), total);
    if (idle <= kMuchOfRun) return;
    // Updates empty the pipeline.
    const bool trains =
        std::any_of(report_.operations.begin(), report_.operations.end(),
                    [](const pva::Operation& operation) { return operation.phase == "backward"; });
    time_.push_back(absl::StrCat(
        IpuName(ipu), " is idle for ", PercentText(idle), " of a run. ",
        ipu == slowest
            ? absl::StrCat("It is the busiest one: more ",
                           trains ? "gradient accumulation makes" : "device iterations make",
                           " the ramps of the pipeline a smaller part.")
            : absl::StrCat("To try: move work from ", IpuName(slowest),
                           ", the busiest one, to it.")));
  }

  void LookAtTimeOf(uint32_t ipu) {
    const auto say = [&](uint64_t cycles, absl::string_view what, absl::string_view advice) {
      const double percent =
          Percent(static_cast<double>(cycles), static_cast<double>(CyclesOfRun(report_)));
      if (percent < kMuchOfRun) return;
      time_.push_back(absl::StrCat(IpuName(ipu), " spends ", PercentText(percent), " of a run ",
                                   what, ". ", advice));
    };
    uint64_t host = 0;
    std::map<std::string, uint64_t> phases;
    for (const pva::Operation& operation : report_.operations) {
      if (operation.ipu != ipu) continue;
      const uint64_t cycles = operation.all_cycles().total();
      phases[operation.phase] += cycles;
      if (operation.from_host + operation.to_host > 0) host += cycles;
    }
    say(host, "with host streams", HostAdvice(ipu));
    say(StreamingTrafficOf(report_, ipu).cycles, "with streaming memory",
        StreamingMemoryAdvice(report_, ipu));
    say(ExecutionOf(report_, ipu).cycles.sync, "synchronising", "To try: a larger micro-batch.");
    say(phases["recompute"], "computing activations again",
        "If there is memory left: fewer operations that are recomputed, or more checkpoints.");
    say(phases["update"], "with updates of the weights",
        absl::StrCat("To try: ", MoreAccumulation(report_), "."));
  }

  std::string HostAdvice(uint32_t ipu) const {
    const bool takes_floats = std::any_of(
        report_.variables.begin(), report_.variables.end(), [&](const pva::Variable& variable) {
          return variable.ipu == ipu && variable.operation &&
                 report_.operations[*variable.operation].from_host > 0 &&
                 absl::StartsWith(variable.type, "float");
        });
    const bool has_outputs = ExecutionOf(report_, ipu).to_host > 0;
    return absl::StrCat("To try: ", takes_floats ? "images as bytes instead of floats, " : "",
                        has_outputs ? "fewer outputs, " : "",
                        "larger micro-batches, which need fewer transfers.");
  }

  struct Work {
    pva::CycleSplit cycles;
    Balance balance;
    bool moves = false;  // is there to move data: a stream, a collective, an exchange
  };

  void LookAtOperations() {
    const std::vector<Balance> balances = Balances(report_);
    uint64_t all = 0;
    std::map<std::string, Work> operations;
    for (size_t i = 0; i < report_.operations.size(); ++i) {
      const pva::Operation& operation = report_.operations[i];
      const pva::CycleSplit cycles = operation.all_cycles();
      all += cycles.total();
      if (operation.op == "counter") continue;  // of a loop, which no width can spread
      const auto times = static_cast<double>(operation.executions);
      Work& work = operations[operation.name];
      work.cycles.compute += cycles.compute;
      work.cycles.exchange += cycles.exchange;
      work.balance += {balances[i].worked * times, balances[i].all * times};
      work.moves = work.moves || balances[i].all == 0 || IsCollective(operation.instruction);
    }
    const auto share = [&](double cycles) { return Percent(cycles, static_cast<double>(all)); };
    List(operations, "Bound by exchange: ", "exchanges take",
         "A smaller memory proportion of products, or larger micro-batches, may change it.",
         [&](const Work& work) {
           return !work.moves && work.cycles.exchange > work.cycles.compute
                      ? share(static_cast<double>(work.cycles.exchange))
                      : 0.0;
         });
    List(operations, "Poor balance of tiles: ", "idle tiles cost",
         "Their shapes leave tiles idle; larger micro-batches or other widths may fill them.",
         [&](const Work& work) {
           return Percent(work.balance.worked, work.balance.all) < kPoorBalance
                      ? share(work.balance.all - work.balance.worked)
                      : 0.0;
         });
  }

  // Names the operations for which `cost`, in percent of all cycles, is worth it.
  template <class Cost>
  void List(const std::map<std::string, Work>& operations, absl::string_view what,
            const char* cost_is, absl::string_view advice, const Cost& cost) {
    std::vector<std::pair<double, std::string>> costs;
    for (const auto& [name, work] : operations) {
      if (const double percent = cost(work); percent >= kWorthNaming)
        costs.emplace_back(percent, name);
    }
    if (costs.empty()) return;
    std::stable_sort(costs.begin(), costs.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    costs.resize(std::min(costs.size(), kNamed));
    time_.push_back(absl::StrCat(what,
                                 absl::StrJoin(costs, ", ",
                                               [&](std::string* out, const auto& each) {
                                                 absl::StrAppendFormat(
                                                     out, "%s (%s %.1f %% of all cycles)",
                                                     each.second, cost_is, each.first);
                                               }),
                                 ". ", advice));
  }

  const Report& report_;
  std::vector<std::string> time_;
};

}  // namespace

model::OptionNames OptionNamesOf(const Report& report) {
  const auto names = report.meta.find(pva::kMemoryOptions);
  if (names == report.meta.end() || names->second.empty()) return {};
  return model::OptionNamesIn(absl::StrSplit(names->second, absl::MaxSplits('\n', 64)));
}

std::string WithOption(absl::string_view advice, const std::string& option) {
  return option.empty() ? std::string(advice) : absl::StrCat(advice, " (", option, ")");
}

std::string MoreAccumulation(const Report& report) {
  return WithOption("more gradient accumulation", OptionNamesOf(report).accumulation);
}

Document Insights(const Report& report) { return InsightsBuilder(report).Build(); }

}  // namespace vpod::popvision
