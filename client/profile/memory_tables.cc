#include "client/profile/memory_tables.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/model/memory_contents.h"
#include "device/model/plan_context.h"
#include "device/program/origins.h"

namespace vpod::profile {
namespace {

class Tables {
 public:
  Tables(const program::Executable& executable, uint32_t program,
         const ProgramOperations& operations, const model::Topology& topology,
         pva::Database& database)
      : executable_(executable),
        program_(program),
        operations_(operations),
        topology_(topology),
        variable_(database.Prepare("INSERT INTO variable VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)")),
        memory_(database.Prepare("INSERT INTO memory VALUES(?,?,?)")),
        step_(database.Prepare("INSERT INTO liveness_step VALUES(?,?,?,?,?)")) {}

  void Write(uint32_t ipu, const model::IpuMemory& memory) {
    WriteCategories(ipu, memory);
    const model::PlanContext context(executable_.proto(), ipu, topology_);
    std::map<uint32_t, std::string> names;  // of variables, by tensor
    for (const auto& variable : executable_.proto().variables()) {
      if (variable.ipu() == ipu) names[variable.tensor()] = variable.name();
    }
    const model::MemoryContentsOf contents(executable_, ipu);
    for (uint32_t tensor : memory.liveness.always_live) {
      const auto name = names.find(tensor);
      AddVariable(ipu, tensor, context,
                  name == names.end() ? "kept between micro-batches" : name->second,
                  contents.Tensor(tensor), nullptr);
    }
    if (program_ < memory.liveness.programs.size()) WriteLiveness(ipu, memory, context, contents);
  }

 private:
  void WriteCategories(uint32_t ipu, const model::IpuMemory& memory) {
    for (size_t c = 0; c < model::kMemoryCategories; ++c) {
      const auto category = static_cast<model::MemoryCategory>(c);
      pva::TileRuns runs;
      for (const model::TileMemory& tile : memory.tiles) {
        if (runs.empty() || runs.back().value != tile[category])
          runs.push_back({0, tile[category]});
        ++runs.back().tiles;
      }
      memory_.Bind(ipu).Bind(model::Name(category)).BindBlob(pva::Pack(runs)).Run();
    }
  }

  void WriteLiveness(uint32_t ipu, const model::IpuMemory& memory,
                     const model::PlanContext& context, const model::MemoryContentsOf& contents) {
    const model::ProgramLiveness& program = memory.liveness.programs[program_];
    std::vector<int64_t> change(program.steps.size() + 1);
    for (const model::LiveValue& value : program.values) {
      const auto* place = &program.steps[value.maker];
      const auto bytes = static_cast<int64_t>(AddVariable(
          ipu, value.tensor, context,
          program::NameOfValue(executable_.proto()
                                   .ipus(static_cast<int>(ipu))
                                   .tensors(static_cast<int>(value.tensor)),
                               InstructionAt(ipu, *place),
                               executable_.OriginOf(ipu, place->function, place->index)),
          contents.Value(value, program.steps), place, &value));
      change[value.first] += bytes;
      change[value.last + 1] -= bytes;
    }
    int64_t live = 0;
    for (uint32_t step = 0; step < program.steps.size(); ++step) {
      live += change[step];
      step_.Bind(ipu).Bind(step).Bind(operations_.NumberOf(ipu, program.steps[step]).value_or(0));
      step_.Bind(live).Bind(memory.temporary_bytes[program_][step]).Run();
    }
  }

  // Returns its bytes on all tiles.
  uint64_t AddVariable(uint32_t ipu, uint32_t tensor, const model::PlanContext& context,
                       const std::string& name, model::MemoryContents contents,
                       const model::InstructionPlace* maker,
                       const model::LiveValue* value = nullptr) {
    const program::TensorType type = context.Type(tensor);
    const model::PlanContext::Span span = context.SpanOf(tensor);
    const uint64_t each = model::BytesPerTile(type, span.tiles);
    variable_.Bind(next_++).Bind(ipu).Bind(name).Bind(type.ToString()).Bind(type.bytes());
    variable_.Bind(span.first).Bind(span.tiles).Bind(each).Bind(value == nullptr ? 1 : 0);
    const auto operation = maker == nullptr ? std::nullopt : operations_.NumberOf(ipu, *maker);
    if (operation) {
      variable_.Bind(*operation);
    } else {
      variable_.BindNull();
    }
    variable_.Bind(value == nullptr ? 0u : value->first).Bind(value == nullptr ? 0u : value->last);
    variable_.Bind(model::Name(contents)).Run();
    return each * span.tiles;
  }

  const program::v1::Instruction& InstructionAt(uint32_t ipu, model::InstructionPlace place) const {
    return executable_.proto()
        .ipus(static_cast<int>(ipu))
        .functions(static_cast<int>(place.function))
        .instructions(static_cast<int>(place.index));
  }

  const program::Executable& executable_;
  const uint32_t program_;
  const ProgramOperations& operations_;
  const model::Topology& topology_;
  pva::Statement variable_, memory_, step_;
  int64_t next_ = 0;
};

}  // namespace

void WriteMemoryTables(const program::Executable& executable, uint32_t program,
                       const ProgramOperations& operations, const model::Topology& topology,
                       const std::vector<model::IpuMemory>& memory, pva::Database& database) {
  Tables tables(executable, program, operations, topology, database);
  for (uint32_t ipu = 0; ipu < memory.size(); ++ipu) tables.Write(ipu, memory[ipu]);
}

}  // namespace vpod::profile
