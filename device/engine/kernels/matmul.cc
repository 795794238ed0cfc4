#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "device/engine/kernels/dnnl.h"

namespace vpod::engine {
namespace {

using Memory = dnnl::memory;

// An operand as the product reads it: strides of its matrices, of their rows and columns.
struct Matrix {
  Operand operand;
  int64_t stride = 0, row_stride = 0, column_stride = 0;

  Matrix(Operand from, bool transposed) : operand(std::move(from)) {
    const program::Dims& dims = operand.type.dims;
    const int64_t stored_row = dims.back();
    stride = dims[dims.size() - 2] * stored_row;
    row_stride = transposed ? 1 : stored_row;
    column_stride = transposed ? stored_row : 1;
  }

  bool by_column() const { return row_stride == 1 && column_stride != 1; }
};

// A single matrix has two dimensions: oneDNN has other code for three.
Memory::desc Describe(int64_t matrices, int64_t rows, int64_t columns, Memory::dims strides) {
  if (matrices > 1) return {{matrices, rows, columns}, Memory::data_type::f32, std::move(strides)};
  strides.erase(strides.begin());
  return {{rows, columns}, Memory::data_type::f32, strides};
}

// Products of [rows, inner] and [inner, columns], added to the results or not.
struct Shape {
  int64_t matrices, rows, inner, columns;
  bool adds;
  auto operator<=>(const Shape&) const = default;
};

struct Product {
  dnnl::matmul primitive;
  Memory::desc a, b, out, scratchpad;
};

// Blocks of a result, or several small results, are chunks. Their sizes are part of the result:
// oneDNN may choose another order of summation for other sizes.
struct MatMul {
  Matrix a, b;
  Operand output;
  int64_t m, n, k;
  Chunking matrices, rows, columns, inner;
  // Float16 blocks as float32, laid out as the operands are.
  size_t a_scratch = 0, b_scratch = 0, out_scratch = 0, scratchpad = 0;
  std::map<Shape, Product> products;

  bool half() const { return output.type.type == program::v1::FLOAT16; }
  absl::Status Run(const Workspace& at, size_t chunk) const;
};

Product MakeProduct(const MatMul& op, const Shape& shape) {
  // Scratch holds a block densely; the arena holds it within its matrix.
  const auto block = [&](const Matrix& matrix, int64_t rows, int64_t columns) {
    const Memory::dims dense = matrix.by_column() ? Memory::dims{rows * columns, 1, rows}
                                                  : Memory::dims{rows * columns, columns, 1};
    const Memory::dims within{matrix.stride, matrix.row_stride, matrix.column_stride};
    return Describe(shape.matrices, rows, columns, op.half() ? dense : within);
  };
  Product product;
  product.a = block(op.a, shape.rows, shape.inner);
  product.b = block(op.b, shape.inner, shape.columns);
  const int64_t rows = op.half() ? shape.rows : op.m, columns = op.half() ? shape.columns : op.n;
  product.out = Describe(shape.matrices, shape.rows, shape.columns, {rows * columns, columns, 1});
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
void Widen(const Matrix& matrix, const _Float16* from, int64_t rows, int64_t columns, float* to) {
  const int64_t outer = matrix.by_column() ? columns : rows,
                length = matrix.by_column() ? rows : columns;
  const int64_t stride = matrix.by_column() ? matrix.column_stride : matrix.row_stride;
  for (int64_t i = 0; i < outer; ++i)
    FloatsOfHalves(from + i * stride, to + i * length, static_cast<size_t>(length));
}

absl::Status MatMul::Run(const Workspace& at, size_t chunk) const {
  const size_t column_chunk = chunk % columns.chunks(),
               row_chunk = chunk / columns.chunks() % rows.chunks(),
               matrix_chunk = chunk / columns.chunks() / rows.chunks();
  const auto matrix = static_cast<int64_t>(matrices.begin(matrix_chunk)),
             num_matrices = static_cast<int64_t>(matrices.size(matrix_chunk));
  const auto row = static_cast<int64_t>(rows.begin(row_chunk)),
             num_rows = static_cast<int64_t>(rows.size(row_chunk)),
             column = static_cast<int64_t>(columns.begin(column_chunk)),
             num_columns = static_cast<int64_t>(columns.size(column_chunk));
  const int64_t place = (matrix * m + row) * n + column;
  float* result =
      half() ? reinterpret_cast<float*>(at.scratch + out_scratch) : output.As<float>(at) + place;
  for (size_t part = 0; part < inner.chunks(); ++part) {
    const auto first = static_cast<int64_t>(inner.begin(part)),
               length = static_cast<int64_t>(inner.size(part));
    const Product& product = products.at({num_matrices, num_rows, length, num_columns, part > 0});
    const int64_t of_a = matrix * a.stride + row * a.row_stride + first * a.column_stride,
                  of_b = matrix * b.stride + first * b.row_stride + column * b.column_stride;
    float* left = a.operand.As<float>(at) + of_a;
    float* right = b.operand.As<float>(at) + of_b;
    if (half()) {
      left = reinterpret_cast<float*>(at.scratch + a_scratch);
      right = reinterpret_cast<float*>(at.scratch + b_scratch);
      for (int64_t i = 0; i < num_matrices; ++i) {
        Widen(a, a.operand.As<_Float16>(at) + of_a + i * a.stride, num_rows, length,
              left + i * num_rows * length);
        Widen(b, b.operand.As<_Float16>(at) + of_b + i * b.stride, length, num_columns,
              right + i * length * num_columns);
      }
    }
    product.primitive.execute(
        StreamOfThisThread(),
        {{DNNL_ARG_SRC, Memory(product.a, CpuEngine(), left)},
         {DNNL_ARG_WEIGHTS, Memory(product.b, CpuEngine(), right)},
         {DNNL_ARG_DST, Memory(product.out, CpuEngine(), result)},
         {DNNL_ARG_SCRATCHPAD, Memory(product.scratchpad, CpuEngine(), at.scratch + scratchpad)}});
  }
  // Several matrices are whole, so that their rows follow each other.
  for (int64_t i = 0; half() && i < num_matrices * num_rows; ++i) {
    RoundToHalves(output, at, static_cast<uint64_t>(place + i * n), 1, result + i * num_columns,
                  output.As<_Float16>(at) + place + i * n, static_cast<size_t>(num_columns));
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
  const auto products = static_cast<size_t>(op.output.type.elements() / (op.m * op.n));
  const bool small = rows == m && columns == n && inner == k;
  const double most = op.half() ? 1 << 20 : 1 << 30;  // elements, in scratch
  const double elements = std::max({m * n, m * k, n * k});
  const double together = std::floor(std::min(kFewest / (m * n * k), most / elements));
  op.matrices = {products, small ? static_cast<size_t>(std::max(1.0, together)) : 1};
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
    const program::Dims& dims = output.type.dims;
    op->m = dims[dims.size() - 2];
    op->n = dims.back();
    op->k = op->a.stride / op->m;
    Cut(*op);
    MemoryPlan scratch;
    if (op->half()) {
      const size_t float_bytes = op->matrices.per_chunk * sizeof(float);
      op->a_scratch = scratch.Add(op->rows.per_chunk * op->inner.per_chunk * float_bytes);
      op->b_scratch = scratch.Add(op->inner.per_chunk * op->columns.per_chunk * float_bytes);
      op->out_scratch = scratch.Add(op->rows.per_chunk * op->columns.per_chunk * float_bytes);
    }
    size_t scratchpad = 0;
    const auto sizes = [](const Chunking& cut) {
      return std::array<size_t, 2>{cut.size(0), cut.size(cut.chunks() - 1)};
    };
    for (size_t matrices : sizes(op->matrices)) {
      for (size_t rows : sizes(op->rows)) {
        for (size_t columns : sizes(op->columns)) {
          for (size_t part = 0; part < std::min<size_t>(3, op->inner.chunks()); ++part) {
            const size_t inner = op->inner.size(part == 2 ? op->inner.chunks() - 1 : part);
            const Shape shape{static_cast<int64_t>(matrices), static_cast<int64_t>(rows),
                              static_cast<int64_t>(inner), static_cast<int64_t>(columns), part > 0};
            if (op->products.contains(shape)) continue;
            const Product& product = op->products[shape] = MakeProduct(*op, shape);
            scratchpad = std::max(scratchpad, product.scratchpad.get_size());
          }
        }
      }
    }
    op->scratchpad = scratch.Add(scratchpad);
    const size_t chunks = op->matrices.chunks() * op->rows.chunks() * op->columns.chunks();
    Kernel kernel = OnePhase(chunks, scratch.bytes(), [op](const Workspace& at, size_t chunk) {
      return Guarded([&]() -> absl::Status { return op->Run(at, chunk); });
    });
    constexpr double kLong = 1 << 24;
    const double operations = static_cast<double>(op->matrices.per_chunk * op->rows.per_chunk) *
                              static_cast<double>(op->columns.per_chunk * op->k);
    kernel.primitive_bytes = op->products.size() * kPrimitiveBytes;
    kernel.phases[0].operations = operations;
    kernel.phases[0].is_long = operations >= kLong;
    return kernel;
  });
}

}  // namespace

std::vector<KernelDef> MatMulKernels() { return {{Instruction::kMatMul, PrepareMatMul}}; }

}  // namespace vpod::engine
