#include "client/compiler/stash.h"

#include <algorithm>
#include <map>
#include <utility>

#include "client/compiler/offload.h"
#include "device/program/executable.h"
#include "device/program/origins.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using v1::Instruction;

class Stashes {
 public:
  Stashes(uint32_t number, const std::vector<bool>& kept, bool off_chip, LoweredProgram& program)
      : number_(number),
        kept_(kept),
        off_chip_(off_chip),
        program_(program),
        ipu_(program.ipus[number]) {}

  void Run() {
    FindAccesses();
    for (const auto& [storage, positions] : accesses_) Connect(storage, positions);
    Rename();
    CopyWhatIsPassedOn();
    for (uint32_t position = 0; position < ipu_.positions.size(); ++position) {
      std::vector<LoweredStep>& steps = ipu_.positions[position];
      steps.insert(steps.begin(), loads_[position].begin(), loads_[position].end());
      steps.insert(steps.end(), stores_[position].begin(), stores_[position].end());
    }
  }

 private:
  struct Access {
    bool writes = false;
    v1::Origin origin;  // of the first
  };

  void FindAccesses() {
    const auto access = [&](uint32_t tensor, uint32_t position) -> Access* {
      const uint32_t storage = ipu_.tensors[tensor].storage;
      return kept_[storage] ? nullptr : &accesses_[storage][position];
    };
    for (const PipelineMove& move : program_.pipeline.moves) {
      if (move.move.from_ipu() == number_) {
        access(move.move.from_tensor(), move.position);
        Pin(move.move.from_tensor());
      }
      if (move.move.to_ipu() == number_) {
        if (Access* received = access(move.move.to_tensor(), move.position + 1))
          received->writes = true;
        Pin(move.move.to_tensor());
      }
    }
    for (uint32_t position = 0; position < ipu_.positions.size(); ++position) {
      for (const LoweredStep& step : ipu_.positions[position]) {
        for (uint32_t tensor : TensorsOf(step.instruction)) {
          Access* found = access(tensor, position);
          if (found != nullptr && found->origin.scope().empty()) found->origin = step.origin;
        }
        for (uint32_t output : step.instruction.outputs()) {
          if (Access* found = access(output, position)) found->writes = true;
        }
      }
    }
  }

  void Pin(uint32_t tensor) { ipu_.pinned.insert(ipu_.tensors[tensor].storage); }

  // Each position that writes hands on to those that read before the next one writes, and to that.
  // The storage itself serves positions that are less than a period apart, so that the next
  // micro-batch finds it free; others get copies by way of a ring.
  void Connect(uint32_t storage, const std::map<uint32_t, Access>& positions) {
    const uint32_t period = program_.pipeline.period;
    uint32_t in_use_since = positions.begin()->first;
    for (auto writer = positions.begin(); writer != positions.end();) {
      const auto next = std::next(writer);
      auto end = next;
      while (end != positions.end()) {
        const bool writes = end->second.writes;
        ++end;
        if (writes) break;
      }
      if (next == end) return;
      const auto last = std::prev(end);
      const uint32_t source = StorageAt(storage, writer->first);
      if (last->first - in_use_since < period) {
        ipu_.pinned.insert(source);
        for (auto reader = next; reader != end; ++reader)
          renamed_[{storage, reader->first}] = source;
      } else {
        AddRing(storage, source, (last->first - writer->first) / period + 1, *writer, next, end);
        in_use_since = last->first;
      }
      if (!last->second.writes) return;
      writer = last;
    }
  }

  using Accesses = std::map<uint32_t, Access>::const_iterator;

  void AddRing(uint32_t storage, uint32_t source, uint32_t places,
               const std::pair<const uint32_t, Access>& writer, Accesses next, Accesses end) {
    const program::TensorType place = RowOf(ipu_, storage);
    const Ring ring = MakeRing(place, places);
    v1::Origin origin = writer.second.origin;
    origin.set_op("stash");
    stores_[writer.first].push_back(
        {Store(ring, Add({.type = place, .storage = source}), IndexOf(writer.first, places)),
         origin});
    for (auto reader = next; reader != end; ++reader) {
      const uint32_t index = IndexOf(reader->first, places), restored = ipu_.num_storages++;
      renamed_[{storage, reader->first}] = restored;
      origin.set_phase(reader->second.origin.phase());
      origin.set_op("restore");
      loads_[reader->first].push_back(
          {Load(ring, Add({.type = place, .storage = restored}), index), origin});
    }
  }

  // A tensor whose rows are the places, or a remote buffer.
  struct Ring {
    bool off_chip = false;
    uint32_t number = 0;
  };

  Ring MakeRing(const program::TensorType& place, uint32_t places) {
    if (off_chip_ && BelongsOffChip(place))
      return {true, AddScratchBuffer(program_, place, places, ipu_)};
    program::TensorType all = place;
    all.dims[0] = places;
    const uint32_t ring = Add({.type = all, .storage = ipu_.num_storages++});
    Pin(ring);
    return {false, ring};
  }

  Instruction Store(const Ring& ring, uint32_t tensor, uint32_t index) {
    if (ring.off_chip) return StoreRow(ring.number, tensor, ScalarOf(index));
    Instruction store;
    store.mutable_dynamic_update()->add_axes(0);
    store.add_inputs(ring.number);
    store.add_inputs(tensor);
    store.add_inputs(index);
    store.add_outputs(ring.number);
    return store;
  }

  Instruction Load(const Ring& ring, uint32_t tensor, uint32_t index) {
    if (ring.off_chip) return LoadRow(ring.number, tensor, ScalarOf(index));
    Instruction load;
    load.mutable_dynamic_slice()->add_axes(0);
    load.mutable_dynamic_slice()->add_size(1);
    load.add_inputs(ring.number);
    load.add_inputs(index);
    load.add_outputs(tensor);
    return load;
  }

  // An index as remote buffers take it.
  uint32_t ScalarOf(uint32_t index) {
    return Add({.type = {v1::INT32, {}}, .storage = ipu_.tensors[index].storage});
  }

  // The number of a position's micro-batch modulo the places of a ring: a counter that each cycle
  // advances.
  uint32_t IndexOf(uint32_t position, uint32_t places) {
    const uint32_t behind = position / program_.pipeline.period % places;
    const auto [index, is_new] = indices_.try_emplace({places, behind});
    if (!is_new) return index->second;
    const program::TensorType type{v1::INT32, {1}};
    index->second = Add({.type = type, .storage = ipu_.num_storages++});
    Pin(index->second);
    // The first cycle makes it 0 - behind.
    Emit(Section::kClear, Fill(index->second, (2 * places - behind - 1) % places));
    Advance(index->second, v1::ADD, Constant(1));
    // IPUs take long for a remainder of whole numbers, but PopART's stashes count by it, too.
    Advance(index->second, v1::REMAINDER, Constant(places));
    return index->second;
  }

  void Advance(uint32_t index, v1::BinaryOperator op, uint32_t operand) {
    Instruction advance;
    advance.mutable_binary()->set_operator_(op);
    advance.add_inputs(index);
    advance.add_inputs(operand);
    advance.add_outputs(index);
    ipu_.cycle.push_back({std::move(advance), CounterOrigin()});
  }

  uint32_t Constant(uint32_t value) {
    const auto [constant, is_new] = constants_.try_emplace(value);
    if (!is_new) return constant->second;
    constant->second = Add({.type = {v1::INT32, {1}}, .storage = ipu_.num_storages++});
    Pin(constant->second);
    Emit(Section::kSetup, Fill(constant->second, value));
    return constant->second;
  }

  static Instruction Fill(uint32_t tensor, uint32_t value) {
    Instruction fill;
    fill.mutable_fill()->set_value(value);
    fill.add_outputs(tensor);
    return fill;
  }
  void Emit(Section section, Instruction instruction) {
    ipu_.sections[static_cast<int>(section)].push_back({std::move(instruction), CounterOrigin()});
  }
  static v1::Origin CounterOrigin() {
    v1::Origin origin;
    origin.set_scope("pipeline");
    origin.set_op(program::kCounterOp);
    return origin;
  }

  uint32_t Add(LoweredTensor tensor) { return AddRowMajor(std::move(tensor), ipu_); }

  uint32_t StorageAt(uint32_t storage, uint32_t position) const {
    const auto renamed = renamed_.find({storage, position});
    return renamed == renamed_.end() ? storage : renamed->second;
  }

  // Lets each position use its own storages.
  void Rename() {
    std::map<uint32_t, std::map<uint32_t, uint32_t>> storages;  // by position
    for (const auto& [place, storage] : renamed_) storages[place.second][place.first] = storage;
    Renaming renaming(program_, ipu_);
    for (uint32_t position = 0; position < ipu_.positions.size(); ++position) {
      for (LoweredStep& step : ipu_.positions[position]) renaming.Apply(storages[position], step);
    }
    for (PipelineMove& move : program_.pipeline.moves) {
      if (move.move.from_ipu() != number_) continue;
      move.move.set_from_tensor(renaming.Renamed(storages[move.position], move.move.from_tensor()));
      Pin(move.move.from_tensor());
    }
  }

  // An exchange does not send the bytes that it receives.
  void CopyWhatIsPassedOn() {
    std::vector<PipelineMove>& moves = program_.pipeline.moves;
    const uint32_t period = program_.pipeline.period;
    const auto storage_of = [&](uint32_t tensor) { return ipu_.tensors[tensor].storage; };
    for (PipelineMove& sent : moves) {
      if (sent.move.from_ipu() != number_) continue;
      const bool is_received =
          std::any_of(moves.begin(), moves.end(), [&](const PipelineMove& received) {
            return received.move.to_ipu() == number_ &&
                   received.position % period == sent.position % period &&
                   storage_of(received.move.to_tensor()) == storage_of(sent.move.from_tensor());
          });
      if (!is_received) continue;
      Instruction copy;
      copy.mutable_copy();
      copy.add_inputs(sent.move.from_tensor());
      const program::TensorType type = ipu_.tensors[sent.move.from_tensor()].type;
      sent.move.set_from_tensor(Add({.type = type, .storage = ipu_.num_storages++}));
      Pin(sent.move.from_tensor());
      copy.add_outputs(sent.move.from_tensor());
      v1::Origin origin = CounterOrigin();
      origin.set_op("copy");
      stores_[sent.position].push_back({std::move(copy), std::move(origin)});
    }
  }

  const uint32_t number_;
  const std::vector<bool>& kept_;
  const bool off_chip_;
  LoweredProgram& program_;
  LoweredIpu& ipu_;
  std::map<uint32_t, std::map<uint32_t, Access>> accesses_;      // [storage][position]
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> renamed_;    // storage by (storage, position)
  std::map<uint32_t, std::vector<LoweredStep>> loads_, stores_;  // by position
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> indices_;    // by (places, behind)
  std::map<uint32_t, uint32_t> constants_;
};

}  // namespace

void AddStashes(uint32_t ipu, const std::vector<bool>& kept, bool off_chip,
                LoweredProgram& program) {
  Stashes(ipu, kept, off_chip, program).Run();
}

}  // namespace vpod::compiler
