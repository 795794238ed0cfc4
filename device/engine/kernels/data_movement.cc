#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/kernels/convert.h"
#include "device/engine/kernels/loop.h"
#include "device/engine/kernels/read_once.h"
#include "device/program/op.h"

namespace vpod::engine {
namespace {

// Prepares a fill with an element of its own for each place of the row-major output.
Kernel PrepareElements(const Operand& output, std::string elements) {
  const size_t size = program::SizeOf(output.type.type);
  const Chunking chunks = ChunkItems(output.elements(), 1);
  const auto bytes = std::make_shared<const std::string>(std::move(elements));
  return OnePhase(chunks.chunks(), 0, [=](const Workspace& at, size_t chunk) {
    const size_t first = chunks.begin(chunk) * size;
    std::memcpy(output.As<std::byte>(at) + first, bytes->data() + first, chunks.size(chunk) * size);
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> PrepareFill(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand output = Resolve(ipu, instruction.outputs(0));
  if (!instruction.fill().elements().empty())
    return PrepareElements(output, instruction.fill().elements());
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

Loop PlanOneInput(const Operand& output, const Operand& input) {
  const program::Dims& dims = output.type.dims;
  return PlanLoop(dims, {BroadcastStrides(output, dims), BroadcastStrides(input, dims)});
}

template <class T>
void CopyRow(T* to, int64_t to_step, const T* from, int64_t from_step, size_t n) {
  if (to_step == 1 && from_step == 1) {
    std::memmove(to, from, n * sizeof(T));
    return;
  }
  for (size_t i = 0; i < n; ++i)
    to[static_cast<int64_t>(i) * to_step] = from[static_cast<int64_t>(i) * from_step];
}

// Elements by which data move the operands of a copy.
struct Shift {
  int64_t output = 0, input = 0;
};
using FindShift = std::function<absl::StatusOr<Shift>(const Workspace& at)>;

// The rows of the order in which the output lies in memory or, if those are short (pixels of few
// channels), of the input's, if they are longer. Strides of the output come first.
Loop PlanCopy(const Operand& output, const Operand& input) {
  constexpr size_t kShort = 16;
  Loop loop = PlanOneInput(output, input);
  if (loop.length >= kShort) return loop;
  const program::Dims& dims = output.type.dims;
  Loop by_input = PlanLoop(dims, {BroadcastStrides(input, dims), BroadcastStrides(output, dims)});
  if (by_input.length <= loop.length) return loop;
  std::swap(by_input.steps[0], by_input.steps[1]);
  std::swap(by_input.strides[0], by_input.strides[1]);
  return by_input;
}

Phase CopyPhase(const Operand& output, const Operand& input, const FindShift& find_shift = {}) {
  const Loop loop = PlanCopy(output, input);
  const Chunking elements = loop.chunking();
  // The data are looked at even where nothing is to be copied.
  const size_t chunks = find_shift ? std::max<size_t>(1, elements.chunks()) : elements.chunks();
  return {chunks, [=](const Workspace& at, size_t chunk) -> absl::Status {
            Shift shift;
            if (find_shift) {
              VPOD_ASSIGN_OR_RETURN(shift, find_shift(at));
            }
            WithElement(output.type.type, [&](auto element) {
              using T = decltype(element);
              T* const to = output.As<T>(at) + shift.output;
              const T* const from = input.As<T>(at) + shift.input;
              loop.ForBlocks(elements.begin(chunk), elements.end(chunk),
                             [&](const auto& p, size_t n) {
                               CopyRow<T>(to + p[0], loop.steps[0], from + p[1], loop.steps[1], n);
                             });
            });
            return absl::OkStatus();
          }};
}

absl::StatusOr<Kernel> PrepareCopy(const program::v1::Ipu& ipu, const Instruction& instruction) {
  return Kernel{.phases = {CopyPhase(Resolve(ipu, instruction.outputs(0)),
                                     Resolve(ipu, instruction.inputs(0)))}};
}

absl::StatusOr<Kernel> PrepareView(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const program::View view =
      program::FindOp(instruction.attributes_case())->view(instruction, input.type, input.strides);
  return Kernel{
      .phases = {CopyPhase(output, Part(input, view.offset, output.type.dims, view.strides))}};
}

// Where the input of a pad, or one of a concat, lies in the output.
Operand PartAt(const Operand& output, const program::Dims& begin, const program::Dims& dims) {
  int64_t first = 0;
  for (size_t i = 0; i < begin.size(); ++i) first += begin[i] * output.strides[i];
  return Part(output, first, dims, output.strides);
}

absl::StatusOr<Kernel> PreparePad(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Pad& op = instruction.pad();
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const Loop loop = PlanLoop(output.type.dims, {output.strides});
  const Chunking elements = loop.chunking();
  const double value = op.value();
  const auto fill = [=](const Workspace& at, size_t chunk) {
    WithElement(output.type.type, [&](auto element) {
      using T = decltype(element);
      const T converted = Convert<T>(value);
      loop.ForBlocks(elements.begin(chunk), elements.end(chunk), [&](const auto& p, size_t n) {
        T* to = output.As<T>(at) + p[0];
        for (size_t i = 0; i < n; ++i) to[static_cast<int64_t>(i) * loop.steps[0]] = converted;
      });
    });
    return absl::OkStatus();
  };
  const program::Dims begin(op.before().begin(), op.before().end());
  return Kernel{.phases = {{elements.chunks(), fill},
                           CopyPhase(PartAt(output, begin, input.type.dims), input)}};
}

absl::StatusOr<Kernel> PrepareConcat(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand output = Resolve(ipu, instruction.outputs(0));
  program::Dims begin(output.type.dims.size());
  Kernel kernel;
  for (uint32_t tensor : instruction.inputs()) {
    const Operand input = Resolve(ipu, tensor);
    kernel.phases.push_back(CopyPhase(PartAt(output, begin, input.type.dims), input));
    begin[instruction.concat().axis()] += input.type.dims[instruction.concat().axis()];
  }
  return kernel;
}

// The first element of a slice of `size` in `whole`, which the data say.
class DynamicStart {
 public:
  DynamicStart(const google::protobuf::RepeatedField<uint32_t>& axes, const Operand& whole,
               const program::Dims& size, Operand start)
      : start_(std::move(start)) {
    for (uint32_t axis : axes)
      axes_.push_back({axis, whole.type.dims[axis] - size[axis], whole.strides[axis]});
  }

  absl::StatusOr<int64_t> Find(const Workspace& at) const {
    const auto* start = start_.As<int32_t>(at);
    int64_t first = 0;
    for (const Axis& axis : axes_) {
      const int32_t begin = ReadOnce(start++);
      if (begin < 0 || begin > axis.last) {
        return absl::InvalidArgumentError(absl::StrCat("start ", begin, " on axis ", axis.number,
                                                       " is outside 0 to ", axis.last));
      }
      first += begin * axis.stride;
    }
    return first;
  }

 private:
  struct Axis {
    uint32_t number;
    int64_t last;  // start of a slice that fits
    int64_t stride;
  };

  Operand start_;
  std::vector<Axis> axes_;
};

absl::StatusOr<Kernel> PrepareDynamicSlice(const program::v1::Ipu& ipu,
                                           const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const DynamicStart start(instruction.dynamic_slice().axes(), input, output.type.dims,
                           Resolve(ipu, instruction.inputs(1)));
  const Operand slice = Part(input, 0, output.type.dims, input.strides);
  return Kernel{
      .phases = {CopyPhase(output, slice, [=](const Workspace& at) -> absl::StatusOr<Shift> {
        VPOD_ASSIGN_OR_RETURN(const int64_t first, start.Find(at));
        return Shift{.input = first};
      })}};
}

absl::StatusOr<Kernel> PrepareDynamicUpdate(const program::v1::Ipu& ipu,
                                            const Instruction& instruction) {
  const Operand update = Resolve(ipu, instruction.inputs(1)),
                output = Resolve(ipu, instruction.outputs(0));
  const DynamicStart start(instruction.dynamic_update().axes(), output, update.type.dims,
                           Resolve(ipu, instruction.inputs(2)));
  const Operand slice = Part(output, 0, update.type.dims, output.strides);
  Kernel kernel;
  if (instruction.inputs(0) != instruction.outputs(0))
    kernel.phases.push_back(CopyPhase(output, Resolve(ipu, instruction.inputs(0))));
  kernel.phases.push_back(
      CopyPhase(slice, update, [=](const Workspace& at) -> absl::StatusOr<Shift> {
        VPOD_ASSIGN_OR_RETURN(const int64_t first, start.Find(at));
        return Shift{.output = first};
      }));
  return kernel;
}

}  // namespace

std::vector<KernelDef> DataMovementKernels() {
  return {{Instruction::kFill, PrepareFill},
          {Instruction::kCopy, PrepareCopy},
          {Instruction::kTranspose, PrepareView},
          {Instruction::kSlice, PrepareView},
          {Instruction::kExpand, PrepareView},
          {Instruction::kPad, PreparePad},
          {Instruction::kConcat, PrepareConcat},
          {Instruction::kDynamicSlice, PrepareDynamicSlice},
          {Instruction::kDynamicUpdate, PrepareDynamicUpdate}};
}

}  // namespace vpod::engine
