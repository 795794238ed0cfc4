#include "device/program/origins.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat("origins: ", message));
}

// `of` is "origin", or another kind of which there are several.
absl::Status CheckText(const char* of, int index, absl::string_view text) {
  if (text.size() > kMostOriginBytes) {
    return Invalid(absl::StrCat("a text of ", of, " ", index + 1, " has ", text.size(),
                                " bytes, at most ", kMostOriginBytes, " are accepted"));
  }
  if (base::IsTextLine(text)) return absl::OkStatus();
  return Invalid(absl::StrCat("'", absl::CHexEscape(text.substr(0, 64)), "' of ", of, " ",
                              index + 1, " is not one line of UTF-8 text"));
}

absl::Status CheckMemoryOptions(const v1::Origins& origins) {
  if (origins.memory_options_size() > kMostMemoryOptions) {
    return Invalid(absl::StrCat(origins.memory_options_size(), " memory options named, at most ",
                                kMostMemoryOptions, " are accepted"));
  }
  for (int i = 0; i < origins.memory_options_size(); ++i)
    VPOD_RETURN_IF_ERROR(CheckText("memory option", i, origins.memory_options(i)));
  const std::string& advice = origins.memory_advice();
  if (advice.size() <= kMostAdviceBytes && base::IsTextLine(advice)) return absl::OkStatus();
  return Invalid(absl::StrCat("the advice on memory is not one line of UTF-8 text of at most ",
                              kMostAdviceBytes, " bytes"));
}

bool IsBackward(const v1::Origin& origin) { return origin.phase() == v1::Origin::BACKWARD; }

absl::string_view PhaseSuffix(const v1::Origin& origin) {
  if (IsBackward(origin)) return " (backward)";
  return origin.phase() == v1::Origin::RECOMPUTE ? " (recomputed)" : "";
}

absl::Status CheckFunctions(const v1::IpuOrigins& origins, const v1::Ipu& ipu, int most) {
  if (origins.functions_size() != ipu.functions_size()) {
    return Invalid(absl::StrCat(origins.functions_size(), " functions named, an IPU has ",
                                ipu.functions_size()));
  }
  for (int f = 0; f < ipu.functions_size(); ++f) {
    const auto& named = origins.functions(f).instructions();
    if (named.size() != ipu.functions(f).instructions_size()) {
      return Invalid(absl::StrCat(named.size(), " instructions named, function ", f, " has ",
                                  ipu.functions(f).instructions_size()));
    }
    for (uint32_t origin : named) {
      if (origin > static_cast<uint32_t>(most)) {
        return Invalid(absl::StrCat("an instruction of function ", f, " has origin ", origin,
                                    ", there are ", most));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<v1::Origin::Phase> PhaseOf(const v1::Origin* origin) {
  if (origin == nullptr || origin->op() == kCounterOp) return std::nullopt;
  return origin->phase();
}

std::string LabelOf(const v1::Instruction& instruction) {
  if (instruction.has_unary())
    return absl::AsciiStrToLower(v1::UnaryOperator_Name(instruction.unary().operator_()));
  if (instruction.has_binary())
    return absl::AsciiStrToLower(v1::BinaryOperator_Name(instruction.binary().operator_()));
  if (instruction.has_reduce())
    return absl::AsciiStrToLower(v1::ReduceOperator_Name(instruction.reduce().operator_()));
  return FindOp(instruction.attributes_case()) == nullptr ? ""
                                                          : OpName(instruction.attributes_case());
}

std::string NameOf(const v1::Origin& origin) {
  return absl::StrCat(origin.op(), origin.scope().empty() ? "" : " '", origin.scope(),
                      origin.scope().empty() ? "" : "'", PhaseSuffix(origin));
}

std::string NameOf(const v1::Instruction& instruction, const v1::Origin* origin) {
  const std::string label = LabelOf(instruction);
  if (origin == nullptr) return label;
  const bool same = origin->op() == label || IsBackward(*origin);
  return absl::StrCat(NameOf(*origin), same ? "" : absl::StrCat(" (", label, ")"));
}

std::string NameOfValue(const v1::Tensor& tensor, const v1::Instruction& maker,
                        const v1::Origin* origin) {
  if (!tensor.wide_accumulator()) return NameOf(maker, origin);
  return absl::StrCat("gradient accumulator",
                      origin == nullptr ? "" : absl::StrCat(" '", origin->scope(), "'"));
}

absl::Status CheckOrigins(const v1::Origins& origins, const v1::Executable& executable) {
  for (int i = 0; i < origins.origins_size(); ++i) {
    VPOD_RETURN_IF_ERROR(CheckText("origin", i, origins.origins(i).scope()));
    VPOD_RETURN_IF_ERROR(CheckText("origin", i, origins.origins(i).op()));
    const v1::Origin::Phase phase = origins.origins(i).phase();
    if (!v1::Origin::Phase_IsValid(phase))
      return Invalid(absl::StrCat("origin ", i + 1, " has the unknown phase ", phase));
  }
  VPOD_RETURN_IF_ERROR(CheckMemoryOptions(origins));
  if (origins.ipus().empty() && origins.origins().empty()) return absl::OkStatus();
  if (origins.ipus_size() != executable.ipus_size()) {
    return Invalid(absl::StrCat(origins.ipus_size(), " IPUs named, the executable has ",
                                executable.ipus_size()));
  }
  for (int ipu = 0; ipu < origins.ipus_size(); ++ipu) {
    VPOD_RETURN_IF_ERROR(
        CheckFunctions(origins.ipus(ipu), executable.ipus(ipu), origins.origins_size()));
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
