#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "client/compiler/offload.h"
#include "device/program/executable.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;

// Storages that lie in remote buffers between the parts of a program.
class StateOffload {
 public:
  StateOffload(LoweredProgram& program, LoweredIpu& ipu)
      : program_(program), ipu_(ipu), renaming_(program, ipu) {}

  // Variables become remote buffers, of the row's bytes as optimisers have them.
  void AddWeights(const std::set<std::string>& variables) {
    // Weights that are sent in every cycle stay on the chip.
    std::set<uint32_t> sent;
    for (const PipelineMove& move : program_.pipeline.moves) {
      if (&program_.ipus[move.move.from_ipu()] == &ipu_)
        sent.insert(ipu_.tensors[move.move.from_tensor()].storage);
    }
    for (LoweredTensor& tensor : ipu_.tensors) {
      if (!variables.contains(tensor.variable) || sent.contains(tensor.storage)) continue;
      const program::TensorType type = {tensor.type.type, {tensor.type.elements()}};
      const uint32_t rows = RowsFor(type);
      if (!IsLarge(type) || rows == 0) continue;
      v1::RemoteBuffer buffer;
      buffer.set_name(tensor.variable);
      buffer.set_type(type.type);
      buffer.add_dims(type.dims[0] / rows);
      buffer.set_rows(rows);
      const v1::Tensor for_host = Describe(tensor, 0);
      *buffer.mutable_host_dims() = for_host.dims();
      *buffer.mutable_host_strides() = for_host.strides();
      state_[tensor.storage] = {static_cast<uint32_t>(ipu_.remote_buffers.size()), rows, type};
      ipu_.remote_buffers.push_back(std::move(buffer));
      tensor.variable.clear();
    }
  }

  // An update clears accumulators before its micro-batches, and not by an exchange.
  void AddAccumulators() {
    for (const LoweredStep& step : ipu_.sections[static_cast<int>(Section::kClear)]) {
      if (step.instruction.has_exchange()) continue;
      for (uint32_t output : step.instruction.outputs()) {
        const LoweredTensor& tensor = ipu_.tensors[output];
        const program::TensorType type = {tensor.type.type, {tensor.type.elements()}};
        const uint32_t rows = RowsFor(type);
        if (!tensor.variable.empty() || !IsLarge(type) || rows == 0) continue;
        const program::TensorType row = {type.type, {type.dims[0] / rows}};
        state_[tensor.storage] = {AddScratchBuffer(program_, row, rows, ipu_), rows, type,
                                  tensor.wide_accumulator};
        ipu_.remote_buffers.back().set_wide_accumulator(tensor.wide_accumulator);
        ipu_.pinned.erase(tensor.storage);
      }
    }
  }

  void Run() {
    if (state_.empty()) return;
    for (Section section : {Section::kClear, Section::kReduce, Section::kUpdate, Section::kFinish})
      Move(ipu_.sections[static_cast<int>(section)]);
    auto& body = ipu_.sections[static_cast<int>(Section::kBody)];
    const auto backward = body.begin() + static_cast<ptrdiff_t>(FirstOfBackward(body));
    std::vector<LoweredStep> rest(std::make_move_iterator(backward),
                                  std::make_move_iterator(body.end()));
    body.erase(backward, body.end());
    Move(body);
    Move(rest);
    std::move(rest.begin(), rest.end(), std::back_inserter(body));
    for (std::vector<LoweredStep>& position : ipu_.positions) Move(position);
  }

 private:
  struct Remote {
    uint32_t buffer, rows;
    program::TensorType type;  // as the elements lie, in one dimension
    bool wide_accumulator = false;
  };

  struct Use {
    size_t first;
    std::optional<size_t> last_write;
  };

  // Loads before a part of the program what it uses, and stores after it what it has changed.
  void Move(std::vector<LoweredStep>& part) {
    std::map<uint32_t, Use> uses;  // by storage
    for (size_t i = 0; i < part.size(); ++i) {
      for (uint32_t tensor : TensorsOf(part[i].instruction)) {
        if (state_.contains(StorageOf(tensor))) uses.try_emplace(StorageOf(tensor), Use{i, {}});
      }
      for (uint32_t output : part[i].instruction.outputs()) {
        const auto use = uses.find(StorageOf(output));
        if (use != uses.end()) use->second.last_write = i;
      }
    }
    std::map<size_t, std::vector<LoweredStep>> before, after;  // by step
    std::map<uint32_t, uint32_t> loaded;                       // storages
    for (const auto& [storage, use] : uses) {
      const Remote& remote = state_.at(storage);
      loaded[storage] = ipu_.num_storages++;
      v1::Origin load = part[use.first].origin, store = load;
      load.set_op("load");
      store.set_op("store");
      for (uint32_t row = 0; row < remote.rows; ++row) {
        const uint32_t tensor = AddRow(remote, row, loaded[storage]), number = NumberOf(row);
        // A fill needs nothing of what was there.
        if (!part[use.first].instruction.has_fill())
          before[use.first].push_back({LoadRow(remote.buffer, tensor, number), load});
        if (use.last_write)
          after[*use.last_write].push_back({StoreRow(remote.buffer, tensor, number), store});
      }
    }
    std::vector<LoweredStep> steps;
    for (size_t i = 0; i < part.size(); ++i) {
      std::move(before[i].begin(), before[i].end(), std::back_inserter(steps));
      renaming_.Apply(loaded, part[i]);
      steps.push_back(std::move(part[i]));
      std::move(after[i].begin(), after[i].end(), std::back_inserter(steps));
    }
    part = std::move(steps);
  }

  // The part of a storage that is a row.
  uint32_t AddRow(const Remote& remote, uint32_t row, uint32_t storage) {
    LoweredTensor tensor{.type = {remote.type.type, {remote.type.dims[0] / remote.rows}},
                         .wide_accumulator = remote.wide_accumulator,
                         .storage = storage};
    const uint64_t bytes =
        tensor.wide_accumulator ? sizeof(double) * tensor.type.elements() : tensor.type.bytes();
    tensor.offset = row * bytes;
    return AddRowMajor(std::move(tensor), ipu_);
  }
  uint32_t NumberOf(uint32_t row) {
    while (row_numbers_.size() <= row)
      row_numbers_.push_back(AddRowNumber(static_cast<uint32_t>(row_numbers_.size()), ipu_));
    return row_numbers_[row];
  }
  uint32_t StorageOf(uint32_t tensor) const { return ipu_.tensors[tensor].storage; }

  LoweredProgram& program_;
  LoweredIpu& ipu_;
  Renaming renaming_;
  std::map<uint32_t, Remote> state_;   // by storage
  std::vector<uint32_t> row_numbers_;  // INT32 scalars, by row
};

}  // namespace

void OffloadWeights(const GraphProgram& source, LoweredProgram& program) {
  std::set<std::string> variables;
  for (graph::Tensor variable : source.graph.variables())
    variables.insert(source.graph.values()[variable.id].name);
  for (LoweredIpu& ipu : program.ipus) {
    StateOffload offload(program, ipu);
    offload.AddWeights(variables);
    offload.Run();
  }
}

void OffloadAccumulators(LoweredProgram& program) {
  for (LoweredIpu& ipu : program.ipus) {
    StateOffload offload(program, ipu);
    offload.AddAccumulators();
    offload.Run();
  }
}

}  // namespace vpod::compiler
