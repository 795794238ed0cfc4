#include "device/fabric/collectives.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vpod::fabric {
namespace {

// Elements of a piece: small ones keep the caches warm where memory is shared, large ones make
// messages worth their while. They do not change the bits.
constexpr size_t kSharedPiece = 1 << 16;
constexpr size_t kMessagePiece = 1 << 18;

// A collective whose buffers together exceed this leaves the caches alone when it writes.
constexpr size_t kBeyondCachesBytes = 32 << 20;

// No honest message is larger: a piece of float64 partial sums, times the nodes of a ragged tree.
constexpr size_t kMaxMessageBytes = size_t{kMessagePiece} * 8 * 64;
// Operations that others may open here before this process comes to them.
constexpr size_t kMaxOperations = 4096;

enum Kind : uint8_t { kReady, kPartialSums, kResult, kFinished, kCopyReady, kCopyData };

constexpr size_t kWhatBytes = 96;

bool BeyondCaches(const CollectiveTensor& tensor, size_t replicas) {
  return tensor.elements * ElementBytes(tensor.out) * replicas > kBeyondCachesBytes;
}

// Reduces a piece whose inputs and outputs are all at hand, in the memory of `arenas`.
void ReducePiece(const Reduction& reduction, const Piece& piece,
                 const std::vector<std::byte*>& arenas) {
  std::vector<const void*> inputs(arenas.size());
  std::vector<void*> outputs(arenas.size());
  for (const Span& span : piece.spans) {
    const CollectiveTensor& tensor = reduction.tensors[span.tensor];
    for (size_t i = 0; i < arenas.size(); ++i) {
      inputs[i] = arenas[i] + tensor.in_offset;
      outputs[i] = arenas[i] + tensor.out_offset;
    }
    TreeSum(inputs, tensor.in, outputs, tensor.out, span.begin, span.end, reduction.scale,
            BeyondCaches(tensor, arenas.size()));
  }
}

// Where the sums of a site lie in its message: node by node, span by span, each aligned for
// float64. A node of one replica is sent as it is, which loses nothing.
struct SumLayout {
  std::vector<std::vector<size_t>> offsets;  // [node][span]
  size_t bytes = 0;

  SumLayout(const std::vector<TreeNode>& nodes, const Piece& piece,
            const std::vector<CollectiveTensor>& tensors) {
    for (const TreeNode& node : nodes) {
      std::vector<size_t>& of_node = offsets.emplace_back();
      for (const Span& span : piece.spans) {
        bytes = (bytes + 7) / 8 * 8;
        of_node.push_back(bytes);
        bytes += (span.end - span.begin) * ElementBytes(SentElement(node, tensors[span.tensor]));
      }
    }
  }
  static Element SentElement(const TreeNode& node, const CollectiveTensor& tensor) {
    return node.end - node.begin == 1 ? tensor.in : Element::kFloat64;
  }
};

size_t ResultBytes(const Piece& piece, const std::vector<CollectiveTensor>& tensors) {
  size_t bytes = 0;
  for (const Span& span : piece.spans)
    bytes += (span.end - span.begin) * ElementBytes(tensors[span.tensor].out);
  return bytes;
}

}  // namespace

void ReduceHere(Reduction reduction, const Compute& compute, Completed done) {
  struct Work {
    Reduction reduction;
    std::vector<Piece> pieces;
    std::atomic<size_t> remaining;
    Completed done;
  };
  auto work = std::make_shared<Work>();
  work->reduction = std::move(reduction);
  work->done = std::move(done);
  // One owner, but pieces for all threads.
  work->pieces = CutIntoPieces(work->reduction.tensors, 1, kSharedPiece);
  if (work->pieces.empty()) return work->done(work->reduction.clock);
  work->remaining = work->pieces.size();
  for (size_t piece = 0; piece < work->pieces.size(); ++piece) {
    compute([work, piece] {
      ReducePiece(work->reduction, work->pieces[piece], work->reduction.arenas);
      if (work->remaining.fetch_sub(1) == 1) work->done(work->reduction.clock);
    });
  }
}

// What a message begins with; both ends are of one byte order.
struct Collectives::Header {
  char token[kTokenBytes] = {};
  char what[kWhatBytes] = {};
  uint64_t run = 0, sequence = 0, clock = 0, offset = 0;
  uint32_t channel = 0, site = 0, piece = 0;
  uint8_t kind = kReady;
};

// What is under way. The first block is set, under the lock, when this process comes to the
// operation; the second collects what others send, perhaps before.
struct Collectives::Operation {
  MeetingKey key;
  std::optional<Reduction> reduction;
  std::optional<CrossCopy> copy;
  Completed done;  // null once called
  Clock::time_point since;
  bool noticed = false;
  std::vector<size_t> sites;  // that take part, ascending
  std::vector<Piece> pieces;
  std::atomic<size_t> remaining = 0;  // things to wait for
  std::atomic<size_t> own_pieces = 0;

  uint64_t clock = 0;                               // of the slowest that is ready
  std::map<size_t, std::string> ready;              // by site: what it does
  size_t finished = 0;                              // sites that are through with their pieces
  std::map<size_t, std::map<size_t, Buffer>> sums;  // by piece, then site
  bool target_ready = false;                        // of a copy
  uint64_t target_offset = 0;

  bool here() const { return reduction.has_value() || copy.has_value(); }
  bool Owns(size_t piece, size_t site) const {
    return piece < pieces.size() && sites[pieces[piece].owner] == site;
  }
  size_t others() const { return sites.size() - 1; }
};

Collectives::Collectives(CollectivesOptions options) : options_(std::move(options)) {
  static_assert(sizeof(Header) <= Transport::kMaxHeaderBytes);
  site_of_.resize(size_t{options_.total_replicas} * options_.ipus_per_replica, options_.here);
  for (size_t site = 0; site < options_.sites.size(); ++site) {
    for (uint32_t unit : options_.sites[site].units) site_of_[unit] = site;
  }
}

Collectives::OperationPtr Collectives::Find(const MeetingKey& key) {
  const auto it = operations_.find(key);
  if (it != operations_.end()) return it->second;
  if (operations_.size() >= kMaxOperations) return nullptr;
  auto operation = std::make_shared<Operation>();
  operation->key = key;
  operations_[key] = operation;
  return operation;
}

absl::Status Collectives::Check(const Operation& operation) const {
  if (!operation.reduction) return absl::OkStatus();
  const std::string ours = operation.reduction->what.substr(0, kWhatBytes);
  for (const auto& [site, what] : operation.ready) {
    if (what == ours) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the instances run different programs: replica ",
                     options_.sites[site].units.front() / options_.ipus_per_replica, " does ", what,
                     ", replica ", operation.reduction->replicas.front(), " does ", ours));
  }
  return absl::OkStatus();
}

Collectives::Header Collectives::HeaderFor(const Operation& operation, int kind,
                                           size_t piece) const {
  Header header;
  std::memcpy(header.token, options_.token.data(), std::min(options_.token.size(), kTokenBytes));
  if (operation.reduction) operation.reduction->what.copy(header.what, kWhatBytes);
  header.run = operation.key.run;
  header.sequence = operation.key.sequence;
  header.channel = operation.key.channel;
  header.clock = operation.reduction ? operation.reduction->clock : operation.copy->clock;
  header.site = static_cast<uint32_t>(options_.here);
  header.piece = static_cast<uint32_t>(piece);
  header.kind = static_cast<uint8_t>(kind);
  return header;
}

void Collectives::Send(size_t site, const Header& header, absl::Span<const std::byte> payload,
                       std::function<void(absl::Status)> sent) {
  options_.transport->Send(options_.sites[site].address,
                           std::string(reinterpret_cast<const char*>(&header), sizeof(header)),
                           payload, std::move(sent));
}

std::vector<TreeNode> Collectives::NodesOf(size_t site, uint32_t channel) const {
  std::vector<bool> present(options_.total_replicas);
  for (uint32_t unit : options_.sites[site].units) {
    if (unit % options_.ipus_per_replica == channel)
      present[unit / options_.ipus_per_replica] = true;
  }
  return MaximalNodes(present);
}

void Collectives::AllReduce(const MeetingKey& key, Reduction reduction, Completed done) {
  std::vector<size_t> sites;
  for (size_t site = 0; site < options_.sites.size(); ++site) {
    const auto& units = options_.sites[site].units;
    if (std::any_of(units.begin(), units.end(), [&](uint32_t unit) {
          return unit % options_.ipus_per_replica == key.channel;
        })) {
      sites.push_back(site);
    }
  }
  if (sites.size() == 1) return ReduceHere(std::move(reduction), options_.compute, std::move(done));
  OperationPtr operation;
  absl::Status refusal, difference;
  bool all_ready = false;
  std::vector<size_t> complete;  // pieces of ours whose sums have come already
  {
    base::MutexLock lock(mutex_);
    refusal = failure_;
    if (refusal.ok() && (operation = Find(key)) == nullptr)
      refusal = absl::ResourceExhaustedError("too many collectives at once");
    if (refusal.ok()) {
      operation->clock = std::max(operation->clock, reduction.clock);
      operation->pieces = CutIntoPieces(reduction.tensors, sites.size(),
                                        shared_memory() ? kSharedPiece : kMessagePiece);
      operation->sites = std::move(sites);
      operation->reduction = std::move(reduction);
      operation->done = std::move(done);
      operation->since = Clock::now();
      size_t own = 0;
      for (size_t piece = 0; piece < operation->pieces.size(); ++piece) {
        if (!operation->Owns(piece, options_.here)) continue;
        ++own;
        if (operation->sums[piece].size() == operation->others()) complete.push_back(piece);
      }
      operation->own_pieces = own;
      // Shared memory: our pieces, and that the others are through with theirs. Messages: our
      // pieces combined, our sums of the other pieces sent and their results here, and that all
      // have come.
      operation->remaining = shared_memory() ? 2 : 2 * operation->pieces.size() - own + 1;
      all_ready = operation->ready.size() == operation->others();
      difference = Check(*operation);
    }
  }
  if (!refusal.ok()) return done(refusal);
  if (!difference.ok()) return options_.fail(difference);
  const auto self = shared_from_this();
  for (size_t site : operation->sites) {
    if (site == options_.here) continue;
    Send(site, HeaderFor(*operation, kReady), {}, [self](const absl::Status& status) {
      if (!status.ok()) self->options_.fail(status);
    });
  }
  if (shared_memory()) {
    if (all_ready) ReduceShared(operation);
    return;
  }
  for (size_t piece = 0; piece < operation->pieces.size(); ++piece) {
    if (operation->Owns(piece, options_.here)) continue;
    options_.compute([self, operation, piece] { self->SendPartialSums(operation, piece); });
  }
  for (size_t piece : complete) PostCombine(operation, piece);
  if (all_ready) Done(operation, absl::OkStatus());
}

void Collectives::PostCombine(const OperationPtr& operation, size_t piece) {
  options_.compute(
      [self = shared_from_this(), operation, piece] { self->CombineAndSend(operation, piece); });
}

// --- In shared memory ---

void Collectives::ReduceShared(const OperationPtr& operation) {
  if (operation->own_pieces == 0) return TellFinished(operation);
  auto arenas = std::make_shared<std::vector<std::byte*>>(options_.total_replicas);
  const Reduction& reduction = *operation->reduction;
  for (size_t i = 0; i < reduction.replicas.size(); ++i)
    (*arenas)[reduction.replicas[i]] = reduction.arenas[i];
  for (uint32_t replica = 0; replica < options_.total_replicas; ++replica) {
    const auto mapped =
        options_.arenas.find(replica * options_.ipus_per_replica + operation->key.channel);
    if (mapped != options_.arenas.end()) (*arenas)[replica] = mapped->second;
  }
  for (size_t piece = 0; piece < operation->pieces.size(); ++piece) {
    if (!operation->Owns(piece, options_.here)) continue;
    options_.compute([self = shared_from_this(), operation, piece, arenas] {
      ReducePiece(*operation->reduction, operation->pieces[piece], *arenas);
      if (operation->own_pieces.fetch_sub(1) == 1) self->TellFinished(operation);
    });
  }
}

void Collectives::TellFinished(const OperationPtr& operation) {
  for (size_t site : operation->sites) {
    if (site == options_.here) continue;
    Send(site, HeaderFor(*operation, kFinished), {},
         [self = shared_from_this()](const absl::Status& status) {
           if (!status.ok()) self->options_.fail(status);
         });
  }
  Done(operation, absl::OkStatus());
}

// --- By messages ---

void Collectives::SendPartialSums(const OperationPtr& operation, size_t index) {
  const Reduction& reduction = *operation->reduction;
  const Piece& piece = operation->pieces[index];
  const std::vector<TreeNode> nodes = NodesOf(options_.here, operation->key.channel);
  const SumLayout layout(nodes, piece, reduction.tensors);
  const size_t owner = operation->sites[piece.owner];
  const auto self = shared_from_this();
  if (nodes.size() == 1 && reduction.arenas.size() == 1 && piece.spans.size() == 1) {
    // As it lies.
    const Span& span = piece.spans[0];
    const CollectiveTensor& tensor = reduction.tensors[span.tensor];
    const size_t bytes = ElementBytes(tensor.in);
    Send(owner, HeaderFor(*operation, kPartialSums, index),
         {reduction.arenas[0] + tensor.in_offset + span.begin * bytes,
          (span.end - span.begin) * bytes},
         [self, operation](const absl::Status& status) { self->Done(operation, status); });
    return;
  }
  auto buffer = std::make_shared<std::vector<std::byte>>(layout.bytes);
  size_t local = 0;  // replicas of a node follow each other in `arenas`
  for (size_t n = 0; n < nodes.size(); ++n) {
    const size_t replicas = nodes[n].end - nodes[n].begin;
    for (size_t s = 0; s < piece.spans.size(); ++s) {
      const Span& span = piece.spans[s];
      const CollectiveTensor& tensor = reduction.tensors[span.tensor];
      std::byte* to = buffer->data() + layout.offsets[n][s];
      if (replicas == 1) {
        const size_t bytes = ElementBytes(tensor.in);
        std::memcpy(to, reduction.arenas[local] + tensor.in_offset + span.begin * bytes,
                    (span.end - span.begin) * bytes);
        continue;
      }
      Subtree subtree{nodes[n], {}, tensor.in, 0};
      for (size_t i = 0; i < replicas; ++i)
        subtree.leaves.push_back(reduction.arenas[local + i] + tensor.in_offset);
      PartialSum(subtree, span.begin, span.end, reinterpret_cast<double*>(to));
    }
    local += replicas;
  }
  Send(owner, HeaderFor(*operation, kPartialSums, index), *buffer,
       [self, operation, buffer](const absl::Status& status) { self->Done(operation, status); });
}

void Collectives::CombineAndSend(const OperationPtr& operation, size_t index) {
  const Reduction& reduction = *operation->reduction;
  const Piece& piece = operation->pieces[index];
  std::map<size_t, Buffer> sums;
  {
    base::MutexLock lock(mutex_);
    sums = std::move(operation->sums[index]);
  }
  struct Source {
    TreeNode node;
    size_t site, node_of_site, first_local;
  };
  std::vector<Source> sources;
  std::map<size_t, SumLayout> layouts;
  for (size_t site : operation->sites) {
    const std::vector<TreeNode> nodes = NodesOf(site, operation->key.channel);
    size_t local = 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
      sources.push_back({nodes[n], site, n, local});
      local += nodes[n].end - nodes[n].begin;
    }
    if (site == options_.here) continue;
    const SumLayout& layout =
        layouts.emplace(site, SumLayout(nodes, piece, reduction.tensors)).first->second;
    if (sums[site]->size() != layout.bytes)
      return options_.fail(absl::InternalError("a peer sent sums of another size"));
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.node.begin < b.node.begin; });
  auto result = std::make_shared<std::vector<std::byte>>(ResultBytes(piece, reduction.tensors));
  size_t at = 0;
  for (size_t s = 0; s < piece.spans.size(); ++s) {
    const Span& span = piece.spans[s];
    const CollectiveTensor& tensor = reduction.tensors[span.tensor];
    std::vector<Subtree> subtrees;
    for (const Source& source : sources) {
      Subtree& subtree = subtrees.emplace_back(Subtree{source.node, {}, tensor.in, 0});
      if (source.site == options_.here) {
        for (size_t i = 0; i < source.node.end - source.node.begin; ++i)
          subtree.leaves.push_back(reduction.arenas[source.first_local + i] + tensor.in_offset);
      } else {
        const size_t offset = layouts.at(source.site).offsets[source.node_of_site][s];
        subtree.leaves = {sums[source.site]->data() + offset};
        subtree.element = SumLayout::SentElement(source.node, tensor);
        subtree.origin = span.begin;
      }
    }
    std::vector<TreeOutput> outputs = {{result->data() + at, span.begin}};
    for (std::byte* arena : reduction.arenas) outputs.push_back({arena + tensor.out_offset, 0});
    TreeSum(subtrees, outputs, tensor.out, span.begin, span.end, reduction.scale);
    at += (span.end - span.begin) * ElementBytes(tensor.out);
  }
  auto unsent = std::make_shared<std::atomic<size_t>>(operation->others());
  for (size_t site : operation->sites) {
    if (site == options_.here) continue;
    Send(site, HeaderFor(*operation, kResult, index), *result,
         [self = shared_from_this(), operation, result, unsent](const absl::Status& status) {
           if (!status.ok()) return self->options_.fail(status);
           if (unsent->fetch_sub(1) == 1) self->Done(operation, absl::OkStatus());
         });
  }
}

void Collectives::Scatter(const OperationPtr& operation, size_t index, const std::byte* result) {
  const Reduction& reduction = *operation->reduction;
  for (const Span& span : operation->pieces[index].spans) {
    const CollectiveTensor& tensor = reduction.tensors[span.tensor];
    const size_t element = ElementBytes(tensor.out);
    const size_t bytes = (span.end - span.begin) * element;
    for (std::byte* arena : reduction.arenas) {
      std::byte* to = arena + tensor.out_offset + span.begin * element;
      if (to != result) std::memcpy(to, result, bytes);
    }
    result += bytes;
  }
  Done(operation, absl::OkStatus());
}

// --- Copies ---

void Collectives::Copy(const MeetingKey& key, CrossCopy copy, Completed done) {
  const bool sends = IsHere(copy.from_unit);
  const size_t other = site_of_[sends ? copy.to_unit : copy.from_unit];
  OperationPtr operation;
  absl::Status refusal;
  bool ready = false;
  {
    base::MutexLock lock(mutex_);
    refusal = failure_;
    if (refusal.ok() && (operation = Find(key)) == nullptr)
      refusal = absl::ResourceExhaustedError("too many copies at once");
    if (refusal.ok()) {
      operation->clock = std::max(operation->clock, copy.clock);
      operation->sites = {options_.here, other};
      operation->done = std::move(done);
      operation->since = Clock::now();
      operation->remaining = 1;
      operation->copy = std::move(copy);
      ready = operation->target_ready;
    }
  }
  if (!refusal.ok()) return done(refusal);
  if (!sends) {
    Header header = HeaderFor(*operation, kCopyReady);
    header.offset = operation->copy->arena_offset;
    Send(other, header, {}, [self = shared_from_this()](const absl::Status& status) {
      if (!status.ok()) self->options_.fail(status);
    });
  } else if (ready) {
    SendCopy(operation);
  }
}

void Collectives::SendCopy(const OperationPtr& operation) {
  const auto self = shared_from_this();
  options_.compute([self, operation] {
    const CrossCopy& copy = *operation->copy;
    absl::Span<const std::byte> payload(copy.data, copy.bytes);
    const auto mapped = self->options_.arenas.find(copy.to_unit);
    if (mapped != self->options_.arenas.end()) {
      std::memcpy(mapped->second + operation->target_offset, copy.data, copy.bytes);
      payload = {};
    }
    self->Send(self->site_of_[copy.to_unit], self->HeaderFor(*operation, kCopyData), payload,
               [self, operation](const absl::Status& status) { self->Done(operation, status); });
  });
}

// --- What comes in ---

Landing Collectives::OnMessage(absl::string_view text, size_t bytes) {
  Header header;
  if (text.size() != sizeof(header) || bytes > kMaxMessageBytes) return {};
  std::memcpy(&header, text.data(), sizeof(header));
  if (header.site >= options_.sites.size() || header.site == options_.here) return {};
  OperationPtr operation;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) return {};
    operation = Find({header.run, header.channel, header.sequence});
  }
  if (operation == nullptr) return {};
  switch (header.kind) {
    case kReady:
      OnReady(operation, header);
      return {};
    case kFinished:
      OnFinished(operation);
      return {};
    case kCopyReady:
      OnCopyReady(operation, header);
      return {};
    case kPartialSums:
      return OnPartialSums(operation, header, bytes);
    case kResult:
      return OnResult(operation, header, bytes);
    case kCopyData:
      return OnCopyData(operation, header, bytes);
    default:
      return {};
  }
}

void Collectives::OnReady(const OperationPtr& operation, const Header& header) {
  bool all_ready;
  absl::Status difference;
  {
    base::MutexLock lock(mutex_);
    operation->clock = std::max(operation->clock, header.clock);
    const bool first =
        operation->ready
            .emplace(header.site, std::string(header.what, strnlen(header.what, kWhatBytes)))
            .second;
    all_ready = first && operation->here() && operation->ready.size() == operation->others();
    difference = Check(*operation);
  }
  if (!difference.ok()) return options_.fail(difference);
  if (!all_ready) return;
  if (shared_memory()) {
    ReduceShared(operation);
  } else {
    Done(operation, absl::OkStatus());
  }
}

void Collectives::OnFinished(const OperationPtr& operation) {
  {
    base::MutexLock lock(mutex_);
    if (!operation->here() || ++operation->finished != operation->others()) return;
  }
  Done(operation, absl::OkStatus());
}

Landing Collectives::OnPartialSums(const OperationPtr& operation, const Header& header,
                                   size_t bytes) {
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  const auto landed = [self = shared_from_this(), operation, buffer, piece = header.piece,
                       site = header.site](const absl::Status& status) {
    if (!status.ok()) return self->options_.fail(status);
    bool complete;
    {
      base::MutexLock lock(self->mutex_);
      auto& sums = operation->sums[piece];
      sums[site] = buffer;
      complete = operation->here() && operation->Owns(piece, self->options_.here) &&
                 sums.size() == operation->others();
    }
    if (complete) self->PostCombine(operation, piece);
  };
  return {buffer->data(), landed};
}

Landing Collectives::OnResult(const OperationPtr& operation, const Header& header, size_t bytes) {
  {
    // Results follow our own sums, so we must be here.
    base::MutexLock lock(mutex_);
    if (!operation->reduction || !operation->Owns(header.piece, header.site)) return {};
  }
  const Reduction& reduction = *operation->reduction;
  const Piece& piece = operation->pieces[header.piece];
  if (bytes != ResultBytes(piece, reduction.tensors)) return {};
  // A lone span lands in the memory of the first replica.
  Buffer buffer;
  std::byte* to;
  if (piece.spans.size() == 1) {
    const CollectiveTensor& tensor = reduction.tensors[piece.spans[0].tensor];
    to = reduction.arenas[0] + tensor.out_offset + piece.spans[0].begin * ElementBytes(tensor.out);
  } else {
    buffer = std::make_shared<std::vector<std::byte>>(bytes);
    to = buffer->data();
  }
  return {to, [self = shared_from_this(), operation, buffer, to,
               piece = header.piece](const absl::Status& status) {
            if (!status.ok()) return self->options_.fail(status);
            self->options_.compute(
                [self, operation, buffer, to, piece] { self->Scatter(operation, piece, to); });
          }};
}

void Collectives::OnCopyReady(const OperationPtr& operation, const Header& header) {
  {
    base::MutexLock lock(mutex_);
    operation->clock = std::max(operation->clock, header.clock);
    operation->target_offset = header.offset;
    if (std::exchange(operation->target_ready, true) || !operation->copy) return;
  }
  SendCopy(operation);
}

Landing Collectives::OnCopyData(const OperationPtr& operation, const Header& header, size_t bytes) {
  {
    base::MutexLock lock(mutex_);
    if (!operation->copy || IsHere(operation->copy->from_unit)) return {};
    operation->clock = std::max(operation->clock, header.clock);
  }
  const CrossCopy& copy = *operation->copy;
  const bool written = options_.arenas.contains(copy.from_unit);
  if (bytes != (written ? 0 : copy.bytes)) {
    options_.fail(absl::InternalError("a peer sent a tensor of another size"));
    return {};
  }
  return {written ? nullptr : copy.data,
          [self = shared_from_this(), operation](const absl::Status& status) {
            self->Done(operation, status);
          }};
}

void Collectives::Done(const OperationPtr& operation, const absl::Status& status) {
  if (!status.ok()) return options_.fail(status);
  if (operation->remaining.fetch_sub(1) != 1) return;
  Completed done;
  uint64_t clock;
  {
    base::MutexLock lock(mutex_);
    done = std::exchange(operation->done, nullptr);
    clock = operation->clock;
    operations_.erase(operation->key);
  }
  if (done) done(clock);
}

void Collectives::Fail(const absl::Status& cause) {
  std::vector<Completed> waiting;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = cause;
    for (const auto& [key, operation] : operations_) {
      if (operation->done) waiting.push_back(std::exchange(operation->done, nullptr));
    }
    operations_.clear();
  }
  for (const Completed& done : waiting) done(cause);
}

Collectives::Overdue Collectives::FindOverdue(Clock::time_point now, Clock::duration patience) {
  Overdue overdue;
  base::MutexLock lock(mutex_);
  for (const auto& [key, operation] : operations_) {
    if (!operation->reduction || now - operation->since < patience) continue;
    for (size_t site : operation->sites) {
      if (site == options_.here || operation->ready.contains(site)) continue;
      overdue.fresh = !std::exchange(operation->noticed, true) || overdue.fresh;
      for (uint32_t unit : options_.sites[site].units) {
        if (unit % options_.ipus_per_replica == key.channel) overdue.units.insert(unit);
      }
    }
  }
  return overdue;
}

}  // namespace vpod::fabric
