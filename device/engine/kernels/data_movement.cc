#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

// Calls `f` with a value-initialised element of the type.
template <class F>
void WithElement(DataType type, const F& f) {
  switch (type) {
    case program::v1::FLOAT32:
      return f(float{});
    case program::v1::FLOAT16:
      return f(_Float16{});
    case program::v1::INT32:
      return f(int32_t{});
    case program::v1::UINT32:
      return f(uint32_t{});
    default:
      return f(uint8_t{});  // UINT8 and BOOL
  }
}

template <class To, class From>
To Convert(From value) {
  if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    // Towards zero, saturating; not-a-number becomes 0.
    const auto wide = static_cast<double>(value);
    if (std::isnan(wide)) return 0;
    return static_cast<To>(std::clamp<double>(std::trunc(wide), std::numeric_limits<To>::min(),
                                              std::numeric_limits<To>::max()));
  } else {
    return static_cast<To>(value);
  }
}

absl::StatusOr<Kernel> PrepareFill(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand output = Resolve(ipu, instruction.outputs(0));
  const double value = instruction.fill().value();
  const bool wide = ipu.tensors(static_cast<int>(instruction.outputs(0))).wide_accumulator();
  return [output, value, wide](std::byte* arena) {
    if (wide) {
      std::fill_n(output.As<double>(arena), output.elements(), value);
    } else {
      WithElement(output.type.type, [&](auto element) {
        using T = decltype(element);
        std::fill_n(output.As<T>(arena), output.elements(), Convert<T>(value));
      });
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<Kernel> PrepareCopy(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  return [input, output](std::byte* arena) {
    std::memmove(output.At(arena), input.At(arena), input.type.bytes());
    return absl::OkStatus();
  };
}

absl::StatusOr<Kernel> PrepareCast(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  return [input, output](std::byte* arena) {
    WithElement(input.type.type, [&](auto from) {
      WithElement(output.type.type, [&](auto to) {
        using From = decltype(from);
        using To = decltype(to);
        const From* source = input.As<From>(arena);
        To* target = output.As<To>(arena);
        const bool to_bool = output.type.type == program::v1::BOOL;
        for (size_t i = 0; i < input.elements(); ++i) {
          target[i] = to_bool ? static_cast<To>(source[i] != From{}) : Convert<To>(source[i]);
        }
      });
    });
    return absl::OkStatus();
  };
}

}  // namespace

std::vector<KernelDef> DataMovementKernels() {
  return {{Instruction::kFill, PrepareFill},
          {Instruction::kCopy, PrepareCopy},
          {Instruction::kCast, PrepareCast}};
}

}  // namespace vpod::engine
