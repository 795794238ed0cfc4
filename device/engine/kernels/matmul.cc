#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "device/engine/kernels/dnnl.h"

namespace vpod::engine {
namespace {

using Memory = dnnl::memory;

// A rank-2 operand as the product reads it: strides of its rows and columns.
struct Matrix {
  Operand operand;
  int64_t row_stride = 0, column_stride = 0;

  Matrix(Operand from, bool transposed) : operand(std::move(from)) {
    const int64_t stored_row = operand.type.dims[1];
    row_stride = transposed ? 1 : stored_row;
    column_stride = transposed ? stored_row : 1;
  }

  Memory::desc Describe(int64_t rows, int64_t columns) const {
    return {Memory::dims{rows, columns}, Memory::data_type::f32,
            Memory::dims{row_stride, column_stride}};
  }
};

// The product of [rows, inner] and [inner, columns], added to the result or not.
struct Shape {
  int64_t rows, inner, columns;
  bool adds;
  auto operator<=>(const Shape&) const = default;
};

struct Product {
  dnnl::matmul primitive;
  Memory::desc a, b, out, scratchpad;
};

// Blocks of the result are chunks. Their sizes are part of the result: oneDNN may choose another
// order of summation for other sizes.
struct MatMul {
  Matrix a, b;
  Operand output;
  int64_t m, n, k;
  Chunking rows, columns, inner;
  // Float16 blocks as float32, laid out as the operands are.
  size_t a_scratch = 0, b_scratch = 0, out_scratch = 0, scratchpad = 0;
  std::map<Shape, Product> products;

  bool half() const { return output.type.type == program::v1::FLOAT16; }
  absl::Status Run(const Workspace& at, size_t chunk) const;
};

Product MakeProduct(const MatMul& op, const Shape& shape) {
  // Scratch holds a block densely; the arena holds it within its matrix.
  const auto block = [&](const Matrix& matrix, int64_t rows, int64_t columns) {
    if (!op.half()) return matrix.Describe(rows, columns);
    const bool by_column = matrix.row_stride == 1 && matrix.column_stride != 1;
    return Memory::desc(Memory::dims{rows, columns}, Memory::data_type::f32,
                        by_column ? Memory::dims{1, rows} : Memory::dims{columns, 1});
  };
  Product product;
  product.a = block(op.a, shape.rows, shape.inner);
  product.b = block(op.b, shape.inner, shape.columns);
  product.out = Memory::desc({shape.rows, shape.columns}, Memory::data_type::f32,
                             Memory::dims{op.half() ? shape.columns : op.n, 1});
  dnnl::primitive_attr attributes = UserScratchpad();
  if (shape.adds) {
    dnnl::post_ops adds;
    adds.append_sum();
    attributes.set_post_ops(adds);
  }
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(product.a, product.b, product.out),
                                          attributes, CpuEngine());
  product.primitive = dnnl::matmul(desc);
  product.scratchpad = desc.scratchpad_desc();
  return product;
}

// A block of float16 as a dense block of float32, stored by rows or by columns as the matrix is.
void Widen(const Matrix& matrix, const Workspace& at, int64_t row, int64_t column, int64_t rows,
           int64_t columns, float* to) {
  const auto* from =
      matrix.operand.As<_Float16>(at) + row * matrix.row_stride + column * matrix.column_stride;
  const bool by_column = matrix.row_stride == 1 && matrix.column_stride != 1;
  const int64_t outer = by_column ? columns : rows, length = by_column ? rows : columns;
  const int64_t stride = by_column ? matrix.column_stride : matrix.row_stride;
  for (int64_t i = 0; i < outer; ++i)
    FloatsOfHalves(from + i * stride, to + i * length, static_cast<size_t>(length));
}

absl::Status MatMul::Run(const Workspace& at, size_t chunk) const {
  const size_t row_chunk = chunk / columns.chunks(), column_chunk = chunk % columns.chunks();
  const auto row = static_cast<int64_t>(rows.begin(row_chunk)),
             num_rows = static_cast<int64_t>(rows.size(row_chunk)),
             column = static_cast<int64_t>(columns.begin(column_chunk)),
             num_columns = static_cast<int64_t>(columns.size(column_chunk));
  auto* halves = output.As<_Float16>(at) + row * n + column;
  float* result = half() ? reinterpret_cast<float*>(at.scratch + out_scratch)
                         : output.As<float>(at) + row * n + column;
  for (size_t part = 0; part < inner.chunks(); ++part) {
    const auto first = static_cast<int64_t>(inner.begin(part)),
               length = static_cast<int64_t>(inner.size(part));
    const Product& product = products.at({num_rows, length, num_columns, part > 0});
    float* left = a.operand.As<float>(at) + row * a.row_stride + first * a.column_stride;
    float* right = b.operand.As<float>(at) + first * b.row_stride + column * b.column_stride;
    if (half()) {
      left = reinterpret_cast<float*>(at.scratch + a_scratch);
      right = reinterpret_cast<float*>(at.scratch + b_scratch);
      Widen(a, at, row, first, num_rows, length, left);
      Widen(b, at, first, column, length, num_columns, right);
    }
    product.primitive.execute(
        StreamOfThisThread(),
        {{DNNL_ARG_SRC, Memory(product.a, CpuEngine(), left)},
         {DNNL_ARG_WEIGHTS, Memory(product.b, CpuEngine(), right)},
         {DNNL_ARG_DST, Memory(product.out, CpuEngine(), result)},
         {DNNL_ARG_SCRATCHPAD, Memory(product.scratchpad, CpuEngine(), at.scratch + scratchpad)}});
  }
  for (int64_t i = 0; half() && i < num_rows; ++i) {
    RoundToHalves(output, at, static_cast<uint64_t>((row + i) * n + column), 1,
                  result + i * num_columns, halves + i * n, static_cast<size_t>(num_columns));
  }
  return absl::OkStatus();
}

// Blocks of 2^22 to 2^27 operations, of whole rows where these are not too long; more, up to the
// limit of a chunk, if a block would have few rows.
void Cut(MatMul& op) {
  const auto m = static_cast<double>(op.m), n = static_cast<double>(op.n),
             k = static_cast<double>(op.k);
  constexpr double kFewest = 1 << 22, kMost = 1 << 27;
  constexpr double kRows = 32, kColumns = 1024, kInner = 1 << 16;
  double rows = m, columns = n;
  if (m * n * k >= 2 * kFewest) {
    const double operations = std::clamp(m * n * k / 8, kFewest, kMost);
    columns = std::min(n, kColumns);
    rows = std::min(m, std::max(kRows, std::floor(operations / (k * columns) / kRows) * kRows));
    if (rows * columns * k > kOperationsOfAChunk)
      columns = std::min(n, std::max(kRows, std::floor(kOperationsOfAChunk / (k * rows))));
    if (rows * columns * k > kOperationsOfAChunk)
      rows = columns =
          std::min({m, n, std::max(1.0, std::floor(std::sqrt(kOperationsOfAChunk / k)))});
  }
  double inner = std::min(k, kInner);
  if (op.half()) {
    // Blocks as float32 lie in scratch.
    constexpr double kElements = 1 << 22;
    columns = std::min(columns, kElements);
    rows = std::min(rows, std::floor(kElements / columns));
    inner = std::min(inner, std::max(1.0, std::floor(kElements / std::max(rows, columns))));
  }
  op.rows = {static_cast<size_t>(op.m), static_cast<size_t>(rows)};
  op.columns = {static_cast<size_t>(op.n), static_cast<size_t>(columns)};
  op.inner = {static_cast<size_t>(op.k), static_cast<size_t>(inner)};
}

absl::StatusOr<Kernel> PrepareMatMul(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::MatMul& attributes = instruction.mat_mul();
  const Operand left = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  if (output.type.empty() || left.type.empty()) return ZeroKernel(output);  // sums of nothing
  return Guarded([&]() -> absl::StatusOr<Kernel> {
    const auto op = std::make_shared<MatMul>(
        MatMul{.a = Matrix(left, attributes.transpose_a()),
               .b = Matrix(Resolve(ipu, instruction.inputs(1)), attributes.transpose_b()),
               .output = output});
    op->m = op->output.type.dims[0];
    op->n = op->output.type.dims[1];
    op->k = op->a.operand.type.elements() / op->m;
    Cut(*op);
    MemoryPlan scratch;
    if (op->half()) {
      op->a_scratch = scratch.Add(op->rows.per_chunk * op->inner.per_chunk * sizeof(float));
      op->b_scratch = scratch.Add(op->inner.per_chunk * op->columns.per_chunk * sizeof(float));
      op->out_scratch = scratch.Add(op->rows.per_chunk * op->columns.per_chunk * sizeof(float));
    }
    size_t scratchpad = 0;
    const auto sizes = [](const Chunking& cut) {
      return std::array<size_t, 2>{cut.size(0), cut.size(cut.chunks() - 1)};
    };
    for (size_t rows : sizes(op->rows)) {
      for (size_t columns : sizes(op->columns)) {
        for (size_t part = 0; part < std::min<size_t>(3, op->inner.chunks()); ++part) {
          const size_t inner = op->inner.size(part == 2 ? op->inner.chunks() - 1 : part);
          const Shape shape{static_cast<int64_t>(rows), static_cast<int64_t>(inner),
                            static_cast<int64_t>(columns), part > 0};
          if (op->products.contains(shape)) continue;
          const Product& product = op->products[shape] = MakeProduct(*op, shape);
          scratchpad = std::max(scratchpad, product.scratchpad.get_size());
        }
      }
    }
    op->scratchpad = scratch.Add(scratchpad);
    Kernel kernel = OnePhase(op->rows.chunks() * op->columns.chunks(), scratch.bytes(),
                             [op](const Workspace& at, size_t chunk) {
                               return Guarded([&]() -> absl::Status { return op->Run(at, chunk); });
                             });
    constexpr double kLong = 1 << 24;
    const double operations = static_cast<double>(op->rows.per_chunk * op->columns.per_chunk) *
                              static_cast<double>(op->k);
    kernel.primitive_bytes = op->products.size() * kPrimitiveBytes;
    kernel.phases[0].operations = operations;
    kernel.phases[0].is_long = operations >= kLong;
    return kernel;
  });
}

}  // namespace

std::vector<KernelDef> MatMulKernels() { return {{Instruction::kMatMul, PrepareMatMul}}; }

}  // namespace vpod::engine
