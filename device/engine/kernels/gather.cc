#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/read_once.h"

namespace vpod::engine {
namespace {

using program::v1::Scatter;

// Tensors as [outer, count, inner]: `whole` has `count` slices along the axis, and the indices
// choose `chosen` of them, the same for all outer and inner places unless they go along the axis.
struct Choice {
  Operand whole, indices, part;
  size_t outer = 1, count = 1, chosen = 1, inner = 1;
  bool along = false, labels = false;

  // `op` is a Gather or Scatter.
  template <class Op>
  Choice(const program::v1::Ipu& ipu, uint32_t of_whole, uint32_t of_indices, Operand of_part,
         const Op& op)
      : whole(Resolve(ipu, of_whole)),
        indices(Resolve(ipu, of_indices)),
        part(std::move(of_part)),
        along(op.along()),
        labels(op.labels()) {
    const program::Dims& dims = whole.type.dims;
    for (size_t i = 0; i < dims.size(); ++i) {
      size_t& product = i < op.axis() ? outer : i == op.axis() ? count : inner;
      product *= static_cast<size_t>(dims[i]);
    }
    chosen = along ? static_cast<size_t>(indices.type.dims[op.axis()]) : indices.elements();
  }

  // The slice that is chosen at a place.
  absl::StatusOr<size_t> Find(const Workspace& at, size_t o, size_t k, size_t i) const {
    const int32_t index =
        ReadOnce(indices.As<int32_t>(at) + (along ? (o * chosen + k) * inner + i : k));
    if (index >= 0 && static_cast<size_t>(index) < count) return static_cast<size_t>(index);
    const std::string name = labels ? absl::StrCat("label ", index, " in row ", along ? o : k)
                                    : absl::StrCat("index ", index);
    if (count == 0) return absl::InvalidArgumentError(name + " chooses from no elements");
    return absl::InvalidArgumentError(absl::StrCat(name, " is outside 0 to ", count - 1));
  }
};

absl::StatusOr<Kernel> PrepareGather(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Gather& op = instruction.gather();
  const Choice choice(ipu, instruction.inputs(0), instruction.inputs(1),
                      Resolve(ipu, instruction.outputs(0)), op);
  const size_t size = program::SizeOf(choice.whole.type.type);
  const Chunking elements = ChunkItems(choice.part.elements(), 1);
  return OnePhase(elements.chunks(), 0, [=](const Workspace& at, size_t chunk) -> absl::Status {
    const std::byte* from = choice.whole.At(at);
    std::byte* to = choice.part.At(at);
    for (size_t e = elements.begin(chunk); e < elements.end(chunk);) {
      const size_t i = e % choice.inner, k = e / choice.inner % choice.chosen,
                   o = e / choice.inner / choice.chosen;
      VPOD_ASSIGN_OR_RETURN(const size_t slice, choice.Find(at, o, k, i));
      // To the end of the slice, if all of it comes from one.
      const size_t n = choice.along ? 1 : std::min(choice.inner - i, elements.end(chunk) - e);
      std::memcpy(to + e * size, from + ((o * choice.count + slice) * choice.inner + i) * size,
                  n * size);
      e += n;
    }
    return absl::OkStatus();
  });
}

template <class T>
bool IsNaN(T x) {
  if constexpr (std::is_integral_v<T>) return false;
  return x != x;
}

template <class T>
T Combined(Scatter::Combine combine, T old, T update) {
  // Integers wrap.
  using Wrapping = std::conditional_t<std::is_integral_v<T>, uint32_t, T>;
  switch (combine) {
    case Scatter::ADD:
      return static_cast<T>(static_cast<Wrapping>(old) + static_cast<Wrapping>(update));
    case Scatter::MULTIPLY:
      return static_cast<T>(static_cast<Wrapping>(old) * static_cast<Wrapping>(update));
    case Scatter::MIN:
      return update < old || IsNaN(update) ? update : old;
    case Scatter::MAX:
      return update > old || IsNaN(update) ? update : old;
    default:
      return update;
  }
}

template <class T>
void Combine(Scatter::Combine combine, const T* updates, T* whole, size_t n) {
  if (combine == Scatter::SET) {
    std::copy_n(updates, n, whole);
    return;
  }
  for (size_t i = 0; i < n; ++i) whole[i] = Combined<T>(combine, whole[i], updates[i]);
}

// Updates of one place are combined in their order: a chunk has columns of the tensors to itself,
// and goes through all indices, in rounds if they are too many for a chunk.
struct Columns {
  Choice choice;
  Scatter::Combine combine;
  Chunking outers, columns;  // of a chunk: several columns, or all of them of several outer places
  Chunking indices;          // of a round

  template <class T>
  absl::Status Run(const Workspace& at, size_t round, size_t chunk) const {
    const size_t group = chunk / columns.chunks(), column = chunk % columns.chunks();
    for (size_t o = outers.begin(group); o < outers.end(group); ++o) {
      for (size_t k = indices.begin(round); k < indices.end(round); ++k)
        VPOD_RETURN_IF_ERROR(Take<T>(at, o, k, columns.begin(column), columns.size(column)));
    }
    return absl::OkStatus();
  }

  // Combines `n` elements of update k.
  template <class T>
  absl::Status Take(const Workspace& at, size_t o, size_t k, size_t first, size_t n) const {
    const T* update = choice.part.As<T>(at) + (o * choice.chosen + k) * choice.inner + first;
    const size_t together = choice.along ? 1 : n;
    for (size_t i = 0; i < n; i += together) {
      VPOD_ASSIGN_OR_RETURN(const size_t slice, choice.Find(at, o, k, first + i));
      T* whole = choice.whole.As<T>(at) + (o * choice.count + slice) * choice.inner + first + i;
      Combine<T>(combine, update + i, whole, together);
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<Kernel> PrepareScatter(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Scatter& op = instruction.scatter();
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  Kernel kernel;
  if (input.offset != output.offset) {
    const Chunking bytes = ChunkItems(output.type.bytes(), 1);
    kernel.phases.push_back({bytes.chunks(), [=](const Workspace& at, size_t chunk) {
                               std::memcpy(output.At(at) + bytes.begin(chunk),
                                           input.At(at) + bytes.begin(chunk), bytes.size(chunk));
                               return absl::OkStatus();
                             }});
  }
  const Operand updates = Resolve(ipu, instruction.inputs(2));
  if (updates.type.empty()) return kernel.phases.empty() ? ZeroKernel(updates) : kernel;
  // Some tens of elements of a cache line or more, in at most some hundred chunks.
  constexpr size_t kFewest = 64, kMost = 256;
  const Choice choice(ipu, instruction.outputs(0), instruction.inputs(1), updates, op);
  const size_t width = std::max(kFewest, (choice.inner * choice.outer + kMost - 1) / kMost);
  const Chunking columns{choice.inner, std::min(width, choice.inner)};
  const Chunking outers{choice.outer, std::max<size_t>(1, width / choice.inner)};
  const size_t elements = outers.per_chunk * columns.per_chunk;
  const size_t per_round = std::max<size_t>(1, (size_t{1} << 22) / elements);
  const Chunking indices{choice.chosen, std::min(per_round, choice.chosen)};
  const auto state =
      std::make_shared<const Columns>(Columns{choice, op.combine(), outers, columns, indices});
  const size_t chunks = outers.chunks() * columns.chunks();
  kernel.phases.push_back(
      {.chunks = chunks,
       .run =
           [state, chunks](const Workspace& at, size_t chunk) {
             return WithElement(state->choice.whole.type.type, [&](auto element) {
               return state->Run<decltype(element)>(at, chunk / chunks, chunk % chunks);
             });
           },
       .is_long = updates.elements() > kElementsOfAChunk,
       .rounds = indices.chunks(),
       .operations = static_cast<double>(indices.per_chunk * elements)});
  return kernel;
}

absl::StatusOr<Kernel> PrepareIota(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand output = Resolve(ipu, instruction.outputs(0));
  const program::Dims& dims = output.type.dims;
  const uint32_t axis = instruction.iota().axis();
  size_t inner = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) inner *= static_cast<size_t>(dims[i]);
  const auto count = static_cast<size_t>(dims[axis]);
  const bool whole = output.type.type == program::v1::INT32;
  const Chunking elements = ChunkItems(output.elements(), 1);
  return OnePhase(elements.chunks(), 0, [=](const Workspace& at, size_t chunk) {
    for (size_t e = elements.begin(chunk); e < elements.end(chunk); ++e) {
      const size_t number = e / inner % count;
      if (whole) {
        output.As<int32_t>(at)[e] = static_cast<int32_t>(number);
      } else {
        output.As<float>(at)[e] = static_cast<float>(number);
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<KernelDef> GatherKernels() {
  return {{Instruction::kGather, PrepareGather},
          {Instruction::kScatter, PrepareScatter},
          {Instruction::kIota, PrepareIota}};
}

}  // namespace vpod::engine
