#include "client/profile/program_tree.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/model/op_plans.h"
#include "device/program/origins.h"

namespace vpod::profile {
namespace {

using model::Cost;
using model::PlanStep;
using program::v1::Instruction;

constexpr char kNone[] = "";

class Tree {
 public:
  Tree(const program::Executable& executable, const ProgramOperations& operations,
       const model::Topology& topology, pva::Database& database)
      : executable_(executable),
        operations_(operations),
        topology_(topology),
        operation_(
            database.Prepare("INSERT INTO operation VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")),
        program_(database.Prepare("INSERT INTO program VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")),
        graph_(database.Prepare("INSERT INTO graph VALUES(?,?,?,?)")) {}

  void Write() {
    uint64_t variables = 0;
    uint32_t buffers = 0;
    for (uint32_t ipu = 0; ipu < executable_.ipus_per_replica(); ++ipu) {
      first_buffer_.push_back(buffers);
      buffers += static_cast<uint32_t>(TextOf(ipu).remote_buffers_size());
      variables += static_cast<uint64_t>(TextOf(ipu).tensors_size());
      WriteIpu(ipu);
    }
    graph_.Bind(compute_sets_).Bind(edges_).Bind(variables).Bind(vertices_).Run();
  }

 private:
  struct Node {
    int64_t parent = -1, operation = -1, callee = -1;
    uint32_t position = 0, ipu = 0;
    std::string type, name = kNone;
    uint64_t times = 1;
    Cost cost;
    uint64_t vertices = 0;
    double balance = 0;
    pva::TileRuns cycles_by_tile;
  };

  const program::v1::Ipu& TextOf(uint32_t ipu) const {
    return executable_.proto().ipus(static_cast<int>(ipu));
  }

  // Functions call only those before them, so that callees have their rows already.
  void WriteIpu(uint32_t ipu) {
    const model::PlanContext context(executable_.proto(), ipu, topology_);
    const auto& executions = operations_.ExecutionsOn(ipu);
    std::vector<int64_t> rows(executions.size(), -1);
    for (uint32_t f = 0; f < executions.size(); ++f) {
      if (!executions[f]) continue;
      const bool is_entry = f + 1 == executions.size();  // it is the last that it calls
      rows[f] = Add({.ipu = ipu,
                     .type = "Function",
                     .name = absl::StrCat(is_entry ? "program of IPU " : "function of IPU ", ipu),
                     .times = *executions[f]});
      const auto& instructions = TextOf(ipu).functions(static_cast<int>(f)).instructions();
      for (uint32_t i = 0; i < static_cast<uint32_t>(instructions.size()); ++i)
        WriteOperation(ipu, {f, i}, instructions[static_cast<int>(i)], context, rows);
    }
  }

  void WriteOperation(uint32_t ipu, model::InstructionPlace place, const Instruction& instruction,
                      const model::PlanContext& context, const std::vector<int64_t>& rows) {
    const uint32_t number = *operations_.NumberOf(ipu, place);
    const program::v1::Origin* origin = executable_.OriginOf(ipu, place.function, place.index);
    const std::string name = program::NameOf(instruction, origin),
                      label = program::LabelOf(instruction);
    const Cost cost = model::Price(instruction, context);
    operation_.Bind(number).Bind(ipu).Bind(name);
    operation_.Bind(origin == nullptr ? kNone : origin->scope())
        .Bind(origin == nullptr ? label : origin->op());
    const auto phase = program::PhaseOf(origin);
    operation_.Bind(label).Bind(
        phase ? absl::AsciiStrToLower(program::v1::Origin::Phase_Name(*phase)) : std::string());
    operation_.Bind(origin == nullptr ? 0u : origin->stage());
    operation_.Bind(operations_.all()[number].executions);
    operation_.Bind(cost.compute.value()).Bind(cost.exchange.value()).Bind(cost.sync.value());
    operation_.Bind(cost.from_host.value()).Bind(cost.to_host.value());
    operation_.Bind(cost.from_streaming_memory.value()).Bind(cost.to_streaming_memory.value());
    if (const auto buffer = BufferOf(instruction)) {
      operation_.Bind(first_buffer_[ipu] + *buffer);
    } else {
      operation_.BindNull();
    }
    operation_.Bind(cost.flops).Run();

    Node node{.parent = rows[place.function],
              .operation = number,
              .position = place.index,
              .ipu = ipu,
              .type = "Sequence",
              .name = name,
              .cost = cost};
    std::vector<std::pair<uint32_t, uint64_t>> callees;  // functions and rounds, if conditions hold
    program::ForEachCall(instruction, [&](uint32_t function, uint64_t rounds) {
      const bool is_else = instruction.if_().has_else_function() &&
                           callees.size() == size_t{instruction.if_().has_then_function()};
      callees.emplace_back(function, is_else ? 0 : rounds);
    });
    if (!callees.empty()) {
      node.type = instruction.has_repeat()   ? "Repeat"
                  : instruction.has_if_()    ? "If"
                  : instruction.has_while_() ? "RepeatWhileTrue"
                                             : "Call";
    }
    if (callees.size() == 1) {
      node.callee = rows[callees[0].first];
      node.times = callees[0].second;
    }
    const int64_t row = Add(std::move(node));
    if (callees.size() == 2) {
      for (uint32_t side = 0; side < 2; ++side) {
        Add({.parent = row,
             .callee = rows[callees[side].first],
             .position = side,
             .ipu = ipu,
             .type = "Call",
             .name = side == 0 ? "then" : "else",
             .times = callees[side].second});
      }
    }
    WriteSteps(ipu, row, instruction, context);
  }

  void WriteSteps(uint32_t ipu, int64_t parent, const Instruction& instruction,
                  const model::PlanContext& context) {
    uint32_t position = 2;  // after the sides of an If
    for (const PlanStep& step : model::Plan(instruction, context).steps) {
      Node node{.parent = parent,
                .position = position++,
                .ipu = ipu,
                .times = step.times,
                .cost = model::PriceOfStep(step, topology_)};
      std::visit([&](const auto& work) { Describe(work, node); }, step.work);
      if (const auto buffer = BufferOf(instruction)) {
        absl::StrAppend(&node.name, ", a row of '",
                        TextOf(ipu).remote_buffers(static_cast<int>(*buffer)).name(), "'");
      }
      if (node.vertices > 0) {
        ++compute_sets_;
        vertices_ += node.vertices;
        edges_ += node.vertices *
                  static_cast<uint64_t>(instruction.inputs_size() + instruction.outputs_size());
      }
      Add(std::move(node));
    }
  }

  // The remote buffer of its IPU of which an instruction moves a row.
  static std::optional<uint32_t> BufferOf(const Instruction& instruction) {
    if (instruction.has_remote_load()) return instruction.remote_load().buffer();
    if (instruction.has_remote_store()) return instruction.remote_store().buffer();
    return std::nullopt;
  }

  static void Describe(const model::ComputeSet& set, Node& node) {
    node.type = "OnTileExecute";
    uint64_t all = 0, slowest = 0, tiles = 0;
    for (const model::TileWork& work : set.classes) {
      node.name = work.vertex == model::Vertex::kConvolution ? "Convolve"
                  : work.vertex == model::Vertex::kReduction ? "Reduce"
                                                             : "Elementwise";
      const uint64_t cycles =
          (work.supervisor_cycles + arch::kWorkersPerTile * work.worker_cycles) * work.calls;
      node.cycles_by_tile.push_back({work.tiles, cycles});
      all += cycles * work.tiles;
      slowest = std::max(slowest, cycles);
      tiles += work.tiles;
    }
    node.vertices = tiles;
    if (tiles < arch::kTilesPerIpu)
      node.cycles_by_tile.push_back({static_cast<uint32_t>(arch::kTilesPerIpu - tiles), 0});
    if (slowest > 0) {
      node.balance = static_cast<double>(all) / (static_cast<double>(slowest) * arch::kTilesPerIpu);
    }
  }
  static void Describe(const model::TileExchange& exchange, Node& node) {
    uint64_t bytes = 0;
    for (const model::TileTraffic& tile : exchange.classes) bytes = std::max(bytes, tile.bytes);
    node.type = "DoExchange";
    node.name = absl::StrCat("ExchangePre, ", bytes, bytes == 1 ? " byte" : " bytes",
                             " on the busiest tile");
  }
  static void Describe(const model::StreamTransfer& transfer, Node& node) {
    node.type = "StreamCopyMid";
    node.name = absl::StrCat(transfer.bytes, " bytes ", transfer.to_host ? "to" : "from",
                             " the host by way of ", transfer.tiles, " tiles");
  }
  static void Describe(const model::RemoteTransfer& transfer, Node& node) {
    node.type = "StreamCopyMid";
    node.name = absl::StrCat(transfer.bytes, " bytes ", transfer.store ? "to" : "from",
                             " streaming memory");
  }
  static void Describe(const model::InterIpuExchange& exchange, Node& node) {
    uint64_t bytes = 0;
    for (const model::InterIpuMove& move : exchange.moves) bytes += move.bytes;
    node.type = "GlobalExchange";
    node.name = absl::StrCat(bytes, " bytes between IPUs of the replica");
  }
  static void Describe(const model::RingPhase& ring, Node& node) {
    node.type = "GlobalExchange";
    node.name = absl::StrCat("ring of ", ring.replicas, " replicas over ",
                             ring.links == model::RingPhase::Links::kIpu ? "IPU" : "GW", "-Links, ",
                             static_cast<uint64_t>(ring.bytes), " bytes");
  }

  int64_t Add(Node node) {
    const int64_t id = next_++;
    const auto bind_optional = [&](int64_t value) {
      if (value < 0) {
        program_.BindNull();
      } else {
        program_.Bind(value);
      }
    };
    program_.Bind(id);
    bind_optional(node.parent);
    program_.Bind(node.position).Bind(node.ipu).Bind(node.type).Bind(node.name);
    bind_optional(node.operation);
    bind_optional(node.callee);
    program_.Bind(node.times).Bind(node.cost.compute.value()).Bind(node.cost.exchange.value());
    program_.Bind(node.cost.sync.value()).Bind(node.vertices).Bind(node.balance);
    program_.BindBlob(pva::Pack(node.cycles_by_tile)).Run();
    return id;
  }

  const program::Executable& executable_;
  const ProgramOperations& operations_;
  const model::Topology& topology_;
  pva::Statement operation_, program_, graph_;
  int64_t next_ = 0;
  std::vector<uint32_t> first_buffer_;  // the row of each IPU's first remote buffer
  uint64_t compute_sets_ = 0, vertices_ = 0, edges_ = 0;
};

}  // namespace

void WriteProgramTree(const program::Executable& executable, const ProgramOperations& operations,
                      const model::Topology& topology, pva::Database& database) {
  Tree(executable, operations, topology, database).Write();
}

}  // namespace vpod::profile
