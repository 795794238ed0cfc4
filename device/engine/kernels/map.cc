// The kernel of all element-by-element ops: blocks of the operands go through the steps of a Map,
// of which a single op has one, while they are in the first-level cache.
#include <memory>

#include "absl/container/inlined_vector.h"
#include "device/base/status.h"
#include "device/engine/kernels/block_function.h"
#include "device/engine/kernels/loop.h"
#include "device/program/op.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

// Rows up to this length that some operands repeat, as biases are repeated over pixels.
constexpr size_t kShortRow = 256;
// Images up to this size are not worth writing out a row of their own for.
constexpr size_t kShortImage = 8192;

// Bytes of an element in a block.
size_t SizeInBlock(DataType type) {
  return type == program::v1::FLOAT16 ? sizeof(float) : program::SizeOf(type);
}

struct MapInput {
  Operand operand;
  size_t gathered = 0, widened = 0;  // blocks of scratch
};

struct MapStep {
  BlockFunction function;
  std::vector<uint32_t> operands;  // values
  DataType type;
  size_t result = 0;  // a block of scratch
};

class ElementwiseMap {
 public:
  absl::Status Init(const program::v1::Ipu& ipu, const Instruction& instruction) {
    output_ = ResolveOutput(ipu, instruction, 0);
    std::vector<DataType> types;  // of values
    for (uint32_t tensor : instruction.inputs()) {
      const Operand& operand = inputs_.emplace_back(Resolve(ipu, tensor)).operand;
      types.push_back(operand.type.type);
    }
    if (instruction.has_map()) {
      std::vector<program::TensorType> shapes;
      for (const MapInput& input : inputs_) shapes.push_back(input.operand.type);
      for (const Instruction& step : instruction.map().steps()) {
        std::vector<program::TensorType> of_step;
        for (uint32_t value : step.inputs()) of_step.push_back(shapes[value]);
        VPOD_ASSIGN_OR_RETURN(const program::Types result, program::InferTypes(step, of_step));
        shapes.push_back(result[0]);
        types.push_back(result[0].type);
        VPOD_RETURN_IF_ERROR(AddStep(step, {step.inputs().begin(), step.inputs().end()}, types));
      }
    } else {
      std::vector<uint32_t> operands(inputs_.size());
      for (uint32_t i = 0; i < operands.size(); ++i) operands[i] = i;
      types.push_back(output_.type.type);
      VPOD_RETURN_IF_ERROR(AddStep(instruction, std::move(operands), types));
    }
    PlanBlocks();
    return absl::OkStatus();
  }

  const Chunking& chunks() const { return chunks_; }
  size_t scratch_bytes() const { return scratch_.bytes(); }

  void Run(const Workspace& at, size_t begin, size_t end) const {
    Values values(inputs_.size() + steps_.size());
    if (short_rows_) return RunInShortRows(at, values, begin, end);
    loop_.ForBlocks(begin, end, [&](const auto& position, size_t n) {
      for (size_t i = 0; i < inputs_.size(); ++i)
        values[i] = Read(at, i, position[i + 1], loop_.steps[i + 1], n);
      const size_t numbers = inputs_.size() + 1;
      const Numbers of_output = output_.rounding.stochastic
                                    ? Numbers{position[numbers], loop_.steps[numbers]}
                                    : Numbers{};
      RunBlock(at, values, position[0], loop_.steps[0], of_output, n);
    });
  }

 private:
  using Values = absl::InlinedVector<BlockOperand, 16>;
  // The numbers of the elements of a block of the output: the first, and from each to the next.
  struct Numbers {
    int64_t first = 0, step = 1;
  };

  // `types` are those of all values up to the step's own.
  absl::Status AddStep(const Instruction& step, std::vector<uint32_t> operands,
                       absl::Span<const DataType> types) {
    std::vector<DataType> of_step;
    for (uint32_t value : operands) of_step.push_back(types[value]);
    VPOD_ASSIGN_OR_RETURN(BlockFunction function, FindBlockFunction(step, of_step, types.back()));
    steps_.push_back({std::move(function), std::move(operands), types.back()});
    return absl::OkStatus();
  }

  void PlanBlocks() {
    const program::Dims& dims = output_.type.dims;
    std::vector<program::Dims> strides = {BroadcastStrides(output_, dims)};
    for (const MapInput& input : inputs_) strides.push_back(BroadcastStrides(input.operand, dims));
    if (output_.rounding.stochastic) strides.push_back(NumberStrides(dims));
    loop_ = PlanLoop(dims, std::move(strides));
    chunks_ = loop_.chunking();
    short_rows_ = HasShortRows();
    const size_t elements = kElementsOfABlock + (short_rows_ ? kShortRow : 0);
    for (MapInput& input : inputs_) {
      const DataType type = input.operand.type.type;
      input.gathered = scratch_.Add(elements * program::SizeOf(type));
      if (type == program::v1::FLOAT16) input.widened = scratch_.Add(elements * sizeof(float));
    }
    for (MapStep& step : steps_)
      step.result = scratch_.Add(kElementsOfABlock * SizeInBlock(step.type));
    narrowed_ = scratch_.Add(kElementsOfABlock * sizeof(_Float16));
  }

  // Whether each operand is dense or repeats one short row; of images, perhaps, one for each.
  bool HasShortRows() const {
    if (loop_.dims.empty() || loop_.dims.size() > 2 || loop_.length > kShortRow) return false;
    if (loop_.steps[0] != 1 || (loop_.dims.size() == 2 && ElementsOfImage() < kShortImage))
      return false;
    for (size_t o = 0; o < loop_.steps.size(); ++o) {
      const int64_t stride = loop_.strides[o].back(), step = loop_.steps[o];
      const bool dense = step == 1 && stride == static_cast<int64_t>(loop_.length);
      if (!dense && (o == 0 || stride != 0 || step > 1 || step < 0)) return false;
    }
    return true;
  }
  bool IsRepeated(size_t input) const { return loop_.strides[input + 1].back() == 0; }
  size_t ElementsOfImage() const { return loop_.length * static_cast<size_t>(loop_.dims.back()); }
  // The first element of an image.
  int64_t Begin(size_t operand, size_t image) const {
    return loop_.dims.size() < 2 ? 0 : static_cast<int64_t>(image) * loop_.strides[operand][0];
  }

  template <class T>
  static T* Block(const Workspace& at, size_t offset) {
    return reinterpret_cast<T*>(at.scratch + offset);
  }

  BlockOperand Read(const Workspace& at, size_t i, int64_t position, int64_t step, size_t n) const {
    const MapInput& input = inputs_[i];
    const DataType type = input.operand.type.type;
    return WithElement(type, [&](auto element) -> BlockOperand {
      using T = decltype(element);
      const T* values =
          Gather(input.operand.As<T>(at) + position, step, n, Block<T>(at, input.gathered));
      if constexpr (std::is_same_v<T, _Float16>) {
        float* floats = Block<float>(at, input.widened);
        FloatsOfHalves(values, floats, step == 0 ? 1 : n);
        return {floats, step != 0};
      } else {
        return {values, step != 0};
      }
    });
  }

  // Blocks go over the ends of rows. A row that repeats is written out so often that it covers a
  // block from wherever in the row that begins.
  void RunInShortRows(const Workspace& at, Values& values, size_t begin, size_t end) const {
    const size_t of_image = ElementsOfImage();
    while (begin < end) {
      const size_t image = begin / of_image, first = image * of_image;
      const size_t stop = std::min(end, first + of_image);
      RunInShortRows(at, values, image, begin - first, stop - first);
      begin = stop;
    }
  }

  // Elements [begin, end) of an image.
  void RunInShortRows(const Workspace& at, Values& values, size_t image, size_t begin,
                      size_t end) const {
    Values repeated(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (IsRepeated(i)) repeated[i] = {Repeat(at, i, image), true};
    }
    const size_t numbers = inputs_.size() + 1;
    for (size_t n = 0; begin < end; begin += n) {
      n = std::min(kElementsOfABlock, end - begin);
      const auto element = static_cast<int64_t>(begin);
      for (size_t i = 0; i < inputs_.size(); ++i) {
        values[i] = IsRepeated(i) ? BlockOperand{From(repeated[i], i, begin), true}
                                  : Read(at, i, Begin(i + 1, image) + element, 1, n);
      }
      const Numbers of_output =
          output_.rounding.stochastic ? Numbers{Begin(numbers, image) + element, 1} : Numbers{};
      RunBlock(at, values, Begin(0, image) + element, 1, of_output, n);
    }
  }

  const void* Repeat(const Workspace& at, size_t i, size_t image) const {
    const MapInput& input = inputs_[i];
    const bool moves = loop_.steps[i + 1] != 0;
    return WithElement(input.operand.type.type, [&](auto element) -> const void* {
      using T = decltype(element);
      const T* row = input.operand.As<T>(at) + Begin(i + 1, image);
      T* repeated = Block<T>(at, input.gathered);
      for (size_t k = 0; k < kElementsOfABlock + kShortRow; ++k)
        repeated[k] = row[moves ? k % loop_.length : 0];
      if constexpr (std::is_same_v<T, _Float16>) {
        float* floats = Block<float>(at, input.widened);
        FloatsOfHalves(repeated, floats, kElementsOfABlock + kShortRow);
        return floats;
      } else {
        return repeated;
      }
    });
  }
  const void* From(const BlockOperand& repeated, size_t i, size_t element) const {
    return repeated.As<std::byte>() +
           element % loop_.length * SizeInBlock(inputs_[i].operand.type.type);
  }

  // The result may be written where it belongs.
  bool IsDirect(int64_t step) const {
    return step == 1 && output_.type.type != program::v1::FLOAT16;
  }

  void RunBlock(const Workspace& at, Values& values, int64_t position, int64_t step,
                Numbers numbers, size_t n) const {
    const size_t size = program::SizeOf(output_.type.type);
    std::byte* const output = output_.At(at) + position * static_cast<int64_t>(size);
    absl::InlinedVector<BlockOperand, 4> operands;
    for (size_t s = 0; s < steps_.size(); ++s) {
      const MapStep& each = steps_[s];
      const bool last = s + 1 == steps_.size();
      operands.clear();
      for (uint32_t value : each.operands) operands.push_back(values[value]);
      std::byte* result = last && IsDirect(step) ? output : at.scratch + each.result;
      each.function(operands.data(), result, n);
      if (!last && each.type == program::v1::FLOAT16)
        RoundToFloat16(reinterpret_cast<float*>(result), n);
      values[inputs_.size() + s] = {result, true};
    }
    if (!IsDirect(step)) Store(at, values.back().data, output, step, numbers, n);
  }

  void Store(const Workspace& at, const void* result, std::byte* output, int64_t step,
             Numbers numbers, size_t n) const {
    WithElement(output_.type.type, [&](auto element) {
      using T = decltype(element);
      T* to = reinterpret_cast<T*>(output);
      if constexpr (std::is_same_v<T, _Float16>) {
        _Float16* halves = step == 1 ? to : Block<_Float16>(at, narrowed_);
        RoundToHalves(output_, at, static_cast<uint64_t>(numbers.first), numbers.step,
                      static_cast<const float*>(result), halves, n);
        if (step != 1) Scatter(halves, to, step, n);
      } else {
        Scatter(static_cast<const T*>(result), to, step, n);
      }
    });
  }

  Operand output_;
  std::vector<MapInput> inputs_;
  std::vector<MapStep> steps_;
  Loop loop_;  // of the output, the inputs and, with stochastic rounding, the output's numbers
  Chunking chunks_;
  bool short_rows_ = false;
  MemoryPlan scratch_;
  size_t narrowed_ = 0;  // a block of scratch
};

absl::StatusOr<Kernel> PrepareMap(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const auto map = std::make_shared<ElementwiseMap>();
  VPOD_RETURN_IF_ERROR(map->Init(ipu, instruction));
  return OnePhase(map->chunks().chunks(), map->scratch_bytes(),
                  [map](const Workspace& at, size_t chunk) {
                    map->Run(at, map->chunks().begin(chunk), map->chunks().end(chunk));
                    return absl::OkStatus();
                  });
}

}  // namespace

std::vector<KernelDef> MapKernels() {
  return {{Instruction::kMap, PrepareMap},
          {Instruction::kUnary, PrepareMap},
          {Instruction::kBinary, PrepareMap},
          {Instruction::kSelect, PrepareMap},
          {Instruction::kCast, PrepareMap}};
}

}  // namespace vpod::engine
