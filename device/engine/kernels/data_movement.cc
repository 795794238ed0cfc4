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
  const Chunking elements = ChunkItems(output.elements(), 1);
  return OnePhase(elements.chunks(), 0, [=](const Workspace& at, size_t chunk) {
    const size_t first = elements.begin(chunk), n = elements.size(chunk);
    if (wide) {
      std::fill_n(output.As<double>(at) + first, n, value);
    } else {
      WithElement(output.type.type, [&](auto element) {
        using T = decltype(element);
        std::fill_n(output.As<T>(at) + first, n, Convert<T>(value));
      });
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> PrepareCopy(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const size_t size = program::SizeOf(output.type.type);
  const Chunking elements = ChunkItems(output.elements(), 1);
  return OnePhase(elements.chunks(), 0, [=](const Workspace& at, size_t chunk) {
    const size_t first = elements.begin(chunk) * size;
    std::memmove(output.At(at) + first, input.At(at) + first, elements.size(chunk) * size);
    return absl::OkStatus();
  });
}

template <class From, class To>
void CastElements(const From* from, To* to, size_t n, bool to_bool) {
  for (size_t i = 0; i < n; ++i)
    to[i] = to_bool ? static_cast<To>(from[i] != From{}) : Convert<To>(from[i]);
}

absl::StatusOr<Kernel> PrepareCast(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const bool to_bool = output.type.type == program::v1::BOOL;
  const Chunking elements = ChunkItems(output.elements(), 1);
  return OnePhase(elements.chunks(), 0, [=](const Workspace& at, size_t chunk) {
    const size_t first = elements.begin(chunk), n = elements.size(chunk);
    WithElement(input.type.type, [&](auto from) {
      WithElement(output.type.type, [&](auto to) {
        const auto* source = input.As<decltype(from)>(at) + first;
        auto* target = output.As<decltype(to)>(at) + first;
        if constexpr (std::is_same_v<decltype(from), float> &&
                      std::is_same_v<decltype(to), _Float16>) {
          HalvesOfFloats(source, target, n);
        } else if constexpr (std::is_same_v<decltype(from), _Float16> &&
                             std::is_same_v<decltype(to), float>) {
          FloatsOfHalves(source, target, n);
        } else {
          CastElements(source, target, n, to_bool);
        }
      });
    });
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<KernelDef> DataMovementKernels() {
  return {{Instruction::kFill, PrepareFill},
          {Instruction::kCopy, PrepareCopy},
          {Instruction::kCast, PrepareCast}};
}

}  // namespace vpod::engine
