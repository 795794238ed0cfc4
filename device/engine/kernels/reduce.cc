#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "device/base/simd.h"
#include "device/engine/kernels/loop.h"

namespace vpod::engine {
namespace {

using program::v1::ReduceOperator;

// Takes n rows of `width` elements, which follow one another. An addition has to wait for the one
// before it: of narrow rows, several are added at once, each to sums of its own.
VPOD_SIMD void AddRows(double* sums, const float* rows, size_t n, size_t width) {
  constexpr size_t kWide = 128;
  const size_t together = kWide / width, length = together * width;
  if (together < 2 || n < 2 * together) {
    for (size_t row = 0; row < n; ++row, rows += width) {
      for (size_t i = 0; i < width; ++i) sums[i] += rows[i];
    }
    return;
  }
  double wide[kWide] = {};
  for (; n >= together; n -= together, rows += length) {
    for (size_t i = 0; i < length; ++i) wide[i] += rows[i];
  }
  for (size_t i = 0; i < n * width; ++i) wide[i] += rows[i];
  for (size_t row = 0; row < together; ++row) {
    for (size_t i = 0; i < width; ++i) sums[i] += wide[row * width + i];
  }
}
// Not-a-number wins against any number.
VPOD_SIMD void MaxRows(double* sums, const float* rows, size_t n, size_t width) {
  for (size_t row = 0; row < n; ++row, rows += width) {
    for (size_t i = 0; i < width; ++i)
      sums[i] = rows[i] > sums[i] || rows[i] != rows[i] ? rows[i] : sums[i];
  }
}
VPOD_SIMD void MinRows(double* sums, const float* rows, size_t n, size_t width) {
  for (size_t row = 0; row < n; ++row, rows += width) {
    for (size_t i = 0; i < width; ++i)
      sums[i] = rows[i] < sums[i] || rows[i] != rows[i] ? rows[i] : sums[i];
  }
}
VPOD_SIMD void MultiplyRows(double* products, const float* rows, size_t n, size_t width) {
  for (size_t row = 0; row < n; ++row, rows += width) {
    for (size_t i = 0; i < width; ++i) products[i] *= rows[i];
  }
}

auto RowsFunction(ReduceOperator op) {
  switch (op) {
    case program::v1::MAX:
      return MaxRows;
    case program::v1::MIN:
      return MinRows;
    case program::v1::PRODUCT:
      return MultiplyRows;
    default:
      return AddRows;
  }
}

double Initial(ReduceOperator op) {
  if (op == program::v1::PRODUCT) return 1;
  if (op == program::v1::MAX) return -std::numeric_limits<double>::infinity();
  if (op == program::v1::MIN) return std::numeric_limits<double>::infinity();
  return 0;
}

// Takes `value` into a result, as the rows above do.
double Combine(ReduceOperator op, double result, double value) {
  switch (op) {
    case program::v1::MAX:
      return value > result || std::isnan(value) ? value : result;
    case program::v1::MIN:
      return value < result || std::isnan(value) ? value : result;
    case program::v1::PRODUCT:
      return result * value;
    default:
      return result + value;
  }
}

// The results of a row of the kept axes are taken together, and the elements of a row of the
// reduced axes one after the other; both in the order in which the input lies in memory.
struct Plan {
  Operand input, output;
  ReduceOperator op = program::v1::SUM;
  double scale = 1;
  Loop kept;     // operands: input, output, numbers of the output's elements
  Loop reduced;  // operand: input
  Chunking results;
  // Few results of many elements: the elements are cut into parts, whose results are combined in
  // order in a second phase.
  Chunking elements;
};

size_t Product(const program::Dims& dims) {
  size_t n = 1;
  for (int64_t dim : dims) n *= static_cast<size_t>(dim);
  return n;
}

Plan MakePlan(Operand input, Operand output, const program::v1::Reduce& op) {
  const program::Dims& dims = input.type.dims;
  const program::Dims from = BroadcastStrides(input, dims),
                      to = BroadcastStrides(output, output.type.dims);
  std::vector<bool> is_reduced(dims.size());
  for (uint32_t axis : op.axes()) is_reduced[axis] = true;
  program::Dims kept, kept_from, reduced, reduced_from;
  for (size_t i = 0; i < dims.size(); ++i) {
    (is_reduced[i] ? reduced : kept).push_back(dims[i]);
    (is_reduced[i] ? reduced_from : kept_from).push_back(from[i]);
  }
  Plan plan;
  plan.op = op.operator_();
  const size_t count = Product(reduced);
  if (plan.op == program::v1::MEAN) plan.scale = 1.0 / static_cast<double>(count);
  const bool random = output.rounding.stochastic;
  plan.kept = PlanLoop(kept, {kept_from, to, random ? NumberStrides(kept) : to});
  plan.reduced = PlanLoop(reduced, {reduced_from});
  plan.results = ChunkItems(output.elements(), count);
  // The parts of a result that is one of many would be more work to combine than to make, unless a
  // part would be too long for a chunk.
  constexpr size_t kMostParts = 64, kMostElements = size_t{1} << 23;
  size_t parts = plan.results.chunks() >= kMostParts
                     ? 1
                     : std::clamp<size_t>(input.elements() / kElementsOfAChunk /
                                              std::max<size_t>(1, plan.results.chunks()),
                                          1, kMostParts);
  parts = std::max(parts, (count + kMostElements - 1) / kMostElements);
  plan.elements = {count, std::max<size_t>(1, (count + parts - 1) / parts)};
  plan.input = std::move(input);
  plan.output = std::move(output);
  return plan;
}

// Adds elements [from, to) of the reduced axes to the results of a block of the kept axes.
void ReduceBlock(const Plan& plan, FloatRow& row, int64_t position, size_t n, size_t from,
                 size_t to, double* results) {
  const int64_t along = plan.kept.steps[0];
  if (n > 1 && along != 0 && std::abs(along) < std::abs(plan.reduced.steps[0])) {
    const auto take = RowsFunction(plan.op);
    const bool dense = along == 1 && plan.reduced.steps[0] == static_cast<int64_t>(n);
    const size_t at_once = dense ? std::max<size_t>(1, kElementsOfABlock / n) : 1;
    plan.reduced.ForBlocks(from, to, [&](const auto& at, size_t elements) {
      for (size_t i = 0; i < elements; i += at_once) {
        const int64_t place = position + at[0] + static_cast<int64_t>(i) * plan.reduced.steps[0];
        const size_t rows = std::min(at_once, elements - i);
        take(results, row.Read(place, along, rows * n), rows, n);
      }
    });
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    double result = results[i];
    const int64_t start = position + static_cast<int64_t>(i) * along;
    plan.reduced.ForBlocks(from, to, [&](const auto& at, size_t elements) {
      const int64_t step = plan.reduced.steps[0];
      const float* x = row.Read(start + at[0], step, elements);
      // All elements may be one.
      for (size_t e = 0; e < elements; ++e) result = Combine(plan.op, result, x[step == 0 ? 0 : e]);
    });
    results[i] = result;
  }
}

// `at` are the positions of the kept axes' operands.
template <class Positions>
void StoreResults(const Plan& plan, FloatRow& out, const Positions& at, size_t n,
                  const double* results) {
  float* floats = out.Write(at[1], plan.kept.steps[1]);
  for (size_t i = 0; i < n; ++i) floats[i] = static_cast<float>(results[i] * plan.scale);
  out.Store(at[1], plan.kept.steps[1], at[2], plan.kept.steps[2], n);
}

Kernel ReduceFloats(std::shared_ptr<const Plan> plan) {
  // Results of no elements are stored, too.
  const size_t parts = std::max<size_t>(1, plan->elements.chunks()),
               outputs = plan->output.elements();
  // Chunk c takes part c % parts of a range of the results.
  const auto reduce = [plan, parts, outputs](const Workspace& at, size_t chunk) {
    FloatRow row(plan->input, at), out(plan->output, at);
    double results[kElementsOfABlock];
    const size_t part = chunk % parts, from = plan->elements.begin(part),
                 to = plan->elements.end(part);
    size_t first = plan->results.begin(chunk / parts);
    plan->kept.ForBlocks(first, plan->results.end(chunk / parts), [&](const auto& p, size_t n) {
      std::fill_n(results, n, Initial(plan->op));
      ReduceBlock(*plan, row, p[0], n, from, to, results);
      if (parts == 1) {
        StoreResults(*plan, out, p, n, results);
      } else {
        auto* all = reinterpret_cast<double*>(at.shared) + part * outputs;
        std::copy_n(results, n, all + first);
      }
      first += n;
    });
    return absl::OkStatus();
  };
  Kernel kernel = OnePhase(plan->results.chunks() * parts, 0, reduce);
  if (parts == 1) return kernel;
  kernel.shared_bytes = parts * outputs * sizeof(double);
  const Chunking ranges = ChunkItems(outputs, parts);
  kernel.phases.push_back({ranges.chunks(), [=](const Workspace& at, size_t chunk) {
                             const auto* all = reinterpret_cast<const double*>(at.shared);
                             FloatRow out(plan->output, at);
                             double results[kElementsOfABlock];
                             size_t first = ranges.begin(chunk);
                             plan->kept.ForBlocks(
                                 first, ranges.end(chunk), [&](const auto& p, size_t n) {
                                   std::copy_n(all + first, n, results);
                                   for (size_t part = 1; part < parts; ++part) {
                                     const double* more = all + part * outputs + first;
                                     for (size_t i = 0; i < n; ++i)
                                       results[i] = Combine(plan->op, results[i], more[i]);
                                   }
                                   StoreResults(*plan, out, p, n, results);
                                   first += n;
                                 });
                             return absl::OkStatus();
                           }});
  return kernel;
}

int32_t InitialInt(ReduceOperator op) {
  if (op == program::v1::MAX) return std::numeric_limits<int32_t>::min();
  if (op == program::v1::MIN) return std::numeric_limits<int32_t>::max();
  return op == program::v1::PRODUCT ? 1 : 0;
}

// Sums and products wrap, so that their parts may be combined in any order.
int32_t CombineInts(ReduceOperator op, int32_t a, int32_t b) {
  if (op == program::v1::MAX) return std::max(a, b);
  if (op == program::v1::MIN) return std::min(a, b);
  const auto left = static_cast<uint32_t>(a), right = static_cast<uint32_t>(b);
  return static_cast<int32_t>(op == program::v1::PRODUCT ? left * right : left + right);
}

Kernel ReduceInts(std::shared_ptr<const Plan> plan) {
  const int32_t initial = InitialInt(plan->op);
  const size_t parts = std::max<size_t>(1, plan->elements.chunks()),
               outputs = plan->output.elements();
  // Chunk c takes part c % parts of a range of the results.
  const auto reduce = [=](const Workspace& at, size_t chunk) {
    const auto* in = plan->input.As<int32_t>(at);
    auto* out = plan->output.As<int32_t>(at);
    const size_t part = chunk % parts, from = plan->elements.begin(part),
                 to = plan->elements.end(part);
    size_t number = plan->results.begin(chunk / parts);
    plan->kept.ForBlocks(number, plan->results.end(chunk / parts), [&](const auto& p, size_t n) {
      for (size_t i = 0; i < n; ++i, ++number) {
        int32_t result = initial;
        const int32_t* first = in + p[0] + static_cast<int64_t>(i) * plan->kept.steps[0];
        plan->reduced.ForBlocks(from, to, [&](const auto& at_element, size_t elements) {
          const int32_t* x = first + at_element[0];
          for (size_t e = 0; e < elements; ++e)
            result =
                CombineInts(plan->op, result, x[static_cast<int64_t>(e) * plan->reduced.steps[0]]);
        });
        if (parts == 1) {
          out[p[1] + static_cast<int64_t>(i) * plan->kept.steps[1]] = result;
        } else {
          reinterpret_cast<int32_t*>(at.shared)[part * outputs + number] = result;
        }
      }
    });
    return absl::OkStatus();
  };
  Kernel kernel = OnePhase(plan->results.chunks() * parts, 0, reduce);
  if (parts == 1) return kernel;
  kernel.shared_bytes = parts * outputs * sizeof(int32_t);
  const Chunking ranges = ChunkItems(outputs, parts);
  kernel.phases.push_back(
      {ranges.chunks(), [=](const Workspace& at, size_t chunk) {
         const auto* all = reinterpret_cast<const int32_t*>(at.shared);
         auto* out = plan->output.As<int32_t>(at);
         size_t number = ranges.begin(chunk);
         plan->kept.ForBlocks(number, ranges.end(chunk), [&](const auto& p, size_t n) {
           for (size_t i = 0; i < n; ++i, ++number) {
             int32_t result = all[number];
             for (size_t part = 1; part < parts; ++part)
               result = CombineInts(plan->op, result, all[part * outputs + number]);
             out[p[1] + static_cast<int64_t>(i) * plan->kept.steps[1]] = result;
           }
         });
         return absl::OkStatus();
       }});
  return kernel;
}

absl::StatusOr<Kernel> PrepareReduce(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const auto plan = std::make_shared<const Plan>(MakePlan(Resolve(ipu, instruction.inputs(0)),
                                                          ResolveOutput(ipu, instruction, 0),
                                                          instruction.reduce()));
  Kernel kernel =
      plan->input.type.type == program::v1::INT32 ? ReduceInts(plan) : ReduceFloats(plan);
  kernel.phases[0].operations =
      static_cast<double>(plan->results.per_chunk) * static_cast<double>(plan->elements.per_chunk);
  return kernel;
}

// The largest element of a row so far. Not-a-number is larger than any number; of equal ones the
// first counts.
struct Largest {
  float value = 0;
  int64_t index = -1;

  void Take(float x, int64_t at) {
    const bool takes = index < 0 || x > value || (std::isnan(x) && !std::isnan(value));
    if (!takes) return;
    value = x;
    index = at;
  }
};

struct ArgMax {
  Operand output;
  size_t length = 0;  // of a row
  Chunking rows;
  Chunking parts;    // of a row that is too long for a chunk
  FloatBlock block;  // as many elements as a chunk reads at a time

  Largest Of(const Workspace& at, size_t row, size_t begin, size_t end) const {
    Largest largest;
    for (size_t from = begin; from < end; from += kElementsOfAChunk) {
      const size_t n = std::min(kElementsOfAChunk, end - from);
      const float* x = block.Read(at, row * length + from, n);
      for (size_t i = 0; i < n; ++i) largest.Take(x[i], static_cast<int64_t>(from + i));
    }
    return largest;
  }
  void Store(const Workspace& at, size_t row, const Largest& largest) const {
    output.As<int32_t>(at)[row] = static_cast<int32_t>(largest.index);
  }
};

absl::StatusOr<Kernel> PrepareArgMax(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0));
  constexpr size_t kMostElements = size_t{1} << 23;
  ArgMax op{.output = ResolveOutput(ipu, instruction, 0),
            .length = static_cast<size_t>(input.type.dims.back())};
  op.rows = ChunkItems(op.output.elements(), op.length);
  op.parts = {op.length, std::min(op.length, kMostElements)};
  MemoryPlan scratch;
  op.block = FloatBlock(input, std::min(op.length, kElementsOfAChunk), scratch);
  const size_t parts = op.parts.chunks();
  const auto operations = static_cast<double>(op.rows.per_chunk * op.parts.per_chunk);
  if (parts == 1) {
    Kernel kernel =
        OnePhase(op.rows.chunks(), scratch.bytes(), [op](const Workspace& at, size_t chunk) {
          for (size_t row = op.rows.begin(chunk); row < op.rows.end(chunk); ++row)
            op.Store(at, row, op.Of(at, row, 0, op.length));
          return absl::OkStatus();
        });
    kernel.phases[0].operations = operations;
    return kernel;
  }
  // Such rows are chunks by themselves, so few that one chunk takes the largest of their parts.
  const size_t rows = op.output.elements();
  Kernel kernel =
      OnePhase(rows * parts, scratch.bytes(), [op, parts](const Workspace& at, size_t chunk) {
        reinterpret_cast<Largest*>(at.shared)[chunk] =
            op.Of(at, chunk / parts, op.parts.begin(chunk % parts), op.parts.end(chunk % parts));
        return absl::OkStatus();
      });
  kernel.phases[0].operations = operations;
  kernel.shared_bytes = rows * parts * sizeof(Largest);
  kernel.phases.push_back({1, [op, rows, parts](const Workspace& at, size_t) {
                             const auto* found = reinterpret_cast<const Largest*>(at.shared);
                             for (size_t row = 0; row < rows; ++row) {
                               Largest largest = found[row * parts];
                               for (size_t part = 1; part < parts; ++part) {
                                 const Largest& next = found[row * parts + part];
                                 largest.Take(next.value, next.index);
                               }
                               op.Store(at, row, largest);
                             }
                             return absl::OkStatus();
                           }});
  return kernel;
}

}  // namespace

std::vector<KernelDef> ReduceKernels() {
  return {{Instruction::kReduce, PrepareReduce}, {Instruction::kArgMax, PrepareArgMax}};
}

}  // namespace vpod::engine
