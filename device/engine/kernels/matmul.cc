#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "device/engine/kernels/dnnl.h"

namespace vpod::engine {
namespace {

using Memory = dnnl::memory;

// Lines that begin a multiple of so many floats apart share few sets of the first-level cache:
// oneDNN gathers a block across them at half the speed or less.
constexpr int64_t kAliasing = 512, kPadding = 16;

// An operand as the product reads it: strides of its matrices, of their rows and columns.
struct Matrix {
  Operand operand;
  int64_t stride = 0, row_stride = 0, column_stride = 0;
  bool copied = false;  // a block is copied to scratch before it is read
  size_t scratch = 0;

  Matrix(Operand from, bool transposed) : operand(std::move(from)) {
    const program::Dims& dims = operand.type.dims;
    const int64_t stored_row = dims.back();
    stride = dims[dims.size() - 2] * stored_row;
    row_stride = transposed ? 1 : stored_row;
    column_stride = transposed ? stored_row : 1;
  }

  bool half() const { return operand.type.type == program::v1::FLOAT16; }
  // Lines are columns, not rows.
  bool by_column() const { return row_stride == 1 && column_stride != 1; }
  int64_t line_stride() const { return by_column() ? column_stride : row_stride; }
};

// A block of a matrix in scratch, as float32, its lines stored as those of the matrix.
struct BlockCopy {
  int64_t lines, length;
  bool by_column;

  BlockCopy(const Matrix& matrix, int64_t rows, int64_t columns)
      : lines(matrix.by_column() ? columns : rows),
        length(matrix.by_column() ? rows : columns),
        by_column(matrix.by_column()) {}

  int64_t line_stride() const { return length % kAliasing == 0 ? length + kPadding : length; }
  int64_t elements() const { return lines * line_stride(); }
  // Rows and columns of matrices.
  Memory::dims strides() const {
    if (by_column) return {elements(), 1, line_stride()};
    return {elements(), line_stride(), 1};
  }
  // At most, for blocks that are not larger.
  size_t most_elements() const { return static_cast<size_t>(lines * (length + kPadding)); }

  // Copies the block that begins at an element.
  void Fill(const Matrix& from, const Workspace& at, int64_t element, float* to) const {
    for (int64_t line = 0; line < lines; ++line, to += line_stride()) {
      const int64_t first = element + line * from.line_stride();
      if (from.half()) {
        FloatsOfHalves(from.operand.As<_Float16>(at) + first, to, static_cast<size_t>(length));
      } else {
        std::copy_n(from.operand.As<float>(at) + first, length, to);
      }
    }
  }
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
  size_t out_scratch = 0, scratchpad = 0;
  std::map<Shape, Product> products;

  bool half() const { return output.type.type == program::v1::FLOAT16; }
  absl::Status Run(const Workspace& at, size_t chunk) const;
};

Product MakeProduct(const MatMul& op, const Shape& shape) {
  const auto block = [&](const Matrix& matrix, int64_t rows, int64_t columns) {
    const Memory::dims within{matrix.stride, matrix.row_stride, matrix.column_stride};
    return Describe(shape.matrices, rows, columns,
                    matrix.copied ? BlockCopy(matrix, rows, columns).strides() : within);
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
    const auto read = [&](const Matrix& from, int64_t first_row, int64_t rows_of_block,
                          int64_t first_column, int64_t columns_of_block) {
      const int64_t element =
          matrix * from.stride + first_row * from.row_stride + first_column * from.column_stride;
      if (!from.copied) return from.operand.As<float>(at) + element;
      const BlockCopy copy(from, rows_of_block, columns_of_block);
      float* to = reinterpret_cast<float*>(at.scratch + from.scratch);
      for (int64_t i = 0; i < num_matrices; ++i)
        copy.Fill(from, at, element + i * from.stride, to + i * copy.elements());
      return to;
    };
    float* left = read(a, row, num_rows, first, length);
    float* right = read(b, first, length, column, num_columns);
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

// Whether blocks are copied: float16 is widened; lines across the sums that alias are parted, if
// each element goes into enough products to pay for it.
void ChooseCopies(MatMul& op) {
  constexpr int64_t kReuse = 32;
  const auto aliases = [](const Matrix& matrix) { return matrix.line_stride() % kAliasing == 0; };
  op.a.copied = op.half() || (op.a.by_column() && aliases(op.a) && op.n >= kReuse);
  op.b.copied = op.half() || (!op.b.by_column() && aliases(op.b) && op.m >= kReuse);
}

// Blocks of 2^22 to 2^27 operations, of whole rows where these are not too long and not too few;
// more, up to the limit of a chunk, if a block would have few rows.
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
    if (rows == m) {
      columns =
          std::min(columns, std::max(kRows, std::floor(operations / (k * rows) / kRows) * kRows));
    }
    if (rows * columns * k > kOperationsOfAChunk)
      columns = std::min(n, std::max(kRows, std::floor(kOperationsOfAChunk / (k * rows))));
    if (rows * columns * k > kOperationsOfAChunk)
      rows = columns =
          std::min({m, n, std::max(1.0, std::floor(std::sqrt(kOperationsOfAChunk / k)))});
  }
  double inner = std::min(k, kInner);
  const bool copies = op.a.copied || op.b.copied;
  if (copies) {
    // Blocks lie in scratch.
    constexpr double kElements = 1 << 22;
    columns = std::min(columns, kElements);
    rows = std::min(rows, std::floor(kElements / columns));
    inner = std::min(inner, std::max(1.0, std::floor(kElements / std::max(rows, columns))));
  }
  const auto products = static_cast<size_t>(op.output.type.elements() / (op.m * op.n));
  const bool small = rows == m && columns == n && inner == k;
  const double most = copies ? 1 << 20 : 1 << 30;  // elements, in scratch
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
    ChooseCopies(*op);
    Cut(*op);
    MemoryPlan scratch;
    const auto add = [&](Matrix& matrix, const Chunking& rows, const Chunking& columns) {
      const BlockCopy copy(matrix, static_cast<int64_t>(rows.per_chunk),
                           static_cast<int64_t>(columns.per_chunk));
      if (matrix.copied)
        matrix.scratch = scratch.Add(op->matrices.per_chunk * copy.most_elements() * sizeof(float));
    };
    add(op->a, op->rows, op->inner);
    add(op->b, op->inner, op->columns);
    if (op->half()) {
      op->out_scratch = scratch.Add(op->matrices.per_chunk * op->rows.per_chunk *
                                    op->columns.per_chunk * sizeof(float));
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
