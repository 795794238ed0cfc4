// Collectives by messages. Reductions: every site sends its partial results of a piece to the
// piece's owner, which combines them and sends the result. Copies: the owner, which has the source,
// sends when all are there.
#include <algorithm>
#include <cstring>
#include <utility>

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

// Our pieces computed and sent, our partial results of the other pieces sent, their results here,
// and that all have come.
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

void Collectives::SendPartials(const OperationPtr& operation, size_t index) {
  const Collective& collective = *operation->collective;
  const Piece& piece = operation->pieces[index];
  const std::vector<TreeNode> nodes = MaximalNodes(MembersOf(options_.here, operation->key));
  const PartialLayout layout(nodes, piece, collective.tensors);
  const size_t owner = operation->sites[piece.owner];
  const auto self = shared_from_this();
  if (collective.arenas.size() == 1 && piece.spans.size() == 1) {
    // As it lies.
    const Span& span = piece.spans[0];
    const CollectiveTensor& tensor = collective.tensors[span.tensor];
    const size_t element = ElementBytes(tensor.in);
    Send(owner, HeaderFor(*operation, kPartials, index),
         {collective.arenas[0] + tensor.in_offset + span.in_begin * element,
          span.elements * element},
         [self, operation](const absl::Status& status) { self->Done(operation, status); });
    return;
  }
  auto buffer = std::make_shared<std::vector<std::byte>>(layout.bytes);
  size_t local = 0;  // replicas of a node follow each other in `arenas`
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (size_t s = 0; s < piece.spans.size(); ++s) {
      const Span& span = piece.spans[s];
      const CollectiveTensor& tensor = collective.tensors[span.tensor];
      std::byte* to = buffer->data() + layout.offsets[n][s];
      if (nodes[n].size() == 1) {
        const size_t element = ElementBytes(tensor.in);
        std::memcpy(to, collective.arenas[local] + tensor.in_offset + span.in_begin * element,
                    span.elements * element);
        continue;
      }
      Subtree subtree{nodes[n], {}, tensor.in, 0};
      for (size_t i = 0; i < nodes[n].size(); ++i)
        subtree.leaves.push_back(collective.arenas[local + i] + tensor.in_offset);
      PartialReduce(collective.op, subtree, span.in_begin, span.in_begin + span.elements, to);
    }
    local += nodes[n].size();
  }
  Send(owner, HeaderFor(*operation, kPartials, index), *buffer,
       [self, operation, buffer](const absl::Status& status) { self->Done(operation, status); });
}

Landing Collectives::OnPartials(const OperationPtr& operation, const Header& header, size_t bytes) {
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  const auto landed = [self = shared_from_this(), operation, buffer, piece = header.piece,
                       site = header.site](const absl::Status& status) {
    if (!status.ok()) return self->options_.fail(status);
    bool complete;
    {
      base::MutexLock lock(self->mutex_);
      auto& partials = operation->partials[piece];
      const bool first = partials.emplace(site, buffer).second;
      complete = first && operation->here() && operation->Owns(self->options_.here, piece) &&
                 partials.size() == operation->others();
    }
    if (complete) self->PostCombine(operation, piece);
  };
  return {buffer->data(), landed};
}

void Collectives::PostCombine(const OperationPtr& operation, size_t piece) {
  options_.compute(
      [self = shared_from_this(), operation, piece] { self->Combine(operation, piece); });
}

void Collectives::Combine(const OperationPtr& operation, size_t index) {
  const Collective& collective = *operation->collective;
  const Piece& piece = operation->pieces[index];
  std::map<size_t, Buffer> partials;
  {
    base::MutexLock lock(mutex_);
    for (auto& [site, buffer] : operation->partials[index])
      partials[site] = std::exchange(buffer, nullptr);
  }
  struct Source {
    TreeNode node;
    size_t site, node_of_site, first_local;
  };
  std::vector<Source> sources;
  std::map<size_t, PartialLayout> layouts;
  for (size_t site : operation->sites) {
    const std::vector<TreeNode> nodes = MaximalNodes(MembersOf(site, operation->key));
    size_t local = 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
      sources.push_back({nodes[n], site, n, local});
      local += nodes[n].size();
    }
    if (site == options_.here) continue;
    const PartialLayout& layout =
        layouts.emplace(site, PartialLayout(nodes, piece, collective.tensors)).first->second;
    const auto sent = partials.find(site);
    if (sent == partials.end() || sent->second->size() != layout.bytes)
      return options_.fail(absl::InternalError("a peer sent partial results of another size"));
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.node.begin < b.node.begin; });
  const bool travels = piece.to == kAll;
  auto result = std::make_shared<std::vector<std::byte>>(
      travels ? ResultBytes(piece, collective.tensors) : 0);
  size_t at = 0;
  for (size_t s = 0; s < piece.spans.size(); ++s) {
    const Span& span = piece.spans[s];
    const CollectiveTensor& tensor = collective.tensors[span.tensor];
    std::vector<Subtree> subtrees;
    for (const Source& source : sources) {
      Subtree& subtree = subtrees.emplace_back(Subtree{source.node, {}, tensor.in, 0});
      if (source.site == options_.here) {
        for (size_t i = 0; i < source.node.size(); ++i)
          subtree.leaves.push_back(collective.arenas[source.first_local + i] + tensor.in_offset);
      } else {
        const size_t offset = layouts.at(source.site).offsets[source.node_of_site][s];
        subtree.leaves = {partials[source.site]->data() + offset};
        subtree.element = PartialLayout::SentElement(source.node, tensor);
        subtree.origin = span.in_begin;
      }
    }
    std::vector<TreeOutput> outputs;
    if (travels) outputs.push_back({result->data() + at, span.in_begin});
    for (std::byte* target : Targets(collective, operation->key.group, span))
      outputs.push_back({target, span.in_begin - span.out_begin});
    TreeReduce(collective.op, subtrees, outputs, tensor.out, span.in_begin,
               span.in_begin + span.elements, collective.scale);
    at += span.elements * ElementBytes(tensor.out);
  }
  SendResult(operation, index, *result, result);
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
  // A lone span is sent as it lies.
  absl::Span<const std::byte> result(source_of(piece.spans[0]),
                                     ResultBytes(piece, collective.tensors));
  Buffer buffer;
  if (piece.spans.size() > 1) {
    buffer = std::make_shared<std::vector<std::byte>>();
    buffer->reserve(result.size());
    for (const Span& span : piece.spans) {
      const std::byte* from = source_of(span);
      buffer->insert(buffer->end(), from,
                     from + span.elements * ElementBytes(collective.tensors[span.tensor].in));
    }
    result = *buffer;
  }
  Scatter(collective, group, piece, result.data());
  SendResult(operation, index, result, std::move(buffer));
}

void Collectives::SendResult(const OperationPtr& operation, size_t index,
                             absl::Span<const std::byte> result, Buffer buffer) {
  std::vector<size_t> receivers;
  for (size_t site : operation->sites) {
    if (operation->Receives(site, index)) receivers.push_back(site);
  }
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
    if (!operation->collective || !operation->Owns(header.site, header.piece) ||
        !operation->Receives(options_.here, header.piece) ||
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
  // A lone span lands in the memory of the first replica that takes it.
  Buffer buffer;
  std::byte* to;
  if (piece.spans.size() == 1) {
    const Span& span = piece.spans[0];
    to = Targets(collective, group, span)[0] +
         span.out_begin * ElementBytes(collective.tensors[span.tensor].out);
  } else {
    buffer = std::make_shared<std::vector<std::byte>>(bytes);
    to = buffer->data();
  }
  return {to, [self = shared_from_this(), operation, buffer, to,
               index = header.piece](const absl::Status& status) {
            if (!status.ok()) return self->options_.fail(status);
            self->options_.compute([self, operation, buffer, to, index] {
              Scatter(*operation->collective, operation->key.group, operation->pieces[index], to);
              self->Done(operation, absl::OkStatus());
            });
          }};
}

}  // namespace vpod::fabric
