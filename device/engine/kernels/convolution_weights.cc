#include "device/engine/kernels/convolution_weights.h"

#include <numeric>

#include "device/engine/kernels/transposition.h"

namespace vpod::engine {

using Memory = dnnl::memory;
using program::Dims;
using program::v1::Convolution;

namespace {

// Strides of the same elements without gaps, in the same order.
Dims DenseStrides(const Dims& dims, const Dims& strides) {
  std::vector<size_t> axes(dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) {
    return std::make_pair(strides[a], dims[a]) < std::make_pair(strides[b], dims[b]);
  });
  Dims dense(dims.size());
  int64_t stride = 1;
  for (const size_t axis : axes) {
    dense[axis] = stride;
    stride *= dims[axis];
  }
  return dense;
}

Dims WeightsDims(const ConvolutionShape& s) {
  Dims dims = {s.outputs / s.groups, s.channels / s.groups};
  if (s.groups > 1) dims.insert(dims.begin(), s.groups);
  dims.insert(dims.end(), s.kernel.begin(), s.kernel.end());
  return dims;
}

}  // namespace

int64_t NumberAt(const Operand& tensor, int64_t place) {
  const Dims& dims = tensor.type.dims;
  const Dims numbers = NumberStrides(dims);
  int64_t number = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1) number += place / tensor.strides[i] % dims[i] * numbers[i];
  }
  return number;
}

int64_t BlockUnits(const ConvolutionShape& s, Convolution::Pass pass) {
  if (s.groups > 1) return s.groups;
  return pass == Convolution::INPUT_GRADIENT ? s.channels : s.outputs;
}

WeightsBlock BlockAt(const ConvolutionStep& step, int64_t first, int64_t units) {
  const ConvolutionShape& s = step.shape;
  const int64_t channels = s.channels / s.groups, outputs = s.outputs / s.groups;
  WeightsBlock block{.shape = s,
                     .channels = {0, s.channels},
                     .outputs = {0, s.outputs},
                     .strides = step.weights().strides};
  int64_t stride = block.strides[0];
  if (s.groups > 1) {
    stride *= outputs;
    block.strides.insert(block.strides.begin(), stride);
    block.shape.groups = units;
    block.channels = {first * channels, units * channels};
    block.outputs = {first * outputs, units * outputs};
  } else if (step.pass == Convolution::INPUT_GRADIENT) {
    stride = block.strides[1];
    block.channels = {first, units};
    block.axis = 1;
  } else {
    block.outputs = {first, units};
  }
  block.first = static_cast<size_t>(first * stride);
  block.shape.channels = block.channels.size;
  block.shape.outputs = block.outputs.size;
  block.dims = WeightsDims(block.shape);
  // A single group is none.
  if (block.strides.size() > block.dims.size()) block.strides.erase(block.strides.begin());
  return block;
}

Memory::desc AnyWeights(const ConvolutionShape& shape) {
  return {WeightsDims(shape), Memory::data_type::f32, Memory::format_tag::any};
}

PlainWeights::PlainWeights(const Operand& tensor, const Dims& dims, const Dims& strides)
    : half_(tensor.type.type == program::v1::FLOAT16) {
  const Dims dense = DenseStrides(dims, strides);
  strides_ = half_ ? dense : strides;
  for (size_t i = 0; i < dims.size(); ++i) {
    // May be anything, which oneDNN does not take.
    if (dims[i] == 1) strides_[i] = 1;
    elements_ *= static_cast<size_t>(dims[i]);
  }
  if (!half_) return;
  Dims numbers = NumberStrides(tensor.type.dims);
  // From one group to the next.
  if (numbers.size() < dims.size()) numbers.insert(numbers.begin(), dims[1] * numbers[0]);
  loop_ = PlanLoop(dims, {strides, dense, std::move(numbers)});
}

float* PlainWeights::Read(const Operand& tensor, const Workspace& at, size_t first,
                          float* scratch) const {
  if (!half_) return tensor.As<float>(at) + first;
  const _Float16* from = tensor.As<_Float16>(at) + first;
  _Float16 gathered[kElementsOfABlock];
  loop_.ForBlocks(0, elements_, [&](const auto& place, size_t n) {
    FloatsOfHalves(Gather(from + place[0], loop_.steps[0], n, gathered), scratch + place[1], n);
  });
  return scratch;
}

float* PlainWeights::Write(const Operand& tensor, const Workspace& at, size_t first,
                           float* scratch) const {
  return half_ ? scratch : tensor.As<float>(at) + first;
}

void PlainWeights::Store(const Operand& tensor, const Workspace& at, size_t first,
                         const float* scratch) const {
  if (!half_) return;
  _Float16* to = tensor.As<_Float16>(at);
  _Float16 rounded[kElementsOfABlock];
  const int64_t step = loop_.steps[0];
  const int64_t number = NumberAt(tensor, static_cast<int64_t>(first));
  loop_.ForBlocks(0, elements_, [&](const auto& place, size_t n) {
    _Float16* place_of_first = to + first + place[0];
    RoundToHalves(tensor, at, static_cast<uint64_t>(number + place[2]), loop_.steps[2],
                  scratch + place[1], step == 1 ? place_of_first : rounded, n);
    if (step != 1) Scatter(rounded, place_of_first, step, n);
  });
}

bool Repacking::Transposes(const Memory::desc& from, const Memory::desc& to) {
  return FindSquares(from, to).has_value();
}

Repacking::Repacking(Memory::desc from, Memory::desc to)
    : from_(std::move(from)), to_(std::move(to)), squares_(FindSquares(from_, to_)) {
  if (squares_) return;
  reorder_ = dnnl::reorder(dnnl::reorder::primitive_desc(CpuEngine(), from_, CpuEngine(), to_));
}

std::optional<Repacking::Squares> Repacking::FindSquares(const Memory::desc& from,
                                                         const Memory::desc& to) {
  const auto &read = from.data.format_desc.blocking, &written = to.data.format_desc.blocking;
  if (read.inner_nblks != 0 || written.inner_nblks != 2 || written.inner_idxs[0] != 0 ||
      written.inner_idxs[1] != 1 || written.inner_blks[0] != written.inner_blks[1])
    return std::nullopt;
  const int64_t side = written.inner_blks[0];
  Dims dims = from.dims();
  if ((side != 8 && side != 16) || read.strides[0] != 1 || dims[0] % side != 0 ||
      dims[1] % side != 0)
    return std::nullopt;
  Squares squares{.side = static_cast<size_t>(side),
                  .of_a_row = static_cast<size_t>(dims[0] / side),
                  .row = static_cast<size_t>(read.strides[1]),
                  .first = static_cast<size_t>(to.data.offset0),
                  .step = static_cast<size_t>(written.strides[0])};
  Dims read_by(read.strides, read.strides + dims.size()),
      written_by(written.strides, written.strides + dims.size());
  // Row by row of squares.
  dims[0] = 1;
  dims[1] /= side;
  read_by[1] *= side;
  squares.rows = PlanLoop(dims, {read_by, written_by});
  return squares;
}

void Repacking::Execute(float* from, float* to) const {
  if (!squares_) {
    Memory read(from_, CpuEngine(), from), written(to_, CpuEngine(), to);
    reorder_.execute(StreamOfThisThread(), read, written);
    return;
  }
  const Loop& rows = squares_->rows;
  rows.ForBlocks(0, rows.length * rows.rows, [&](const auto& at, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const auto step = static_cast<int64_t>(i);
      TransposeSquares(squares_->side, from + at[0] + step * rows.steps[0], squares_->row,
                       squares_->of_a_row, to + squares_->first + at[1] + step * rows.steps[1],
                       squares_->step);
    }
  });
}

WeightsPacking::WeightsPacking(const Operand& tensor, const std::vector<PackedBlock>& blocks,
                               Direction direction)
    : direction_(direction) {
  const WeightsBlock& front = blocks.front().block;
  const bool grouped = front.shape.groups > 1;
  // Weights that are converted or transposed are read and written as they lie. oneDNN is faster
  // with parts of all rows.
  const PlainWeights plain(tensor, front.dims, front.strides);
  const bool by_rows = tensor.type.type == program::v1::FLOAT16 ||
                       (direction == Direction::kPack &&
                        Repacking::Transposes({front.dims, Memory::data_type::f32, plain.strides()},
                                              blocks.front().packed));
  const size_t outer = by_rows && !grouped && front.strides[1] > front.strides[0] ? 1 : 0;
  const size_t together = outer == front.axis ? 1 : blocks.size();
  for (size_t i = 0; i < blocks.size(); i += together) {
    for (Piece& piece : CutBest(tensor, absl::MakeConstSpan(&blocks[i], together), outer)) {
      piece.first += blocks[i].block.first - front.first;
      for (Part& part : piece.parts) part.block += i;
      elements = std::max(elements, piece.plain.elements());
      pieces.push_back(std::move(piece));
    }
  }
}

std::vector<WeightsPacking::Piece> WeightsPacking::CutBest(const Operand& tensor,
                                                           absl::Span<const PackedBlock> blocks,
                                                           size_t outer) const {
  constexpr size_t kElements = size_t{1} << 17;
  size_t all = 0;
  for (const PackedBlock& each : blocks) all += each.block.elements();
  const auto rows = static_cast<size_t>(blocks[0].block.dims[outer]);
  const size_t fit = std::max<size_t>(1, kElements / (all / rows));
  // Multiples of the blocks that layouts have.
  const std::vector<size_t> units =
      outer == 0 ? std::vector<size_t>{64, 48} : std::vector<size_t>{16, 64};
  for (const size_t unit : units) {
    try {
      return Cut(tensor, blocks, outer, (fit + unit - 1) / unit * unit);
    } catch (const dnnl::error&) {
      // A layout that cannot be cut so.
    }
  }
  return Cut(tensor, blocks, outer, rows);
}

std::vector<WeightsPacking::Piece> WeightsPacking::Cut(const Operand& tensor,
                                                       absl::Span<const PackedBlock> blocks,
                                                       size_t outer, size_t rows_of_a_piece) const {
  const size_t inner = 1 - outer;
  const Dims& strides = blocks[0].block.strides;
  Dims dims = blocks[0].block.dims;
  const Chunking rows{static_cast<size_t>(dims[outer]), rows_of_a_piece};
  for (const PackedBlock& each : blocks.subspan(1)) dims[inner] += each.block.dims[inner];
  std::vector<Piece> cut;
  for (size_t i = 0; i < rows.chunks(); ++i) {
    dims[outer] = static_cast<int64_t>(rows.size(i));
    Piece piece{.first = rows.begin(i) * static_cast<size_t>(strides[outer]),
                .plain = PlainWeights(tensor, dims, strides)};
    Dims of_part = dims, first(dims.size(), 0);
    first[outer] = static_cast<int64_t>(rows.begin(i));
    int64_t before = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      of_part[inner] = blocks[b].block.dims[inner];
      Memory::desc packed = blocks[b].packed,
                   plain(of_part, Memory::data_type::f32, piece.plain.strides());
      if (rows.chunks() > 1) packed = packed.submemory_desc(of_part, first);
      piece.parts.push_back(
          {b, static_cast<size_t>(before * piece.plain.strides()[inner]),
           direction_ == Direction::kPack ? Repacking(plain, packed) : Repacking(packed, plain)});
      before += of_part[inner];
    }
    cut.push_back(std::move(piece));
  }
  return cut;
}

}  // namespace vpod::engine
