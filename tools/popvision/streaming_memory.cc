// Shows what goes to streaming memory and comes from it.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/model/memory_advice.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using pva::Report;

constexpr uint64_t kMuchOfTraffic = 10;  // a tenth of it is worth advice

uint64_t BytesOf(const pva::Operation& operation) {
  return (operation.from_streaming_memory + operation.to_streaming_memory) * operation.executions;
}

// Bytes of a run that the compiler moves, and all; the rest are those of the program's own buffers.
struct Kinds {
  uint64_t state = 0, weights = 0, accumulators = 0, activations = 0, all = 0;
};

Kinds KindsOf(const Report& report, uint32_t ipu) {
  Kinds kinds;
  for (const pva::Operation& operation : report.operations) {
    if (operation.ipu != ipu) continue;
    const uint64_t bytes = BytesOf(operation);
    kinds.all += bytes;
    if (!operation.remote_buffer) continue;
    const pva::RemoteBuffer& buffer = report.remote_buffers[*operation.remote_buffer];
    const bool is_part = operation.op == "load" || operation.op == "store";
    if (buffer.scratch) {
      (is_part ? kinds.accumulators : kinds.activations) += bytes;
    } else if (absl::StartsWith(buffer.name, "Accl")) {
      kinds.state += bytes;
    } else if (is_part) {
      kinds.weights += bytes;
    }
  }
  return kinds;
}

}  // namespace

bool SharesOutState(const Report& report) {
  return std::any_of(
      report.operations.begin(), report.operations.end(), [](const pva::Operation& operation) {
        return operation.phase == "update" && operation.instruction == "reduce_scatter";
      });
}

StreamingTraffic StreamingTrafficOf(const Report& report, uint32_t ipu) {
  StreamingTraffic traffic;
  for (const pva::Operation& operation : report.operations) {
    if (operation.ipu != ipu || BytesOf(operation) == 0) continue;
    traffic.from += operation.from_streaming_memory * operation.executions;
    traffic.to += operation.to_streaming_memory * operation.executions;
    // Without the control of the program, as model::Cost has it.
    const pva::CycleSplit cycles = operation.all_cycles();
    traffic.cycles += cycles.exchange + cycles.sync;
  }
  return traffic;
}

std::optional<Table> StreamingMemoryTable(const Report& report) {
  if (report.remote_buffers.empty()) return std::nullopt;
  Table table{.title = "Streaming memory of a replica in a run",
              .columns = {"IPU", "Remote buffers", "Buffers (bytes)", "Loaded (bytes)",
                          "Stored (bytes)", "Cycles", "of a run %"}};
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    uint64_t buffers = 0, bytes = 0;
    for (const pva::RemoteBuffer& buffer : report.remote_buffers) {
      if (buffer.ipu != ipu) continue;
      ++buffers;
      bytes += buffer.bytes;
    }
    const StreamingTraffic traffic = StreamingTrafficOf(report, ipu);
    std::vector<Value>& row = table.rows.emplace_back();
    row = {uint64_t{ipu}, buffers, bytes, traffic.from, traffic.to, traffic.cycles};
    if (const uint64_t run = CyclesOfRun(report); run > 0) {
      row.emplace_back(Percent(static_cast<double>(traffic.cycles), static_cast<double>(run)));
    } else {
      row.emplace_back(nullptr);
    }
  }
  return table;
}

std::string StreamingMemoryAdvice(const Report& report, uint32_t ipu) {
  const Kinds kinds = KindsOf(report, ipu);
  const auto much = [&](uint64_t bytes) {
    return bytes > 0 && bytes * kMuchOfTraffic >= kinds.all;
  };
  const model::OptionNames names = OptionNamesOf(report);
  std::vector<std::string> moved, options;
  if (much(kinds.state)) moved.push_back("the state of the optimiser");
  if (much(kinds.weights)) moved.push_back("weights");
  if (much(kinds.accumulators)) moved.push_back("accumulators");
  if (much(kinds.activations)) moved.push_back("activations");
  if (moved.empty()) return "It moves rows of the program's own remote buffers.";
  if (much(kinds.state)) options.push_back(MoreAccumulation(report));
  if (much(kinds.weights) || much(kinds.accumulators))
    options.push_back("a larger micro-batch with less gradient accumulation");
  if (much(kinds.activations))
    options.push_back(
        WithOption("recomputation instead of activations off the chip", names.recomputation));
  if (const std::string shards = model::TextOf(model::MemoryAdvice::kTensorShards, names);
      !shards.empty() && much(kinds.state) && report.target.num_replicas > 1 &&
      !SharesOutState(report))
    options.push_back(shards);
  options.push_back("less of it off the chip, where tiles have room or with more IPUs per replica");
  return absl::StrCat("It moves ", absl::StrJoin(moved, ", "),
                      ". To try: ", absl::StrJoin(options, ", "), ".");
}

}  // namespace vpod::popvision
