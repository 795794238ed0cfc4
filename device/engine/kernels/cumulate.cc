#include <algorithm>
#include <memory>

#include "device/engine/kernels/loop.h"

namespace vpod::engine {
namespace {

// As FloatRow, for INT32, whose sums and products wrap.
class IntRow {
 public:
  IntRow(const Operand& operand, const Workspace& at) : base_(operand.As<uint32_t>(at)) {}
  const uint32_t* Read(int64_t position, int64_t, size_t) { return base_ + position; }
  uint32_t* Write(int64_t position, int64_t) { return base_ + position; }
  void Store(int64_t, int64_t, int64_t, int64_t, size_t) {}

 private:
  uint32_t* base_;
};

// The tensors as [outer, length, inner]. A chunk takes some groups, each of which has up to a block
// of neighbouring lines. Long lines are cut into rounds, between which the results so far lie in
// shared memory.
struct Cumulate {
  Operand input, output;
  bool product = false, exclusive = false, reverse = false;
  size_t outer = 1, length = 1, inner = 1;
  Chunking columns;  // of a group
  Chunking groups;   // of a chunk
  Chunking rows;     // of a round

  template <class Carry, class T>
  void Take(Carry& carry, T x, T& y) const {
    if (exclusive) y = static_cast<T>(carry);
    carry = product ? carry * static_cast<Carry>(x) : carry + static_cast<Carry>(x);
    if (!exclusive) y = static_cast<T>(carry);
  }

  // Elements [begin, end) of the lines of a group, `width` of them side by side.
  template <class Row, class Carry>
  void RunRows(Row& in, Row& out, Carry* carry, size_t place, size_t width, size_t begin,
               size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      const size_t row = reverse ? length - 1 - i : i;
      const auto at = static_cast<int64_t>(place + row * inner);
      const auto* x = in.Read(at, 1, width);
      auto* y = out.Write(at, 1);
      for (size_t c = 0; c < width; ++c) Take(carry[c], x[c], y[c]);
      out.Store(at, 1, at, 1, width);
    }
  }
  // The same of a single line whose elements lie side by side.
  template <class Row, class Carry>
  void RunLine(Row& in, Row& out, Carry& carry, size_t place, size_t begin, size_t end) const {
    for (size_t first = begin; first < end; first += kElementsOfABlock) {
      const size_t n = std::min(kElementsOfABlock, end - first);
      const auto at = static_cast<int64_t>(place + (reverse ? length - first - n : first));
      const auto* x = in.Read(at, 1, n);
      auto* y = out.Write(at, 1);
      for (size_t i = 0; i < n; ++i) {
        const size_t c = reverse ? n - 1 - i : i;
        Take(carry, x[c], y[c]);
      }
      out.Store(at, 1, at, 1, n);
    }
  }

  template <class Row, class Carry>
  void Run(const Workspace& at, size_t chunk) const {
    Row in(input, at), out(output, at);
    const size_t round = chunk / groups.chunks();
    for (size_t g = groups.begin(chunk % groups.chunks()); g < groups.end(chunk % groups.chunks());
         ++g) {
      const size_t o = g / columns.chunks(), column = columns.begin(g % columns.chunks()),
                   width = columns.size(g % columns.chunks());
      Carry carry[kElementsOfABlock];
      Carry* shared = reinterpret_cast<Carry*>(at.shared) + o * inner + column;
      if (round == 0) {
        std::fill_n(carry, width, static_cast<Carry>(product ? 1 : 0));
      } else {
        std::copy_n(shared, width, carry);
      }
      const size_t place = o * length * inner + column;
      if (inner == 1) {
        RunLine(in, out, *carry, place, rows.begin(round), rows.end(round));
      } else {
        RunRows(in, out, carry, place, width, rows.begin(round), rows.end(round));
      }
      if (rows.chunks() > 1) std::copy_n(carry, width, shared);
    }
  }
};

absl::StatusOr<Kernel> PrepareCumulate(const program::v1::Ipu& ipu,
                                       const Instruction& instruction) {
  const program::v1::Cumulate& op = instruction.cumulate();
  constexpr size_t kMostElements = size_t{1} << 23;
  auto plan = std::make_shared<Cumulate>(Cumulate{.input = Resolve(ipu, instruction.inputs(0)),
                                                  .output = ResolveOutput(ipu, instruction, 0),
                                                  .product = op.operator_() == program::v1::PRODUCT,
                                                  .exclusive = op.exclusive(),
                                                  .reverse = op.reverse()});
  const program::Dims& dims = plan->input.type.dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    size_t& product = i < op.axis() ? plan->outer : i == op.axis() ? plan->length : plan->inner;
    product *= static_cast<size_t>(dims[i]);
  }
  if (plan->input.type.empty()) return ZeroKernel(plan->output);
  plan->columns = {plan->inner, std::min(plan->inner, kElementsOfABlock)};
  const size_t width = plan->columns.per_chunk;
  plan->rows = {plan->length, std::min(plan->length, kMostElements / width)};
  plan->groups = ChunkItems(plan->outer * plan->columns.chunks(), plan->rows.per_chunk * width);
  const bool ints = plan->input.type.type == program::v1::INT32;
  Kernel kernel;
  kernel.phases.push_back(
      {.chunks = plan->groups.chunks(),
       .run =
           [plan, ints](const Workspace& at, size_t chunk) {
             if (ints) {
               plan->Run<IntRow, uint32_t>(at, chunk);
             } else {
               plan->Run<FloatRow, double>(at, chunk);
             }
             return absl::OkStatus();
           },
       .rounds = plan->rows.chunks(),
       .operations = static_cast<double>(plan->groups.per_chunk * plan->rows.per_chunk * width)});
  if (plan->rows.chunks() > 1) kernel.shared_bytes = plan->outer * plan->inner * sizeof(double);
  return kernel;
}

}  // namespace

std::vector<KernelDef> CumulateKernels() { return {{Instruction::kCumulate, PrepareCumulate}}; }

}  // namespace vpod::engine
