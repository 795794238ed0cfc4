#include "client/compiler/pipeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/pipeline_stages.h"
#include "client/compiler/stash.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/origins.h"

namespace vpod::compiler {
namespace {

using program::v1::Instruction;

absl::Status Wrong(const LoweredProgram& program, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("program '", program.name, "': ", what));
}

// The position of each step of the bodies, and of each move.
class Positions {
 public:
  Positions(const PipelineStages& stages, const LoweredProgram& program)
      : stages_(stages), program_(program), moves_(program.moves.size(), kNone) {
    for (const LoweredIpu& ipu : program.ipus) {
      storages_.emplace_back(ipu.num_storages);
      steps_.emplace_back();
      std::vector<Storage>& storages = storages_.back();
      for (const LoweredTensor& tensor : ipu.tensors)
        storages[tensor.storage].is_variable |= !tensor.variable.empty();
      for (const LoweredStep& step : ipu.sections[static_cast<int>(Section::kBody)]) {
        for (uint32_t output : step.instruction.outputs()) {
          Storage& storage = storages[ipu.tensors[output].storage];
          storage.written = true;
          storage.is_changed |= !step.instruction.has_exchange();
        }
      }
      for (Section section : {Section::kSetup, Section::kClear}) {
        for (const LoweredStep& step : ipu.sections[static_cast<int>(section)]) {
          for (uint32_t output : step.instruction.outputs())
            storages[ipu.tensors[output].storage].is_kept = true;
        }
      }
    }
  }

  // Goes through the bodies in the order in which they were made: a move when both ends come to it.
  absl::Status Find() {
    bool done = false;
    while (!done) {
      done = true;
      for (uint32_t ipu = 0; ipu < program_.ipus.size(); ++ipu) {
        while (const LoweredStep* step = Next(ipu)) {
          if (step->instruction.has_exchange()) {
            VPOD_ASSIGN_OR_RETURN(const bool moved, TryMove(ipu, *step));
            if (!moved) break;
          } else {
            VPOD_RETURN_IF_ERROR(PlaceStep(ipu, *step));
          }
          done = false;
        }
      }
    }
    return CheckVariables();
  }

  // At least those of the stages. Gradients of variables of other IPUs arrive after the last.
  uint32_t positions() const { return std::max(positions_, stages_.positions()); }
  // Positions of the steps of an IPU's body; those of exchanges are their moves'.
  const std::vector<uint32_t>& OfSteps(uint32_t ipu) const { return steps_[ipu]; }
  // The position of a move; kBefore if it is made once, before all micro-batches.
  uint32_t OfMove(uint32_t move) const { return moves_[move]; }
  static constexpr uint32_t kBefore = ~0u - 1;
  // Whether each micro-batch makes the move; an update makes the moves that no body has.
  bool IsInPipeline(uint32_t move) const {
    return moves_[move] != kBefore && moves_[move] != kNone;
  }
  // Whether a storage keeps its bytes from one micro-batch to the next.
  bool IsKept(uint32_t ipu, uint32_t storage) const {
    const Storage& s = storages_[ipu][storage];
    return s.is_variable || s.is_kept || !s.written;
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  struct Storage {
    bool is_variable = false, is_kept = false, written = false;
    bool is_changed = false;                   // written by more than moves
    uint32_t last_write = 0, last_access = 0;  // positions so far
    std::optional<uint32_t> first_access;      // of a variable that is written
    std::optional<uint32_t> sent;              // position
    bool moves = false;                        // it is used at several positions
  };

  const LoweredStep* Next(uint32_t ipu) const {
    const auto& body = program_.ipus[ipu].sections[static_cast<int>(Section::kBody)];
    return steps_[ipu].size() < body.size() ? &body[steps_[ipu].size()] : nullptr;
  }
  Storage& StorageOf(uint32_t ipu, uint32_t tensor) {
    return storages_[ipu][program_.ipus[ipu].tensors[tensor].storage];
  }

  absl::Status PlaceStep(uint32_t ipu, const LoweredStep& step) {
    const std::optional<uint32_t> own = stages_.PositionOf(step.origin, ipu);
    uint32_t position = own.value_or(0);
    for (uint32_t tensor : TensorsOf(step.instruction))
      position = std::max(position, StorageOf(ipu, tensor).last_write);
    if (!own) position = std::max(position, PositionOfLast(ipu, step.origin));
    // Earlier readers of this micro-batch must come before it is overwritten.
    for (uint32_t output : step.instruction.outputs()) {
      const Storage& storage = StorageOf(ipu, output);
      if (!storage.is_kept) position = std::max(position, storage.last_access);
      // It is sent at the end of the tick.
      if (storage.sent) position = std::max(position, *storage.sent + 1);
    }
    if (own && position > *own) {
      for (uint32_t output : step.instruction.outputs()) {
        const LoweredTensor& tensor = program_.ipus[ipu].tensors[output];
        const bool is_read_later = StorageOf(ipu, output).last_access > *own;
        if (!tensor.variable.empty() && is_read_later) return UsedBySeveralStages(tensor.variable);
      }
      return Wrong(program_, absl::StrCat(program::NameOf(step.instruction, &step.origin),
                                          " of stage ", stages_.StageOf(step.origin, ipu),
                                          " needs the result of a later stage"));
    }
    for (uint32_t tensor : TensorsOf(step.instruction)) {
      Storage& storage = StorageOf(ipu, tensor);
      storage.last_access = std::max(storage.last_access, position);
      if (!storage.first_access) storage.first_access = position;
      storage.moves = storage.moves || *storage.first_access != position;
    }
    for (uint32_t output : step.instruction.outputs()) StorageOf(ipu, output).last_write = position;
    steps_[ipu].push_back(position);
    positions_ = std::max(positions_, position + 1);
    return UseRemoteBuffer(ipu, step, position);
  }

  // Steps of an update with one gradient stay together. 0 if the step before is of another update.
  uint32_t PositionOfLast(uint32_t ipu, const program::v1::Origin& origin) const {
    if (steps_[ipu].empty()) return 0;
    const LoweredStep& last =
        program_.ipus[ipu].sections[static_cast<int>(Section::kBody)][steps_[ipu].size() - 1];
    const bool together = !last.instruction.has_exchange() &&
                          last.origin.phase() == origin.phase() &&
                          last.origin.scope() == origin.scope();
    return together ? steps_[ipu].back() : 0;
  }

  // A remote buffer that micro-batches change must be used at one position, as a variable must.
  absl::Status UseRemoteBuffer(uint32_t ipu, const LoweredStep& step, uint32_t position) {
    const Instruction& op = step.instruction;
    if (!op.has_remote_load() && !op.has_remote_store()) return absl::OkStatus();
    const uint32_t number =
        op.has_remote_load() ? op.remote_load().buffer() : op.remote_store().buffer();
    const auto [it, is_new] = remote_buffers_.try_emplace({ipu, number}, RemoteUse{position});
    RemoteUse& use = it->second;
    use.changes |= op.has_remote_store();
    use.moves |= use.position != position;
    if (!use.changes || !use.moves) return absl::OkStatus();
    return Wrong(program_,
                 absl::StrCat("remote buffer '", program_.ipus[ipu].remote_buffers[number].name(),
                              "' is used by several stages of the pipeline, of which one changes "
                              "it"));
  }

  // False if the other end has not come to it.
  absl::StatusOr<bool> TryMove(uint32_t ipu, const LoweredStep& step) {
    const uint32_t number = step.instruction.exchange().exchange();
    const program::v1::Move& move = program_.moves[number];
    const uint32_t other = ipu == move.from_ipu() ? move.to_ipu() : move.from_ipu();
    const LoweredStep* there = Next(other);
    if (there == nullptr || !there->instruction.has_exchange() ||
        there->instruction.exchange().exchange() != number)
      return false;
    Storage& from = StorageOf(move.from_ipu(), move.from_tensor());
    Storage& to = StorageOf(move.to_ipu(), move.to_tensor());
    if (from.written && from.is_variable) {
      return Wrong(
          program_,
          absl::StrCat("a buffer or variable that micro-batches change is on IPU ", move.from_ipu(),
                       ", but IPU ", move.to_ipu(), " reads it, which a pipeline cannot do"));
    }
    // A value that all micro-batches share moves once, unless they overwrite its copy.
    uint32_t position = kBefore;
    if (from.written || to.is_changed) {
      position = from.last_write;
      from.last_access = std::max(from.last_access, position);
      from.sent = std::max(from.sent.value_or(0), position);
      to.last_write = to.last_access = position + 1;
    } else {
      to.is_kept = true;
    }
    moves_[number] = position;
    if (position != kBefore) positions_ = std::max(positions_, position + 2);
    for (uint32_t end : {ipu, other}) steps_[end].push_back(position);
    return true;
  }

  absl::Status UsedBySeveralStages(const std::string& variable) const {
    return Wrong(program_, absl::StrCat("'", variable,
                                        "' is used by several stages of the pipeline, of which one "
                                        "changes it"));
  }

  // A variable that micro-batches change must be read and written at one position: otherwise some
  // would read what a later one has left.
  absl::Status CheckVariables() const {
    for (uint32_t ipu = 0; ipu < program_.ipus.size(); ++ipu) {
      for (const LoweredTensor& tensor : program_.ipus[ipu].tensors) {
        const Storage& storage = storages_[ipu][tensor.storage];
        if (tensor.variable.empty() || !storage.written || !storage.moves) continue;
        return UsedBySeveralStages(tensor.variable);
      }
    }
    return absl::OkStatus();
  }

  struct RemoteUse {
    uint32_t position;
    bool changes = false, moves = false;
  };

  const PipelineStages& stages_;
  const LoweredProgram& program_;
  uint32_t positions_ = 0;
  std::map<std::pair<uint32_t, uint32_t>, RemoteUse> remote_buffers_;  // by (IPU, buffer)
  std::vector<uint32_t> moves_;
  std::vector<std::vector<uint32_t>> steps_;    // [ipu]
  std::vector<std::vector<Storage>> storages_;  // [ipu]
};

// Moves the steps of an IPU to their positions; moves before all micro-batches to the section that
// clears.
void SplitBody(const Positions& positions, uint32_t number, LoweredIpu& ipu) {
  auto& body = ipu.sections[static_cast<int>(Section::kBody)];
  auto& clear = ipu.sections[static_cast<int>(Section::kClear)];
  for (size_t i = 0; i < body.size(); ++i) {
    const uint32_t position = positions.OfSteps(number)[i];
    if (!body[i].instruction.has_exchange()) {
      ipu.positions[position].push_back(std::move(body[i]));
    } else if (position == Positions::kBefore) {
      clear.push_back(std::move(body[i]));
    }
  }
  body.clear();
}

// Keeps the moves before and behind all micro-batches, which exchange steps refer to, and makes the
// others those of the pipeline.
void SplitMoves(const Positions& positions, LoweredProgram& program) {
  std::vector<program::v1::Move> outside;
  std::map<uint32_t, uint32_t> numbers;  // new by old
  for (uint32_t i = 0; i < program.moves.size(); ++i) {
    if (positions.IsInPipeline(i)) {
      program.pipeline.moves.push_back({std::move(program.moves[i]), positions.OfMove(i)});
      continue;
    }
    numbers[i] = static_cast<uint32_t>(outside.size());
    if (positions.OfMove(i) == Positions::kBefore) {
      LoweredIpu& to = program.ipus[program.moves[i].to_ipu()];
      to.pinned.insert(to.tensors[program.moves[i].to_tensor()].storage);
    }
    outside.push_back(std::move(program.moves[i]));
  }
  program.moves = std::move(outside);
  for (LoweredIpu& ipu : program.ipus) {
    for (auto& section : ipu.sections) {
      for (LoweredStep& step : section) {
        if (!step.instruction.has_exchange()) continue;
        auto& exchange = *step.instruction.mutable_exchange();
        exchange.set_exchange(numbers.at(exchange.exchange()));
      }
    }
  }
}

absl::Status CheckMicroBatches(const GraphProgram& source, const PipelineStages& stages,
                               const LoweredProgram& program) {
  const bool trains = source.trains();
  // As PopART has it, where several micro-batches are under way.
  const uint32_t least = trains ? 2 * stages.stages() - 1 : stages.stages();
  const uint32_t micro_batches = trains ? program.accumulation : program.device_iterations;
  const bool one_at_a_time = stages.period() == stages.positions();
  if (one_at_a_time || micro_batches >= least) return absl::OkStatus();
  return Wrong(program,
               absl::StrCat(trains ? "the accumulation is " : "the device iterations are ",
                            micro_batches, ", must be at least ", least, " to fill the pipeline",
                            trains ? absl::StrCat(": ", stages.stages(),
                                                  " stages forward and as many backward, "
                                                  "of which the last count as one")
                                   : ""));
}

}  // namespace

absl::Status MakePipeline(const GraphProgram& source, Schedule schedule, bool off_chip_stashes,
                          LoweredProgram& program) {
  if (schedule == Schedule::kSharded || schedule == Schedule::kPhased) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const PipelineStages stages, PipelineStages::Find(source, schedule));
  if (stages.stages() <= 1) return absl::OkStatus();
  VPOD_RETURN_IF_ERROR(CheckMicroBatches(source, stages, program));
  // A single micro-batch goes through the stages one after the other anyway.
  if (source.trains() && program.accumulation == 1) return absl::OkStatus();
  Positions positions(stages, program);
  VPOD_RETURN_IF_ERROR(positions.Find());
  program.pipeline.period = stages.period();
  program.pipeline.positions = positions.positions();
  for (uint32_t number = 0; number < program.ipus.size(); ++number) {
    LoweredIpu& ipu = program.ipus[number];
    ipu.positions.resize(positions.positions());
    SplitBody(positions, number, ipu);
  }
  SplitMoves(positions, program);
  for (uint32_t number = 0; number < program.ipus.size(); ++number) {
    std::vector<bool> kept(program.ipus[number].num_storages);
    for (uint32_t storage = 0; storage < kept.size(); ++storage)
      kept[storage] = positions.IsKept(number, storage);
    AddStashes(number, kept, off_chip_stashes, program);
  }
  return absl::OkStatus();
}

}  // namespace vpod::compiler
