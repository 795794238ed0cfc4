#include "device/fabric/collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/text.h"
#include "device/fabric/collectives_impl.h"

namespace vpod::fabric {
namespace {

// Operations that others may open here before this process comes to them.
constexpr size_t kMaxOperations = 4096;

// A longer reason is cut, in whole characters: clients are told of it in a message of protobuf,
// which is unreadable otherwise.
constexpr size_t kMaxFailureBytes = 4096;

// The code, then the message.
std::string EncodeFailure(const absl::Status& failure) {
  std::string text(1, static_cast<char>(failure.code()));
  constexpr size_t kMark = sizeof("…") - 1;  // that something was cut
  absl::StrAppend(&text, base::Printable(failure.message(), kMaxFailureBytes - 1 - kMark));
  return text;
}

absl::Status DecodeFailure(absl::string_view text) {
  return absl::Status(static_cast<absl::StatusCode>(text[0]), text.substr(1));
}

}  // namespace

Collectives::Collectives(CollectivesOptions options) : options_(std::move(options)) {
  static_assert(sizeof(Header) <= Transport::kMaxHeaderBytes);
  site_of_.resize(size_t{options_.total_replicas} * options_.ipus_per_replica, options_.here);
  for (size_t site = 0; site < options_.sites.size(); ++site) {
    for (uint32_t unit : options_.sites[site].units) site_of_[unit] = site;
  }
}

void Collectives::Begin(const std::map<std::string, std::string>& address_of) {
  addresses_.resize(options_.sites.size());
  for (size_t site = 0; site < addresses_.size(); ++site) {
    const auto it = address_of.find(options_.sites[site].endpoint);
    if (it != address_of.end()) addresses_[site] = it->second;
  }
}

Collectives::OperationPtr Collectives::Find(const RendezvousKey& key) {
  const auto it = operations_.find(key);
  if (it != operations_.end()) return it->second;
  if (operations_.size() >= kMaxOperations) return nullptr;
  auto operation = std::make_shared<Operation>();
  operation->key = key;
  operations_[key] = operation;
  return operation;
}

absl::Status Collectives::Check(const Operation& operation) const {
  if (!operation.collective) return absl::OkStatus();
  const std::string ours = operation.collective->what.substr(0, kWhatBytes);
  for (const auto& [site, what] : operation.ready) {
    if (what == ours) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the instances run different programs: replica ",
                     options_.sites[site].units.front() / options_.ipus_per_replica, " does ", what,
                     ", replica ", operation.collective->replicas.front(), " does ", ours));
  }
  return absl::OkStatus();
}

std::vector<bool> Collectives::MembersOf(size_t site, const RendezvousKey& key) const {
  std::vector<bool> present(key.group.size);
  for (uint32_t unit : options_.sites[site].units) {
    const uint32_t replica = unit / options_.ipus_per_replica;
    if (unit % options_.ipus_per_replica == key.channel && key.group.Contains(replica))
      present[key.group.Position(replica)] = true;
  }
  return present;
}

Collectives::Header Collectives::HeaderFor(const Operation& operation, int kind,
                                           size_t piece) const {
  Header header;
  std::memcpy(header.token, options_.token.data(), std::min(options_.token.size(), kTokenBytes));
  if (operation.collective) operation.collective->what.copy(header.what, kWhatBytes);
  header.key = operation.key;
  header.clock = operation.collective ? operation.collective->clock : operation.copy->clock;
  header.site = static_cast<uint32_t>(options_.here);
  header.piece = static_cast<uint32_t>(piece);
  header.kind = static_cast<uint8_t>(kind);
  return header;
}

void Collectives::Send(size_t site, const Header& header, absl::Span<const std::byte> payload,
                       std::function<void(absl::Status)> sent) {
  options_.transport->Send(
      addresses_[site], std::string(reinterpret_cast<const char*>(&header), sizeof(header)),
      payload,
      [self = shared_from_this(), site, sent = std::move(sent)](const absl::Status& status) {
        if (!status.ok()) return self->NoteUnreachable(site, status);
        sent(status);
      });
}

void Collectives::NoteUnreachable(size_t site, const absl::Status& status) {
  base::MutexLock lock(mutex_);
  if (!unreachable_.ok()) return;
  unreachable_ = absl::UnavailableError(
      absl::StrCat(options_.sites[site].name, " cannot be reached: ", status.message()));
  unreachable_since_ = Clock::now();
}

absl::Status Collectives::Unreachable(Clock::time_point now, Clock::duration patience) {
  base::MutexLock lock(mutex_);
  if (unreachable_.ok() || now - unreachable_since_ < patience) return absl::OkStatus();
  return unreachable_;
}

void Collectives::Tell(size_t site, const Header& header, const absl::Status& failure) {
  const auto text = failure.ok() ? nullptr : std::make_shared<std::string>(EncodeFailure(failure));
  const auto payload =
      text == nullptr
          ? absl::Span<const std::byte>()
          : absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text->data()), text->size());
  Send(site, header, payload, [self = shared_from_this(), text](const absl::Status& status) {
    if (!status.ok()) self->options_.fail(status);
  });
}

Landing Collectives::TakeFailure(const OperationPtr& operation, size_t bytes,
                                 std::function<void()> then) {
  if (bytes == 0) then();
  if (bytes == 0 || bytes > kMaxFailureBytes) return {};
  const auto text = std::make_shared<std::string>(bytes, '\0');
  return {reinterpret_cast<std::byte*>(text->data()),
          [self = shared_from_this(), operation, text,
           then = std::move(then)](const absl::Status& status) {
            if (!status.ok()) return self->options_.fail(status);
            {
              base::MutexLock lock(self->mutex_);
              operation->failure.Update(DecodeFailure(*text));
            }
            then();
          }};
}

void Collectives::Run(const RendezvousKey& key, Collective collective, Completed done) {
  std::vector<size_t> sites;
  Dealing dealing{.members = key.group.size,
                  .piece_elements = shared_memory() ? kSharedPiece : kMessagePiece};
  if (!shared_memory()) dealing.owner_of.resize(key.group.size);
  for (size_t site = 0; site < options_.sites.size(); ++site) {
    const std::vector<bool> members = MembersOf(site, key);
    if (std::find(members.begin(), members.end(), true) == members.end()) continue;
    for (size_t i = 0; i < dealing.owner_of.size(); ++i) {
      if (members[i]) dealing.owner_of[i] = sites.size();
    }
    sites.push_back(site);
  }
  if (sites.size() == 1) return RunHere(std::move(collective), options_.compute, std::move(done));
  dealing.owners = sites.size();
  OperationPtr operation;
  absl::Status refusal, difference;
  bool all_ready = false;
  const bool by_messages = !shared_memory() && IsReduction(collective.kind);
  std::vector<size_t> complete;  // pieces that we can reduce at once
  {
    base::MutexLock lock(mutex_);
    refusal = failure_;
    if (refusal.ok() && (operation = Find(key)) == nullptr)
      refusal = absl::ResourceExhaustedError("too many collectives at once");
    if (refusal.ok()) {
      operation->clock = std::max(operation->clock, collective.clock);
      operation->failure.Update(collective.failure);
      operation->pieces =
          CutIntoPieces(collective.kind, collective.root, collective.tensors, dealing);
      for (size_t site : sites) operation->relays.Add(site, options_.sites[site].domain);
      operation->sites = std::move(sites);
      operation->collective = std::move(collective);
      operation->done = std::move(done);
      operation->since = Clock::now();
      for (size_t piece = 0; piece < operation->pieces.size(); ++piece) {
        if (operation->Owns(options_.here, piece)) ++operation->own_pieces;
        if (by_messages && operation->CanReduce(options_.here, piece)) complete.push_back(piece);
      }
      // Shared memory: our pieces, and that the others are through with theirs.
      operation->remaining = shared_memory() ? 2 : CountMessageWork(*operation);
      all_ready = operation->all_ready();
      difference = Check(*operation);
    }
  }
  if (!refusal.ok()) return done(refusal);
  if (!difference.ok()) return options_.fail(difference);
  for (size_t site : operation->sites) {
    if (site != options_.here)
      Tell(site, HeaderFor(*operation, kReady), operation->collective->failure);
  }
  for (size_t piece : complete) PostReduce(operation, piece);
  if (all_ready) Start(operation);
}

void Collectives::Start(const OperationPtr& operation) {
  if (shared_memory()) return RunShared(operation);
  // The memory of the others may be written now.
  if (!IsReduction(operation->collective->kind)) {
    for (size_t piece = 0; piece < operation->pieces.size(); ++piece) {
      if (!operation->Owns(options_.here, piece)) continue;
      options_.compute(
          [self = shared_from_this(), operation, piece] { self->CopyAndSend(operation, piece); });
    }
  }
  Done(operation, absl::OkStatus());
}

Landing Collectives::OnMessage(absl::string_view text, size_t bytes) {
  Header header;
  if (text.size() != sizeof(header)) return {};
  std::memcpy(&header, text.data(), sizeof(header));
  if (header.site >= options_.sites.size() || header.site == options_.here) return {};
  OperationPtr operation;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) return {};
    operation = Find(header.key);
  }
  if (operation == nullptr) return {};
  const auto self = shared_from_this();
  switch (header.kind) {
    case kReady:
      return TakeFailure(operation, bytes,
                         [self, operation, header] { self->OnReady(operation, header); });
    case kFinished:
      OnFinished(operation, header.site);
      return {};
    case kCopyReady:
      return TakeFailure(operation, bytes,
                         [self, operation, header] { self->OnCopyReady(operation, header); });
    case kPartials:
      return OnPartials(operation, header, bytes);
    case kResult:
      return OnResult(operation, header, bytes);
    case kCopyData:
      return OnCopyData(operation, header, bytes);
    case kCopyFailed:
      return OnCopyFailed(operation, bytes);
    default:
      return {};
  }
}

void Collectives::OnReady(const OperationPtr& operation, const Header& header) {
  bool all_ready;
  std::vector<size_t> awaited;  // pieces that only waited for this site to take them
  absl::Status difference;
  {
    base::MutexLock lock(mutex_);
    operation->clock = std::max(operation->clock, header.clock);
    const bool first =
        operation->ready
            .emplace(header.site, std::string(header.what, strnlen(header.what, kWhatBytes)))
            .second;
    all_ready = first && operation->all_ready();
    difference = Check(*operation);
    if (first && operation->collective && !shared_memory() &&
        IsReduction(operation->collective->kind)) {
      for (size_t piece = 0; piece < operation->pieces.size(); ++piece) {
        if (!operation->Owns(options_.here, piece) &&
            operation->Above(options_.here, piece) == header.site &&
            operation->CanReduce(options_.here, piece))
          awaited.push_back(piece);
      }
    }
  }
  if (!difference.ok()) return options_.fail(difference);
  for (size_t piece : awaited) PostReduce(operation, piece);
  if (all_ready) Start(operation);
}

void Collectives::Done(const OperationPtr& operation, const absl::Status& status) {
  if (!status.ok()) return options_.fail(status);
  if (operation->remaining.fetch_sub(1) != 1) return;
  Completed done;
  Outcome outcome;
  {
    base::MutexLock lock(mutex_);
    done = std::exchange(operation->done, nullptr);
    outcome = {operation->clock, operation->failure};
    operations_.erase(operation->key);
  }
  if (done) done(outcome);
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

template <class Visit>
void Collectives::ForEachAwaitedUnit(const Operation& operation, const Visit& visit) const {
  const RendezvousKey& key = operation.key;
  for (size_t site : operation.sites) {
    if (site == options_.here || operation.ready.contains(site)) continue;
    const std::vector<bool> members = MembersOf(site, key);
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i])
        visit(static_cast<uint32_t>(key.group.Replica(i)) * options_.ipus_per_replica +
              key.channel);
    }
  }
}

Collectives::Overdue Collectives::FindOverdue(Clock::time_point now, Clock::duration patience) {
  Overdue overdue;
  base::MutexLock lock(mutex_);
  for (const auto& [key, operation] : operations_) {
    if (!operation->collective || now - operation->since < patience) continue;
    bool waits = false;
    ForEachAwaitedUnit(*operation, [&](uint32_t unit) {
      waits = true;
      overdue.units.insert(unit);
    });
    if (waits) overdue.fresh = !std::exchange(operation->noticed, true) || overdue.fresh;
  }
  return overdue;
}

bool Collectives::AwaitsReplicas(uint32_t first, uint32_t count, uint64_t first_run) {
  bool awaits = false;
  base::MutexLock lock(mutex_);
  for (auto it = operations_.lower_bound({.run = first_run}); it != operations_.end(); ++it) {
    if (!it->second->collective) continue;
    ForEachAwaitedUnit(*it->second, [&](uint32_t unit) {
      const uint32_t replica = unit / options_.ipus_per_replica;
      awaits = awaits || (replica >= first && replica - first < count);
    });
  }
  return awaits;
}

}  // namespace vpod::fabric
