#include "device/fabric/collective.h"

#include <atomic>
#include <cstring>
#include <utility>

namespace vpod::fabric {
namespace {

// A collective whose buffers together exceed this leaves the caches alone when it writes.
constexpr size_t kBeyondCachesBytes = 32 << 20;

// Whether a tensor stays as it is: the only member's, in its place.
bool StaysAsItIs(const Collective& collective, const CollectiveTensor& tensor) {
  return collective.arenas.size() == 1 && collective.op != Operator::kSquareAdd &&
         tensor.in == tensor.out && tensor.in_offset == tensor.out_offset;
}

}  // namespace

void RunPiece(const Collective& collective, const Piece& piece,
              const std::vector<std::byte*>& arenas) {
  std::vector<TreeOutput> outputs;
  Subtree all{{0, arenas.size()}, std::vector<const void*>(arenas.size())};
  for (const Span& span : piece.spans) {
    const CollectiveTensor& tensor = collective.tensors[span.tensor];
    outputs.clear();
    for (size_t i = 0; i < arenas.size(); ++i) {
      const bool needed = collective.needs_results.empty() || collective.needs_results[i];
      if (needed && (span.target == kAll || span.target == i))
        outputs.push_back({arenas[i] + tensor.out_offset, span.in_begin - span.out_begin});
    }
    if (span.source == kAll) {
      for (size_t i = 0; i < arenas.size(); ++i) all.leaves[i] = arenas[i] + tensor.in_offset;
      all.element = tensor.in;
      const bool beyond_caches =
          tensor.elements * ElementBytes(tensor.out) * outputs.size() > kBeyondCachesBytes;
      TreeReduce(collective.op, {&all, 1}, outputs, tensor.out, span.in_begin,
                 span.in_begin + span.elements, collective.scale, beyond_caches);
      continue;
    }
    const size_t element = ElementBytes(tensor.in);
    const std::byte* from = arenas[span.source] + tensor.in_offset + span.in_begin * element;
    for (const TreeOutput& output : outputs) {
      std::byte* to = static_cast<std::byte*>(output.data) + span.out_begin * element;
      if (to != from) std::memcpy(to, from, span.elements * element);
    }
  }
}

void RunHere(Collective collective, const Compute& compute, Completed done) {
  struct Work {
    Collective collective;
    std::vector<Piece> pieces;
    std::atomic<size_t> remaining;
    Completed done;
  };
  auto work = std::make_shared<Work>();
  std::erase_if(collective.tensors,
                [&](const CollectiveTensor& tensor) { return StaysAsItIs(collective, tensor); });
  work->collective = std::move(collective);
  work->done = std::move(done);
  // One owner, but pieces for all threads.
  work->pieces = CutIntoPieces(
      work->collective.kind, work->collective.root, work->collective.tensors,
      {.members = work->collective.arenas.size(), .owners = 1, .piece_elements = kSharedPiece});
  if (work->pieces.empty())
    return work->done(Outcome{work->collective.clock, work->collective.failure});
  work->remaining = work->pieces.size();
  for (size_t piece = 0; piece < work->pieces.size(); ++piece) {
    compute([work, piece] {
      RunPiece(work->collective, work->pieces[piece], work->collective.arenas);
      if (work->remaining.fetch_sub(1) == 1)
        work->done(Outcome{work->collective.clock, work->collective.failure});
    });
  }
}

}  // namespace vpod::fabric
