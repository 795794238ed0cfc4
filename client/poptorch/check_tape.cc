#include "client/poptorch/check_tape.h"

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::poptorch {
namespace {

class Checker {
 public:
  explicit Checker(const Tape& tape) : tape_(tape) {}

  absl::Status Check() const {
    VPOD_RETURN_IF_ERROR(CheckRecords(tape_.records));
    for (const auto* list : {&tape_.parameters, &tape_.buffers, &tape_.inputs}) {
      for (const NamedValue& each : *list) {
        if (!Exists(each.value) || !Exists(each.final))
          return Bad(absl::StrCat("'", each.name, "'"));
      }
    }
    for (ValueId result : tape_.results) {
      if (!Exists(result)) return Bad("a result");
    }
    for (const ConstantValue& constant : tape_.constants) {
      if (!Exists(constant.value)) return Bad("a constant");
    }
    for (const LossMark& loss : tape_.losses) {
      if (!Exists(loss.value)) return Bad("a loss");
    }
    for (ValueId value : tape_.checkpoints) {
      if (!Exists(value)) return Bad("a checkpoint");
    }
    for (const auto& [first, end] : tape_.recomputed) {
      if (first > end || end > tape_.records.size()) return Bad("a recomputed span");
    }
    for (const Region& region : tape_.regions) {
      VPOD_RETURN_IF_ERROR(CheckRecords(region.records));
      for (ValueId cotangent : region.cotangents) {
        if (!Exists(cotangent)) return Bad("a cotangent");
      }
      for (ValueId gradient : region.gradients) {
        if (!ExistsOrNone(gradient)) return Bad("a gradient");
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Bad(absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tape is damaged: ", what, " has a number that does not exist"));
  }
  bool Exists(ValueId value) const {
    return value >= 0 && static_cast<size_t>(value) < tape_.values.size();
  }
  bool ExistsOrNone(ValueId value) const { return value == kNoValue || Exists(value); }

  absl::Status CheckRecords(const std::vector<Record>& records) const {
    for (const Record& record : records) {
      if (record.op >= tape_.operators.size() || record.scope >= tape_.scopes.size() ||
          record.line >= tape_.lines.size() || record.block < -1 ||
          record.block >= static_cast<int32_t>(tape_.blocks.size())) {
        return Bad("a record");
      }
      for (ValueId output : record.outputs) {
        if (!ExistsOrNone(output)) return Bad("an output of a record");
      }
      for (const Argument& argument : record.arguments) {
        const auto* use = std::get_if<Use>(&argument);
        if (use != nullptr && !Exists(use->value)) return Bad("an argument of a record");
        const auto* uses = std::get_if<std::vector<Use>>(&argument);
        if (uses == nullptr) continue;
        for (const Use& each : *uses) {
          if (!ExistsOrNone(each.value)) return Bad("an argument of a record");
        }
      }
    }
    return absl::OkStatus();
  }

  const Tape& tape_;
};

}  // namespace

absl::Status CheckTape(const Tape& tape) { return Checker(tape).Check(); }

}  // namespace vpod::poptorch
