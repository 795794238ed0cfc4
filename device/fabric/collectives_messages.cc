// Collectives by messages. Reductions: every site sends its partial results of a piece towards the
// piece's owner, which combines them and sends the result; relays on the way (relays.h) combine
// what they pass on and distribute the result. Copies: the owner, which has the source, sends when
// all are there.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/fabric/collectives_impl.h"

namespace vpod::fabric {
namespace {

// Where the partial results of a site lie in its message: node by node, span by span, each aligned
// for float64. A node of one replica is sent as it is, which loses nothing.
struct PartialLayout {
  std::vector<std::vector<size_t>> offsets;  // [node][span]
  size_t bytes = 0;

  PartialLayout(const std::vector<TreeNode>& nodes, const Piece& piece,
                const std::vector<CollectiveTensor>& tensors) {
    for (const TreeNode& node : nodes) {
      std::vector<size_t>& of_node = offsets.emplace_back();
      for (const Span& span : piece.spans) {
        bytes = (bytes + 7) / 8 * 8;
        of_node.push_back(bytes);
        bytes += span.elements * ElementBytes(SentElement(node, tensors[span.tensor]));
      }
    }
  }
  static Element SentElement(const TreeNode& node, const CollectiveTensor& tensor) {
    return node.size() == 1 ? tensor.in : PartialElement(tensor.in);
  }
};

size_t ResultBytes(const Piece& piece, const std::vector<CollectiveTensor>& tensors) {
  size_t bytes = 0;
  for (const Span& span : piece.spans)
    bytes += span.elements * ElementBytes(tensors[span.tensor].out);
  return bytes;
}

// The memory here that a span's result goes to.
std::vector<std::byte*> Targets(const Collective& collective, const ReplicaGroup& group,
                                const Span& span) {
  const size_t offset = collective.tensors[span.tensor].out_offset;
  std::vector<std::byte*> targets;
  for (size_t i = 0; i < collective.arenas.size(); ++i) {
    if (span.target == kAll || span.target == group.Position(collective.replicas[i]))
      targets.push_back(collective.arenas[i] + offset);
  }
  return targets;
}

// Where nothing of a span is reduced yet, its tree is reduced as one.
void JoinLeaves(std::vector<Subtree>& subtrees, const Span& span) {
  Subtree all{{0, subtrees.back().node.end}, {}, subtrees.front().element, span.in_begin};
  for (const Subtree& subtree : subtrees) {
    if (subtree.leaves.size() != subtree.node.size()) return;
    for (const void* leaf : subtree.leaves) {
      all.leaves.push_back(static_cast<const std::byte*>(leaf) +
                           (span.in_begin - subtree.origin) * ElementBytes(subtree.element));
    }
  }
  subtrees = {std::move(all)};
}

// Writes the result of a piece to all replicas here.
void Scatter(const Collective& collective, const ReplicaGroup& group, const Piece& piece,
             const std::byte* result) {
  for (const Span& span : piece.spans) {
    const size_t element = ElementBytes(collective.tensors[span.tensor].out);
    const size_t bytes = span.elements * element;
    for (std::byte* target : Targets(collective, group, span)) {
      std::byte* to = target + span.out_begin * element;
      if (to != result) std::memcpy(to, result, bytes);
    }
    result += bytes;
  }
}

}  // namespace

// A subtree of a piece's reduction that this site has: leaves of its own, or what another sent.
struct Collectives::Source {
  TreeNode node;
  size_t first_local = 0;       // place of the first leaf among the replicas here
  BufferPtr message;            // null: leaves of our own
  std::vector<size_t> offsets;  // in the message, by span

  Subtree Of(const Collective& collective, const Piece& piece, size_t span) const {
    const CollectiveTensor& tensor = collective.tensors[piece.spans[span].tensor];
    if (message != nullptr) {
      return {node,
              {message->data() + offsets[span]},
              PartialLayout::SentElement(node, tensor),
              piece.spans[span].in_begin};
    }
    Subtree subtree{node, {}, tensor.in, 0};
    for (size_t i = 0; i < node.size(); ++i)
      subtree.leaves.push_back(collective.arenas[first_local + i] + tensor.in_offset);
    return subtree;
  }
};

// Every piece reduced or copied as far as it is for us to do, results here, and that all have come.
size_t Collectives::CountMessageWork(const Operation& operation) const {
  const bool reduction = IsReduction(operation.collective->kind);
  size_t work = 1;
  for (size_t piece = 0; piece < operation.pieces.size(); ++piece) {
    const bool own = operation.Owns(options_.here, piece);
    work += own || reduction ? 1 : 0;
    work += operation.Receives(options_.here, piece) ? 1 : 0;
  }
  return work;
}

// The nodes whose results a site sends to the one above: of its own members and of those below.
std::vector<TreeNode> Collectives::NodesSent(const Operation& operation, size_t site,
                                             size_t piece) const {
  std::vector<bool> members = MembersOf(site, operation.key);
  for (size_t below : operation.Below(site, piece)) {
    const std::vector<bool> more = MembersOf(below, operation.key);
    for (size_t i = 0; i < more.size(); ++i) members[i] = members[i] || more[i];
  }
  return MaximalNodes(members);
}

void Collectives::PostReduce(const OperationPtr& operation, size_t piece) {
  options_.compute(
      [self = shared_from_this(), operation, piece] { self->Reduce(operation, piece); });
}

void Collectives::Reduce(const OperationPtr& operation, size_t piece) {
  const auto sources = SourcesOf(operation, piece);
  if (!sources.ok()) return options_.fail(sources.status());
  if (operation->Owns(options_.here, piece)) return Combine(operation, piece, *sources);
  SendPartials(operation, piece, *sources);
}

// In the order of the tree.
absl::StatusOr<std::vector<Collectives::Source>> Collectives::SourcesOf(
    const OperationPtr& operation, size_t index) {
  const Piece& piece = operation->pieces[index];
  std::map<size_t, BufferPtr> partials;
  {
    base::MutexLock lock(mutex_);
    for (auto& [site, buffer] : operation->partials[index])
      partials[site] = std::exchange(buffer, nullptr);
  }
  std::vector<Source> sources;
  size_t local = 0;  // replicas of a node follow each other here
  for (const TreeNode& node : MaximalNodes(MembersOf(options_.here, operation->key))) {
    sources.push_back({node, local, nullptr, {}});
    local += node.size();
  }
  for (size_t site : operation->Below(options_.here, index)) {
    const std::vector<TreeNode> nodes = NodesSent(*operation, site, index);
    const PartialLayout layout(nodes, piece, operation->collective->tensors);
    const auto sent = partials.find(site);
    if (sent == partials.end() || sent->second->size() != layout.bytes)
      return absl::InternalError("a peer sent partial results of another size");
    for (size_t n = 0; n < nodes.size(); ++n)
      sources.push_back({nodes[n], 0, sent->second, layout.offsets[n]});
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.node.begin < b.node.begin; });
  return sources;
}

void Collectives::SendPartials(const OperationPtr& operation, size_t index,
                               const std::vector<Source>& sources) {
  const Collective& collective = *operation->collective;
  const Piece& piece = operation->pieces[index];
  const auto send = [&](absl::Span<const std::byte> payload, BufferPtr buffer) {
    Send(operation->Above(options_.here, index), HeaderFor(*operation, kPartials, index), payload,
         [self = shared_from_this(), operation, buffer](const absl::Status& status) {
           self->Done(operation, status);
         });
  };
  // The elements of a leaf, as they were loaded or sent.
  const auto leaf = [](const Subtree& subtree, const Span& span) {
    const size_t element = ElementBytes(subtree.element);
    return absl::MakeConstSpan(static_cast<const std::byte*>(subtree.leaves[0]) +
                                   (span.in_begin - subtree.origin) * element,
                               span.elements * element);
  };
  if (sources.size() == 1 && sources[0].node.size() == 1 && piece.spans.size() == 1)
    return send(leaf(sources[0].Of(collective, piece, 0), piece.spans[0]), nullptr);
  const std::vector<TreeNode> nodes = NodesSent(*operation, options_.here, index);
  const PartialLayout layout(nodes, piece, collective.tensors);
  const BufferPtr buffer = buffers_.Take(layout.bytes);
  auto source = sources.begin();
  for (size_t n = 0; n < nodes.size(); ++n) {
    const auto first = source;
    while (source != sources.end() && source->node.begin < nodes[n].end) ++source;
    for (size_t s = 0; s < piece.spans.size(); ++s) {
      const Span& span = piece.spans[s];
      std::byte* to = buffer->data() + layout.offsets[n][s];
      std::vector<Subtree> subtrees;
      for (auto part = first; part != source; ++part)
        subtrees.push_back(part->Of(collective, piece, s));
      if (nodes[n].size() == 1) {
        const auto elements = leaf(subtrees[0], span);
        std::memcpy(to, elements.data(), elements.size());
      } else {
        PartialReduce(collective.op, subtrees, span.in_begin, span.in_begin + span.elements, to);
      }
    }
  }
  send(buffer->span(), buffer);
}

Landing Collectives::OnPartials(const OperationPtr& operation, const Header& header, size_t bytes) {
  {
    // Partial results follow our word that we are here.
    base::MutexLock lock(mutex_);
    if (!operation->collective || !IsReduction(operation->collective->kind) ||
        header.piece >= operation->pieces.size() ||
        operation->partials[header.piece].contains(header.site)) {
      return {};
    }
    const std::vector<size_t> below = operation->Below(options_.here, header.piece);
    if (std::find(below.begin(), below.end(), header.site) == below.end()) return {};
  }
  const PartialLayout layout(NodesSent(*operation, header.site, header.piece),
                             operation->pieces[header.piece], operation->collective->tensors);
  if (bytes != layout.bytes) {
    options_.fail(absl::InternalError("a peer sent partial results of another size"));
    return {};
  }
  const BufferPtr buffer = buffers_.Take(bytes);
  const auto landed = [self = shared_from_this(), operation, buffer, piece = header.piece,
                       site = header.site](const absl::Status& status) {
    if (!status.ok()) return self->options_.fail(status);
    bool complete;
    {
      base::MutexLock lock(self->mutex_);
      const bool first = operation->partials[piece].emplace(site, buffer).second;
      complete = first && operation->CanReduce(self->options_.here, piece);
    }
    if (complete) self->PostReduce(operation, piece);
  };
  return {buffer->data(), landed};
}

void Collectives::Combine(const OperationPtr& operation, size_t index,
                          const std::vector<Source>& sources) {
  const Collective& collective = *operation->collective;
  const Piece& piece = operation->pieces[index];
  // Results that all take lie in the memory of a replica here; those of several spans are sent
  // together.
  const bool travels = piece.to == kAll;
  const bool gathered = travels && piece.spans.size() > 1;
  const BufferPtr buffer =
      gathered ? buffers_.Take(ResultBytes(piece, collective.tensors)) : nullptr;
  absl::Span<const std::byte> result;
  size_t at = 0;
  for (size_t s = 0; s < piece.spans.size(); ++s) {
    const Span& span = piece.spans[s];
    const CollectiveTensor& tensor = collective.tensors[span.tensor];
    std::vector<Subtree> subtrees;
    for (const Source& source : sources) subtrees.push_back(source.Of(collective, piece, s));
    JoinLeaves(subtrees, span);
    std::vector<TreeOutput> outputs;
    if (gathered) outputs.push_back({buffer->data() + at, span.in_begin});
    const std::vector<std::byte*> targets = Targets(collective, operation->key.group, span);
    for (std::byte* target : targets) outputs.push_back({target, span.in_begin - span.out_begin});
    TreeReduce(collective.op, subtrees, outputs, tensor.out, span.in_begin,
               span.in_begin + span.elements, collective.scale);
    const size_t element = ElementBytes(tensor.out);
    if (travels) result = {targets[0] + span.out_begin * element, span.elements * element};
    at += span.elements * element;
  }
  SendResult(operation, index, gathered ? buffer->span() : result, buffer);
}

void Collectives::CopyAndSend(const OperationPtr& operation, size_t index) {
  const Collective& collective = *operation->collective;
  const Piece& piece = operation->pieces[index];
  const ReplicaGroup& group = operation->key.group;
  const auto source_of = [&](const Span& span) {
    const auto replica = std::lower_bound(collective.replicas.begin(), collective.replicas.end(),
                                          group.Replica(span.source));
    const CollectiveTensor& tensor = collective.tensors[span.tensor];
    return collective.arenas[static_cast<size_t>(replica - collective.replicas.begin())] +
           tensor.in_offset + span.in_begin * ElementBytes(tensor.in);
  };
  // A single contiguous span is sent without copying.
  absl::Span<const std::byte> result(source_of(piece.spans[0]),
                                     ResultBytes(piece, collective.tensors));
  BufferPtr buffer;
  if (piece.spans.size() > 1) {
    buffer = buffers_.Take(result.size());
    std::byte* to = buffer->data();
    for (const Span& span : piece.spans) {
      const size_t bytes = span.elements * ElementBytes(collective.tensors[span.tensor].in);
      std::memcpy(to, source_of(span), bytes);
      to += bytes;
    }
    result = buffer->span();
  }
  Scatter(collective, group, piece, result.data());
  SendResult(operation, index, result, std::move(buffer));
}

void Collectives::SendResult(const OperationPtr& operation, size_t index,
                             absl::Span<const std::byte> result, BufferPtr buffer) {
  const std::vector<size_t> receivers = operation->ResultTo(options_.here, index);
  if (receivers.empty()) return Done(operation, absl::OkStatus());
  auto unsent = std::make_shared<std::atomic<size_t>>(receivers.size());
  for (size_t site : receivers) {
    Send(site, HeaderFor(*operation, kResult, index), result,
         [self = shared_from_this(), operation, buffer, unsent](const absl::Status& status) {
           if (!status.ok()) return self->options_.fail(status);
           if (unsent->fetch_sub(1) == 1) self->Done(operation, absl::OkStatus());
         });
  }
}

Landing Collectives::OnResult(const OperationPtr& operation, const Header& header, size_t bytes) {
  {
    // Results follow our partial results, or our word that we are here.
    base::MutexLock lock(mutex_);
    if (!operation->collective || header.piece >= operation->pieces.size() ||
        !operation->Receives(options_.here, header.piece) ||
        operation->ResultFrom(options_.here, header.piece) != header.site ||
        !operation->results.insert(header.piece).second) {
      return {};
    }
  }
  const Collective& collective = *operation->collective;
  const ReplicaGroup& group = operation->key.group;
  const Piece& piece = operation->pieces[header.piece];
  if (bytes != ResultBytes(piece, collective.tensors)) {
    options_.fail(absl::InternalError("a peer sent a result of another size"));
    return {};
  }
  // A single contiguous span is received in the memory of the first replica that takes it.
  BufferPtr buffer;
  std::byte* to;
  if (piece.spans.size() == 1) {
    const Span& span = piece.spans[0];
    to = Targets(collective, group, span)[0] +
         span.out_begin * ElementBytes(collective.tensors[span.tensor].out);
  } else {
    buffer = buffers_.Take(bytes);
    to = buffer->data();
  }
  return {to, [self = shared_from_this(), operation, buffer, to,
               index = header.piece](const absl::Status& status) {
            if (!status.ok()) return self->options_.fail(status);
            // It may lie where it belongs, and be for us alone.
            if (buffer == nullptr && operation->collective->arenas.size() == 1 &&
                operation->ResultTo(self->options_.here, index).empty()) {
              return self->Done(operation, absl::OkStatus());
            }
            self->options_.compute([self, operation, buffer, to, index] {
              const Piece& piece = operation->pieces[index];
              Scatter(*operation->collective, operation->key.group, piece, to);
              const size_t bytes = ResultBytes(piece, operation->collective->tensors);
              self->SendResult(operation, index, {to, bytes}, buffer);
            });
          }};
}

}  // namespace vpod::fabric
