#include "client/compiler/offload.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/program/executable.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using v1::Instruction;

// Smaller values are not worth the latency: PopART's limit of 8192 elements, in float16.
constexpr uint64_t kFewestBytes = 16 << 10;

class Offload {
 public:
  Offload(LoweredProgram& program, LoweredIpu& ipu)
      : program_(program),
        ipu_(ipu),
        body_(ipu.sections[static_cast<int>(Section::kBody)]),
        backward_(FirstOfBackward(body_)) {}

  void Run() {
    FindUses();
    std::map<size_t, std::vector<LoweredStep>> after, before;  // by step of the body
    for (const auto& [storage, use] : uses_) {
      if (!use.last_write || !use.first_backward) continue;
      if (*use.first_backward == *use.last_write + 1) continue;  // is needed at once
      const program::TensorType row = RowOf(ipu_, storage);
      if (!BelongsOffChip(row)) continue;
      const uint32_t buffer = AddScratchBuffer(program_, row, 1, ipu_);
      if (!first_row_) first_row_ = AddRowNumber(0, ipu_);
      v1::Origin origin = body_[*use.last_write].origin;
      origin.set_op("stash");
      after[*use.last_write].push_back(
          {StoreRow(buffer, AddRowMajor({.type = row, .storage = storage}, ipu_), *first_row_),
           origin});
      const uint32_t restored = ipu_.num_storages++;
      renamed_[storage] = restored;
      origin.set_op("restore");
      origin.set_phase(body_[*use.first_backward].origin.phase());
      before[*use.first_backward].push_back(
          {LoadRow(buffer, AddRowMajor({.type = row, .storage = restored}, ipu_), *first_row_),
           origin});
    }
    Renaming renaming(program_, ipu_);
    for (size_t i = backward_; i < body_.size(); ++i) renaming.Apply(renamed_, body_[i]);
    std::vector<LoweredStep> steps;
    for (size_t i = 0; i < body_.size(); ++i) {
      std::move(before[i].begin(), before[i].end(), std::back_inserter(steps));
      steps.push_back(std::move(body_[i]));
      std::move(after[i].begin(), after[i].end(), std::back_inserter(steps));
    }
    body_ = std::move(steps);
  }

 private:
  struct Use {
    std::optional<size_t> last_write;      // of the forward part
    std::optional<size_t> first_backward;  // reads or writes
  };

  // Only storages that the body alone uses count.
  void FindUses() {
    std::set<uint32_t> others;
    for (const LoweredTensor& tensor : ipu_.tensors) {
      if (!tensor.variable.empty()) others.insert(tensor.storage);
    }
    for (const auto& section : ipu_.sections) {
      if (&section == &body_) continue;
      for (const LoweredStep& step : section) {
        for (uint32_t tensor : TensorsOf(step.instruction)) others.insert(StorageOf(tensor));
      }
    }
    if (ipu_.update_condition) others.insert(StorageOf(*ipu_.update_condition));
    for (size_t i = 0; i < body_.size(); ++i) {
      const Instruction& instruction = body_[i].instruction;
      if (i >= backward_) {
        for (uint32_t tensor : TensorsOf(instruction)) {
          if (others.contains(StorageOf(tensor))) continue;
          Use& use = uses_[StorageOf(tensor)];
          use.first_backward = std::min(i, use.first_backward.value_or(i));
        }
        continue;
      }
      for (uint32_t output : instruction.outputs()) {
        if (!others.contains(StorageOf(output))) uses_[StorageOf(output)].last_write = i;
      }
    }
  }

  uint32_t StorageOf(uint32_t tensor) const { return ipu_.tensors[tensor].storage; }

  LoweredProgram& program_;
  LoweredIpu& ipu_;
  std::vector<LoweredStep>& body_;
  const size_t backward_;                 // the first step of the backward part
  std::map<uint32_t, Use> uses_;          // by storage
  std::map<uint32_t, uint32_t> renamed_;  // storages of the backward part
  std::optional<uint32_t> first_row_;     // the number of the only row
};

}  // namespace

void OffloadActivations(LoweredProgram& program) {
  for (LoweredIpu& ipu : program.ipus) Offload(program, ipu).Run();
}

program::TensorType RowOf(const LoweredIpu& ipu, uint32_t storage) {
  uint64_t bytes = 0;
  for (const LoweredTensor& tensor : ipu.tensors) {
    if (tensor.storage == storage)
      bytes = std::max(bytes, tensor.offset + program::ArenaBytes(Describe(tensor, 0)));
  }
  const v1::DataType type = bytes % 4 == 0 ? v1::UINT32 : bytes % 2 == 0 ? v1::UINT16 : v1::UINT8;
  return {type, {1, static_cast<int64_t>(bytes / program::SizeOf(type))}};
}

bool IsLarge(const program::TensorType& type) { return type.bytes() >= kFewestBytes; }

bool BelongsOffChip(const program::TensorType& row) {
  return IsLarge(row) && row.bytes() <= arch::kRemoteTransferLimit.value();
}

uint32_t RowsFor(const program::TensorType& type) {
  constexpr uint32_t kMostRows = 256;
  const uint64_t limit = arch::kRemoteTransferLimit.value();
  for (auto rows = static_cast<uint32_t>((type.bytes() + limit - 1) / limit); rows <= kMostRows;
       ++rows) {
    // Each begins where tensors may begin.
    if (type.elements() % rows == 0 && (rows == 1 || type.bytes() / rows % 64 == 0)) return rows;
  }
  return 0;
}

uint32_t AddScratchBuffer(const LoweredProgram& program, const program::TensorType& row,
                          uint32_t rows, LoweredIpu& ipu) {
  const auto number = static_cast<uint32_t>(ipu.remote_buffers.size());
  v1::RemoteBuffer& buffer = ipu.remote_buffers.emplace_back();
  const auto ipu_number = static_cast<uint32_t>(&ipu - program.ipus.data());
  buffer.set_name(absl::StrCat(program.name, "/stash/", ipu_number, "/", number));
  buffer.set_type(row.type);
  buffer.mutable_dims()->Add(row.dims.begin(), row.dims.end());
  buffer.set_rows(rows);
  buffer.set_scratch(true);
  return number;
}

Instruction StoreRow(uint32_t buffer, uint32_t tensor, uint32_t row) {
  Instruction store;
  store.mutable_remote_store()->set_buffer(buffer);
  store.add_inputs(tensor);
  store.add_inputs(row);
  return store;
}

Instruction LoadRow(uint32_t buffer, uint32_t tensor, uint32_t row) {
  Instruction load;
  load.mutable_remote_load()->set_buffer(buffer);
  load.add_inputs(row);
  load.add_outputs(tensor);
  return load;
}

uint32_t AddRowMajor(LoweredTensor tensor, LoweredIpu& ipu) {
  tensor.strides = program::RowMajorStrides(tensor.type.dims);
  ipu.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(ipu.tensors.size() - 1);
}

uint32_t AddRowNumber(uint32_t number, LoweredIpu& ipu) {
  const uint32_t row = AddRowMajor({.type = {v1::INT32, {}}, .storage = ipu.num_storages++}, ipu);
  Instruction fill;
  fill.mutable_fill()->set_value(number);
  fill.add_outputs(row);
  v1::Origin origin;
  origin.set_scope("offload");
  origin.set_op("row");
  ipu.sections[static_cast<int>(Section::kSetup)].push_back({std::move(fill), origin});
  return row;
}

size_t FirstOfBackward(const std::vector<LoweredStep>& body) {
  const auto first = std::find_if(body.begin(), body.end(), [](const LoweredStep& step) {
    return step.origin.phase() == v1::Origin::BACKWARD ||
           step.origin.phase() == v1::Origin::RECOMPUTE;
  });
  return static_cast<size_t>(first - body.begin());
}

uint32_t Renaming::Renamed(const std::map<uint32_t, uint32_t>& storages, uint32_t tensor) {
  const auto renamed = storages.find(ipu_.tensors[tensor].storage);
  if (renamed == storages.end()) return tensor;
  const auto [clone, is_new] = clones_.try_emplace({tensor, renamed->second});
  if (is_new) {
    LoweredTensor copy = ipu_.tensors[tensor];
    copy.storage = renamed->second;
    ipu_.tensors.push_back(std::move(copy));
    clone->second = static_cast<uint32_t>(ipu_.tensors.size() - 1);
  }
  return clone->second;
}

void Renaming::Apply(const std::map<uint32_t, uint32_t>& storages, LoweredStep& step) {
  Instruction& instruction = step.instruction;
  program::ForEachTensor(instruction,
                         [&](uint32_t& tensor) { tensor = Renamed(storages, tensor); });
  if (!instruction.has_exchange()) return;
  v1::Move& move = program_.moves[instruction.exchange().exchange()];
  if (instruction.inputs_size() > 0) move.set_from_tensor(instruction.inputs(0));
  if (instruction.outputs_size() > 0) move.set_to_tensor(instruction.outputs(0));
}

}  // namespace vpod::compiler
