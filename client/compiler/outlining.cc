#include "client/compiler/outlining.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;

// Shorter sequences are not worth a call.
constexpr size_t kFewest = 8;
// Nor does it pay to look for longer ones, or at more places, in programs of thousands of steps.
constexpr size_t kMost = 4096, kMostPlaces = 64;

// Which tensor of one sequence stands for which of another, as far as they have been followed.
class Renaming {
 public:
  // False if one of the two stands for another already.
  bool Add(uint32_t from, uint32_t to) {
    return to_.try_emplace(from, to).first->second == to &&
           from_.try_emplace(to, from).first->second == from;
  }
  uint32_t To(uint32_t from) const { return to_.at(from); }

 private:
  std::map<uint32_t, uint32_t> to_, from_;
};

// A function while its sequences are compared.
class Sequences {
 public:
  Sequences(v1::Ipu& ipu, v1::Function& function) : ipu_(ipu), function_(function) {
    std::map<std::string, uint32_t> kinds;
    for (const v1::Instruction& instruction : function.instructions()) {
      const auto next = static_cast<uint32_t>(kinds.size());
      std::vector<uint32_t>& tensors = tensors_.emplace_back();
      kinds_.push_back(kinds.try_emplace(KindOf(instruction, next, tensors), next).first->second);
    }
    for (size_t i = 0; i + kFewest <= kinds_.size(); ++i) places_[Head(i)].push_back(i);
  }

  void Share() {
    v1::Function shared;
    for (size_t i = 0; i < kinds_.size();) {
      const auto repeated = LongestFrom(i);
      if (repeated) calls_.merge(MakeBlock(*repeated));
      const auto call = calls_.find(i);
      if (call != calls_.end()) {
        i += static_cast<size_t>(
            ipu_.blocks(static_cast<int>(call->second.call().block())).instructions_size());
        *shared.add_instructions() = call->second;
      } else {
        *shared.add_instructions() =
            std::move(*function_.mutable_instructions(static_cast<int>(i)));
        ++i;
      }
    }
    function_ = std::move(shared);
  }

 private:
  // Instructions [places[p], places[p] + length) for each p, which are equal but for their tensors.
  struct Repeated {
    std::vector<size_t> places;
    size_t length;
    size_t saved() const { return (places.size() - 1) * length; }
  };

  // The same text for instructions that may take each other's place; `next` makes it different from
  // all others for those that are in no block. Adds the tensors of the others.
  std::string KindOf(const v1::Instruction& instruction, uint32_t next,
                     std::vector<uint32_t>& tensors) const {
    if (program::FindOp(instruction.attributes_case())->role != program::Role::kKernel)
      return absl::StrCat(next);
    v1::Instruction kind = instruction;
    std::string types;
    program::ForEachTensor(kind, [&](uint32_t& tensor) {
      v1::Tensor type = ipu_.tensors(static_cast<int>(tensor));
      type.clear_offset();
      absl::StrAppend(&types, type.SerializeAsString(), ";");
      tensors.push_back(std::exchange(tensor, 0));
    });
    return absl::StrCat(kind.SerializeAsString(), types);
  }

  std::vector<uint32_t> Head(size_t i) const {
    return {kinds_.begin() + static_cast<ptrdiff_t>(i),
            kinds_.begin() + static_cast<ptrdiff_t>(i + kFewest)};
  }

  bool Follow(size_t from, size_t to, Renaming& renaming) const {
    if (kinds_[from] != kinds_[to]) return false;
    const std::vector<uint32_t>&a = tensors_[from], &b = tensors_[to];
    for (size_t t = 0; t < a.size(); ++t) {
      if (!renaming.Add(a[t], b[t])) return false;
    }
    return true;
  }
  // How many instructions from `to` on are those from `from` on, up to `most`.
  size_t Common(size_t from, size_t to, size_t most) const {
    Renaming renaming;
    size_t length = 0;
    while (length < most && to + length < kinds_.size() && !IsTaken(from + length) &&
           !IsTaken(to + length) && Follow(from + length, to + length, renaming))
      ++length;
    return length;
  }
  bool IsTaken(size_t i) const {
    const auto call = calls_.upper_bound(i);
    if (call == calls_.begin()) return false;
    const auto& [place, instruction] = *std::prev(call);
    const v1::Block& block = ipu_.blocks(static_cast<int>(instruction.call().block()));
    return i < place + static_cast<size_t>(block.instructions_size());
  }

  // The sequence from `i` on that comes again and saves most.
  std::optional<Repeated> LongestFrom(size_t i) const {
    if (i + kFewest > kinds_.size() || IsTaken(i)) return std::nullopt;
    std::vector<std::pair<size_t, size_t>> later;  // place, instructions in common
    const std::vector<size_t>& places = places_.at(Head(i));
    size_t looked = 0;
    for (auto it = std::lower_bound(places.begin(), places.end(), i + kFewest);
         it != places.end() && looked++ < kMostPlaces; ++it) {
      const size_t place = *it, common = Common(i, place, std::min(place - i, kMost));
      if (common >= kFewest) later.emplace_back(place, common);
    }
    std::optional<Repeated> best;
    for (const auto& [unused, length] : later) {
      Repeated repeated{{i}, length};
      for (const auto& [place, common] : later) {
        if (common >= length && place >= repeated.places.back() + length)
          repeated.places.push_back(place);
      }
      if (repeated.places.size() > 1 && (!best || repeated.saved() > best->saved()))
        best = std::move(repeated);
    }
    return best;
  }

  // Adds the block; its calls by place.
  std::map<size_t, v1::Instruction> MakeBlock(const Repeated& repeated) {
    v1::Block& block = *ipu_.add_blocks();
    std::map<uint32_t, uint32_t> numbers;  // of parameters, by the tensor of the first place
    std::vector<uint32_t> tensors;
    for (size_t i = 0; i < repeated.length; ++i) {
      v1::Instruction& instruction = *block.add_instructions();
      instruction = function_.instructions(static_cast<int>(repeated.places[0] + i));
      program::ForEachTensor(instruction, [&](uint32_t& tensor) {
        const auto [number, is_new] =
            numbers.try_emplace(tensor, static_cast<uint32_t>(numbers.size()));
        if (is_new) {
          tensors.push_back(tensor);
          *block.add_parameters() = ipu_.tensors(static_cast<int>(tensor));
          block.mutable_parameters()->rbegin()->clear_offset();
        }
        tensor = number->second;
      });
    }
    std::map<size_t, v1::Instruction> calls;
    for (size_t place : repeated.places) {
      Renaming renaming;
      for (size_t i = 0; i < repeated.length; ++i)
        Follow(repeated.places[0] + i, place + i, renaming);
      v1::Instruction& call = calls[place];
      call.mutable_call()->set_block(static_cast<uint32_t>(ipu_.blocks_size() - 1));
      for (uint32_t tensor : tensors) call.add_inputs(renaming.To(tensor));
    }
    return calls;
  }

  v1::Ipu& ipu_;
  v1::Function& function_;
  std::vector<uint32_t> kinds_;  // equal for instructions that are equal but for their tensors
  std::vector<std::vector<uint32_t>> tensors_;                   // of each instruction
  std::map<std::vector<uint32_t>, std::vector<size_t>> places_;  // of the kinds that begin there
  std::map<size_t, v1::Instruction> calls_;                      // by place
};

}  // namespace

void OutlineBlocks(v1::Ipu& ipu) {
  for (v1::Function& function : *ipu.mutable_functions()) Sequences(ipu, function).Share();
}

}  // namespace vpod::compiler
