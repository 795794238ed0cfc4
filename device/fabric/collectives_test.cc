#include "device/fabric/collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/fabric/memory_transport.h"

namespace vpod::fabric {
namespace {

// Two threads that compute.
class Pool {
 public:
  Pool() {
    for (std::thread& thread : threads_) thread = std::thread([this] { Work(); });
  }
  ~Pool() { Stop(); }
  void Stop() {
    {
      base::MutexLock lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  void Post(std::function<void()> task) {
    {
      base::MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Work() {
    for (;;) {
      std::function<void()> task;
      {
        base::MutexLock lock(mutex_);
        lock.Wait(changed_, [this] { return stopped_ || !tasks_.empty(); });
        if (stopped_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread threads_[2];
};

// The definition, member by member: split at the largest power of two below n.
template <class Value>
Value Tree(Operator op, const std::vector<Value>& leaves, size_t first, size_t count) {
  if (count == 1) return op == Operator::kSquareAdd ? leaves[first] * leaves[first] : leaves[first];
  size_t left = 1;
  while (left * 2 < count) left *= 2;
  const Value a = Tree(op, leaves, first, left), b = Tree(op, leaves, first + left, count - left);
  if (op == Operator::kProduct) return a * b;
  if (op == Operator::kMin || op == Operator::kMax) {
    if constexpr (std::is_same_v<Value, uint32_t>) {
      const auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
      return (op == Operator::kMin ? x < y : x > y) ? a : b;
    } else {
      return (op == Operator::kMin ? a < b : a > b) || a != a ? a : b;
    }
  }
  return a + b;
}

// One tensor in memory, element by element.
struct View {
  std::byte* data;
  Element element;

  double Float(size_t i) const {
    if (element == Element::kFloat16) return static_cast<double>(At<_Float16>(i));
    return element == Element::kFloat32 ? static_cast<double>(At<float>(i)) : At<double>(i);
  }
  template <class T>
  T At(size_t i) const {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void Set(size_t i, T value) {
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
  void SetFloat(size_t i, double value) {
    if (element == Element::kFloat16) return Set(i, static_cast<_Float16>(value));
    if (element == Element::kFloat32) return Set(i, static_cast<float>(value));
    Set(i, value);
  }
};

struct Case {
  Kind kind = Kind::kAllReduce;
  Operator op = Operator::kSum;
  double scale = 1;
  size_t root = 0;
  uint32_t replicas = 8;
  uint32_t stride = 1, size = 8;  // of the groups
  bool in_place = false;
  std::vector<CollectiveTensor> tensors;  // elements and types; offsets are set by Layout
};

size_t OutElements(const Case& c, const CollectiveTensor& tensor) {
  if (c.kind == Kind::kReduceScatter) return tensor.elements / c.size;
  return c.kind == Kind::kAllGather ? tensor.elements * c.size : tensor.elements;
}

// Sets the offsets; returns the bytes of an arena.
size_t Layout(Case& c) {
  size_t at = 0;
  const auto place = [&](size_t bytes) {
    const size_t offset = at;
    at = (at + bytes + 63) / 64 * 64;
    return offset;
  };
  for (CollectiveTensor& tensor : c.tensors) {
    tensor.in_offset = place(tensor.elements * ElementBytes(tensor.in));
    tensor.out_offset =
        c.in_place ? tensor.in_offset : place(OutElements(c, tensor) * ElementBytes(tensor.out));
  }
  return at;
}

using Arenas = std::vector<std::vector<std::byte>>;

Arenas RandomArenas(const Case& c, size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  Arenas arenas(c.replicas, std::vector<std::byte>(bytes));
  for (auto& arena : arenas) {
    for (const CollectiveTensor& tensor : c.tensors) {
      View view{arena.data() + tensor.in_offset, tensor.in};
      std::uniform_real_distribution<double> uniform(-4, 4);
      for (size_t i = 0; i < tensor.elements; ++i) {
        if (tensor.in == Element::kInt32) {
          view.Set(i, static_cast<uint32_t>(random()));
        } else {
          view.SetFloat(i, uniform(random) * (random() % 5 == 0 ? 1e-5 : 1));
        }
      }
    }
  }
  return arenas;
}

void ReduceReference(const Case& c, const CollectiveTensor& tensor, const ReplicaGroup& group,
                     const Arenas& in, size_t from, View to, size_t at) {
  const auto input = [&](size_t member) {
    auto* data = const_cast<std::byte*>(in[group.Replica(member)].data());
    return View{data + tensor.in_offset, tensor.in};
  };
  if (tensor.in == Element::kInt32) {
    std::vector<uint32_t> leaves;
    for (size_t m = 0; m < group.size; ++m) leaves.push_back(input(m).At<uint32_t>(from));
    return to.Set(at, Tree(c.op, leaves, 0, leaves.size()));
  }
  std::vector<double> leaves;
  for (size_t m = 0; m < group.size; ++m) leaves.push_back(input(m).Float(from));
  to.SetFloat(at, Tree(c.op, leaves, 0, leaves.size()) * c.scale);
}

// Writes the result that the collective must have for one group.
void Reference(const Case& c, const ReplicaGroup& group, const Arenas& in, Arenas& out) {
  const auto copy = [&](const CollectiveTensor& tensor, size_t from, size_t begin, size_t to,
                        size_t at, size_t n) {
    const size_t element = ElementBytes(tensor.in);
    std::memcpy(out[group.Replica(to)].data() + tensor.out_offset + at * element,
                in[group.Replica(from)].data() + tensor.in_offset + begin * element, n * element);
  };
  for (const CollectiveTensor& tensor : c.tensors) {
    const size_t part = tensor.elements / group.size;
    for (size_t to = 0; to < group.size; ++to) {
      const View target{out[group.Replica(to)].data() + tensor.out_offset, tensor.out};
      if (c.kind == Kind::kAllReduce || c.kind == Kind::kReduceScatter) {
        const bool all = c.kind == Kind::kAllReduce;
        for (size_t i = 0; i < (all ? tensor.elements : part); ++i)
          ReduceReference(c, tensor, group, in, all ? i : to * part + i, target, i);
      } else if (c.kind == Kind::kBroadcast) {
        copy(tensor, c.root, 0, to, 0, tensor.elements);
      } else {
        for (size_t from = 0; from < group.size; ++from) {
          if (c.kind == Kind::kAllGather)
            copy(tensor, from, 0, to, from * tensor.elements, tensor.elements);
          else
            copy(tensor, from, to * part, to, from * part, part);
        }
      }
    }
  }
}

// A job of several processes, each with a transport and compute threads of its own.
class Processes {
 public:
  // `domain_of` are the IPU-Link domains of the processes; empty: all are in one.
  Processes(const std::vector<uint32_t>& process_of, bool shared, Arenas& arenas,
            const std::vector<uint32_t>& domain_of = {})
      : process_of_(process_of), arenas_(arenas) {
    const size_t count = *std::max_element(process_of.begin(), process_of.end()) + 1;
    std::map<std::string, MemoryTransport*> peers;
    std::vector<Site> sites(count);
    std::map<std::string, std::string> address_of;
    for (uint32_t p = 0; p < count; ++p) {
      transports_.push_back(std::make_unique<MemoryTransport>(p + 17));
      pools_.push_back(std::make_unique<Pool>());
      sites[p].endpoint = absl::StrCat("process ", p);
      sites[p].name = absl::StrCat("the agent at process ", p);
      address_of[sites[p].endpoint] = sites[p].endpoint;
      if (!domain_of.empty()) sites[p].domain = domain_of[p];
      peers[sites[p].endpoint] = transports_[p].get();
    }
    for (uint32_t r = 0; r < process_of.size(); ++r) sites[process_of[r]].units.push_back(r);
    failures_.resize(count);
    for (uint32_t p = 0; p < count; ++p) {
      CollectivesOptions options;
      options.token = std::string(kTokenBytes, 't');
      options.total_replicas = static_cast<uint32_t>(process_of.size());
      options.sites = sites;
      options.here = p;
      for (uint32_t r = 0; shared && r < process_of.size(); ++r) {
        if (process_of[r] != p) options.arenas[r] = absl::MakeSpan(arenas[r]);
      }
      options.transport = transports_[p].get();
      options.compute = [pool = pools_[p].get()](std::function<void()> task) {
        pool->Post(std::move(task));
      };
      options.fail = [this, p](const absl::Status& status) {
        {
          base::MutexLock lock(mutex_);
          if (failures_[p].ok()) failures_[p] = status;
        }
        // A job ends everywhere: a process that sees the error first may not have told the others
        // that it has come.
        for (auto& collectives : collectives_) collectives->Fail(status);
      };
      collectives_.push_back(std::make_shared<Collectives>(std::move(options)));
      collectives_.back()->Begin(address_of);
    }
    for (uint32_t p = 0; p < count; ++p) {
      transports_[p]->Connect(peers, [this, p](absl::string_view header, size_t bytes) {
        return collectives_[p]->OnMessage(header, bytes);
      });
    }
  }
  ~Processes() {
    for (auto& transport : transports_) transport->Stop();
    for (auto& pool : pools_) pool->Stop();
  }

  size_t count() const { return collectives_.size(); }
  Collectives& at(size_t process) { return *collectives_[process]; }
  MemoryTransport& transport(size_t process) { return *transports_[process]; }
  absl::Status failure(size_t process) {
    base::MutexLock lock(mutex_);
    return failures_[process];
  }

  // The part of `process` in a collective of `group`; false when it has none.
  bool Arrive(size_t process, const Case& c, const ReplicaGroup& group, uint64_t sequence = 0,
              const std::string& what = "test") {
    Collective collective{.kind = c.kind, .op = c.op, .scale = c.scale, .root = c.root};
    for (uint32_t r = 0; r < process_of_.size(); ++r) {
      if (process_of_[r] != process || !group.Contains(r)) continue;
      collective.replicas.push_back(r);
      collective.arenas.push_back(arenas_[r].data());
      collective.clock = 100 + r;
    }
    if (collective.replicas.empty()) return false;
    collective.tensors = c.tensors;
    collective.what = what;
    {
      base::MutexLock lock(mutex_);
      ++awaited_;
    }
    collectives_[process]->Run({0, 0, sequence, group}, std::move(collective),
                               [this](absl::StatusOr<uint64_t> clock) {
                                 base::MutexLock lock(mutex_);
                                 results_.push_back(std::move(clock));
                                 changed_.notify_all();
                               });
    return true;
  }
  // The results of all that arrived.
  std::vector<absl::StatusOr<uint64_t>> Results() {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [this] { return results_.size() == awaited_; });
    return results_;
  }

 private:
  const std::vector<uint32_t> process_of_;
  Arenas& arenas_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  size_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::StatusOr<uint64_t>> results_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> failures_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<MemoryTransport>> transports_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<std::shared_ptr<Collectives>> collectives_;
};

std::vector<ReplicaGroup> GroupsOf(const Case& c) {
  std::vector<ReplicaGroup> groups;
  for (uint32_t g = 0; g < c.replicas / c.size; ++g)
    groups.push_back({c.stride == 1 ? g * c.size : g, c.stride, c.size});
  return groups;
}

// Runs all groups side by side and compares every byte, also those that nobody may touch.
void Verify(Case c, const std::vector<uint32_t>& process_of, bool shared,
            const std::vector<uint32_t>& domain_of = {}) {
  const size_t bytes = Layout(c);
  const Arenas in = RandomArenas(c, bytes, 5);
  Arenas expected = in, arenas = in;
  for (const ReplicaGroup& group : GroupsOf(c)) Reference(c, group, in, expected);
  {
    Processes processes(process_of, shared, arenas, domain_of);
    for (size_t p = processes.count(); p-- > 0;) {
      for (const ReplicaGroup& group : GroupsOf(c)) processes.Arrive(p, c, group);
    }
    for (const auto& clock : processes.Results()) {
      ASSERT_TRUE(clock.ok()) << clock.status();
      const ReplicaGroup last = GroupsOf(c).back();
      EXPECT_GE(*clock, 100 + c.size - 1);
      EXPECT_LE(*clock, 100 + last.Replica(last.size - 1));
    }
  }
  for (uint32_t r = 0; r < c.replicas; ++r)
    ASSERT_EQ(std::memcmp(arenas[r].data(), expected[r].data(), bytes), 0) << "replica " << r;
}

// Ragged and interleaved splits of the replicas over one to four processes.
std::vector<std::vector<uint32_t>> Splits(uint32_t replicas) {
  std::vector<std::vector<uint32_t>> splits(5, std::vector<uint32_t>(replicas));
  for (uint32_t r = 0; r < replicas; ++r) {
    splits[1][r] = r < replicas / 3 ? 0 : 1;
    splits[2][r] = r % 3;
    splits[3][r] = r == 0 ? 0 : (r < replicas / 2 ? 1 : (r + 1 < replicas ? 2 : 3));
    splits[4][r] = r * 4 / replicas;
  }
  return splits;
}

struct Shape {
  uint32_t replicas, stride, size;
};

class CollectivesTest : public testing::TestWithParam<std::tuple<Kind, Element, bool>> {};

TEST_P(CollectivesTest, ResultsAreThoseOfTheCanonicalTree) {
  const auto [kind, element, shared] = GetParam();
  for (const Shape shape : {Shape{8, 1, 8}, Shape{8, 1, 4}, Shape{8, 4, 2}, Shape{12, 4, 3},
                            Shape{7, 1, 7}, Shape{6, 1, 1}}) {
    for (const auto& split : Splits(shape.replicas)) {
      for (const Operator op : {Operator::kSum, Operator::kMin, Operator::kMax, Operator::kProduct,
                                Operator::kSquareAdd}) {
        if (!IsReduction(kind) && op != Operator::kSum) continue;
        SCOPED_TRACE(absl::StrCat(shape.replicas, " replicas, groups of ", shape.size, " stride ",
                                  shape.stride, ", operator ", static_cast<int>(op), ", ",
                                  split.back() + 1, " processes"));
        Case c{.kind = kind,
               .op = op,
               .scale = element == Element::kInt32 ? 1 : 0.25,
               .root = shape.size - 1,
               .replicas = shape.replicas,
               .stride = shape.stride,
               .size = shape.size};
        // A large tensor of several pieces, and small ones that share a piece.
        for (const size_t elements : {400u, 1u, 3u})
          c.tensors.push_back({0, 0, elements * shape.size, element, element});
        Verify(c, split, shared);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CollectivesTest, MayReplaceTheInput) {
  const auto [kind, element, shared] = GetParam();
  if (kind != Kind::kAllReduce && kind != Kind::kBroadcast) return;
  Case c{.kind = kind, .root = 5, .in_place = true};
  c.tensors = {{0, 0, 5000, element, element}, {0, 0, 7, element, element}};
  for (const auto& split : Splits(8)) Verify(c, split, shared);
}

// Relays in several domains, of which some have one process, one replica, or no part in a group.
TEST_P(CollectivesTest, MayPassThroughRelays) {
  const auto [kind, element, shared] = GetParam();
  if (shared) return;
  const std::vector<uint32_t> split = {0, 0, 1, 2, 2, 3, 4, 4, 4, 5, 6, 6};
  for (const std::vector<uint32_t>& domain_of :
       {std::vector<uint32_t>{0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 1, 2, 2}, {0, 1, 0, 1, 0, 1, 3}}) {
    for (const Shape shape : {Shape{12, 1, 12}, Shape{12, 1, 4}, Shape{12, 4, 3}}) {
      for (const Operator op : {Operator::kSum, Operator::kSquareAdd}) {
        Case c{.kind = kind,
               .op = op,
               .scale = element == Element::kInt32 ? 1 : 0.25,
               .replicas = shape.replicas,
               .stride = shape.stride,
               .size = shape.size};
        for (const size_t elements : {400u, 1u})
          c.tensors.push_back({0, 0, elements * shape.size, element, element});
        Verify(c, split, shared, domain_of);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CollectivesTest,
    testing::Combine(testing::Values(Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather,
                                     Kind::kAllToAll, Kind::kBroadcast),
                     testing::Values(Element::kFloat32, Element::kFloat16, Element::kInt32),
                     testing::Bool()));

TEST(CollectivesWideTest, Float64InputsAreRoundedOnce) {
  for (const bool shared : {false, true}) {
    Case c{.scale = 1.0 / 8};
    c.tensors = {{0, 0, 3000, Element::kFloat64, Element::kFloat32}};
    for (const auto& split : Splits(8)) Verify(c, split, shared);
    c.kind = Kind::kReduceScatter;
    for (const auto& split : Splits(8)) Verify(c, split, shared);
  }
}

// Payload that passes between racks of `rack` processes in a collective over 16 replicas, two on
// each process. The fabric knows `domain_of`.
size_t BytesBetweenRacks(Kind kind, size_t elements, uint32_t rack,
                         const std::vector<uint32_t>& domain_of) {
  Case c{.kind = kind, .replicas = 16, .size = 16};
  c.tensors = {{0, 0, elements, Element::kFloat32, Element::kFloat32}};
  Arenas arenas = RandomArenas(c, Layout(c), 3);
  std::vector<uint32_t> process_of(c.replicas);
  for (uint32_t r = 0; r < c.replicas; ++r) process_of[r] = r / 2;
  std::atomic<size_t> bytes = 0;
  Processes processes(process_of, false, arenas, domain_of);
  for (uint32_t p = 0; p < processes.count(); ++p) {
    processes.transport(p).set_tamper([&bytes, rack, p](MemoryTransport::Message& message) {
      const uint32_t to = static_cast<uint32_t>(message.to.back() - '0');  // "process 3"
      if (to / rack != p / rack) bytes += message.payload.size();
    });
  }
  for (uint32_t p = 0; p < processes.count(); ++p) processes.Arrive(p, c, {0, 1, c.replicas});
  for (const auto& result : processes.Results()) EXPECT_TRUE(result.ok());
  return bytes;
}

TEST(CollectivesTwoLevelTest, OnlyOnePartialResultAndOneResultOfARackPassBetweenRacks) {
  constexpr size_t kElements = 16 * 2048;
  const std::vector<uint32_t> two = {0, 0, 0, 0, 1, 1, 1, 1}, four = {0, 0, 1, 1, 2, 2, 3, 3};
  // A partial result is a float64, a result a float32.
  EXPECT_EQ(BytesBetweenRacks(Kind::kAllReduce, kElements, 4, two), kElements * (8 + 4));
  EXPECT_EQ(BytesBetweenRacks(Kind::kAllReduce, kElements, 2, four), kElements * (8 + 4) * 3);
  EXPECT_EQ(BytesBetweenRacks(Kind::kReduceScatter, kElements, 4, two), kElements * 8);
  EXPECT_EQ(BytesBetweenRacks(Kind::kReduceScatter, kElements, 2, four), kElements * 8 * 3);
  EXPECT_EQ(BytesBetweenRacks(Kind::kAllGather, kElements, 4, two), kElements * 4 * 16);
  EXPECT_EQ(BytesBetweenRacks(Kind::kAllGather, kElements, 2, four), kElements * 4 * 16 * 3);
  EXPECT_EQ(BytesBetweenRacks(Kind::kBroadcast, kElements, 4, two), kElements * 4);
  // Data for a single replica passes once, and half of it stays in its rack.
  EXPECT_EQ(BytesBetweenRacks(Kind::kAllToAll, kElements, 4, two), kElements * 4 * 8);
  // On one level every process of the other rack would send its own.
  EXPECT_EQ(BytesBetweenRacks(Kind::kAllReduce, kElements, 4, {}), kElements * (8 + 4) * 4);
}

// --- When things go wrong ---

class CollectivesFailureTest : public testing::TestWithParam<bool> {
 protected:
  CollectivesFailureTest() {
    case_.tensors = {{0, 0, 4096, Element::kFloat32, Element::kFloat32}};
    arenas_ = RandomArenas(case_, Layout(case_), 3);
    processes_ = std::make_unique<Processes>(std::vector<uint32_t>{0, 0, 0, 0, 1, 1, 1, 1},
                                             GetParam(), arenas_);
  }
  Case case_;
  Arenas arenas_;
  const ReplicaGroup all_{0, 1, 8};
  std::unique_ptr<Processes> processes_;
};

TEST_P(CollectivesFailureTest, APeerThatDoesSomethingElseIsNamed) {
  processes_->Arrive(0, case_, all_, 0, "all-reduce 0 of program 1");
  processes_->Arrive(1, case_, all_, 0, "broadcast 0 of program 2");
  for (const auto& result : processes_->Results()) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    for (const std::string part :
         {"replica 0 does all-reduce 0 of program 1", "replica 4 does broadcast 0 of program 2"}) {
      EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status();
    }
  }
}

TEST_P(CollectivesFailureTest, AnErrorOfTheTransportEndsTheCollective) {
  processes_->transport(1).set_tamper([](MemoryTransport::Message& message) {
    message.fate = absl::UnavailableError("the cable is cut");
  });
  processes_->Arrive(1, case_, all_);
  const auto cause = [this](std::chrono::hours later) {
    return processes_->at(1).Unreachable(Collectives::Clock::now() + later, std::chrono::hours(1));
  };
  while (cause(std::chrono::hours(2)).ok()) std::this_thread::yield();
  EXPECT_EQ(cause(std::chrono::hours(2)).message(),
            "the agent at process 0 cannot be reached: the cable is cut");
  // The job's record has its time to say who was lost.
  EXPECT_TRUE(cause(std::chrono::hours(0)).ok());
  processes_->at(1).Fail(cause(std::chrono::hours(2)));
  EXPECT_FALSE(processes_->Results()[0].ok());
}

TEST_P(CollectivesFailureTest, APeerThatNeverComesIsOverdue) {
  const ReplicaGroup odd{1, 2, 4};
  processes_->Arrive(0, case_, odd);
  const auto now = Collectives::Clock::now();
  EXPECT_TRUE(processes_->at(0).FindOverdue(now, std::chrono::hours(1)).units.empty());
  const auto overdue =
      processes_->at(0).FindOverdue(now + std::chrono::hours(2), std::chrono::hours(1));
  EXPECT_TRUE(overdue.fresh);
  EXPECT_EQ(overdue.units, (std::set<uint32_t>{5, 7}));
  EXPECT_FALSE(
      processes_->at(0).FindOverdue(now + std::chrono::hours(2), std::chrono::hours(1)).fresh);
  processes_->Arrive(1, case_, odd);
  for (const auto& result : processes_->Results()) EXPECT_TRUE(result.ok());
}

INSTANTIATE_TEST_SUITE_P(Ways, CollectivesFailureTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Messages"; });

class WrongSizeTest : public testing::TestWithParam<Kind> {};

TEST_P(WrongSizeTest, APayloadOfAnotherSizeEndsTheCollective) {
  Case c{.kind = GetParam()};
  c.tensors = {{0, 0, 4096, Element::kFloat32, Element::kFloat32}};
  Arenas arenas = RandomArenas(c, Layout(c), 3);
  Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
  processes.transport(0).set_tamper([](MemoryTransport::Message& message) {
    if (!message.payload.empty()) message.payload.remove_suffix(4);
  });
  processes.Arrive(1, c, {0, 1, 8});
  processes.Arrive(0, c, {0, 1, 8});
  while (processes.failure(1).ok()) std::this_thread::yield();
  EXPECT_NE(processes.failure(1).message().find("of another size"), std::string::npos);
  processes.Results();
}

INSTANTIATE_TEST_SUITE_P(Kinds, WrongSizeTest,
                         testing::Values(Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather,
                                         Kind::kAllToAll, Kind::kBroadcast));

TEST(CollectivesMessageTest, CopiesHaveNoLimit) {
  constexpr size_t kBytes = (size_t{129} << 20) + 4;
  Arenas arenas(2, std::vector<std::byte>(kBytes));
  for (size_t i = 0; i < kBytes; i += 4093) arenas[0][i] = std::byte{7};
  Processes processes({0, 1}, false, arenas);
  std::promise<absl::StatusOr<uint64_t>> ends[2];
  for (size_t p = 0; p < 2; ++p) {
    processes.at(p).Copy({.channel = 1},
                         {.to_unit = 1, .data = arenas[p].data(), .bytes = kBytes, .clock = p},
                         [&, p](absl::StatusOr<uint64_t> clock) { ends[p].set_value(clock); });
  }
  for (auto& end : ends) EXPECT_EQ(*end.get_future().get(), 1u);
  EXPECT_TRUE(arenas[0] == arenas[1]);
}

TEST(CollectivesMessageTest, ACopyOutsideTheTargetsMemoryEndsTheJob) {
  for (const size_t offset : {size_t{61}, size_t{65}, ~size_t{0} - 2}) {
    Arenas arenas(2, std::vector<std::byte>(64));
    Processes processes({0, 1}, true, arenas);
    std::promise<absl::StatusOr<uint64_t>> ends[2];
    for (size_t p = 0; p < 2; ++p) {
      processes.at(p).Copy(
          {.channel = 1},
          {.to_unit = 1, .data = arenas[p].data(), .arena_offset = offset, .bytes = 4},
          [&, p](absl::StatusOr<uint64_t> clock) { ends[p].set_value(clock); });
    }
    for (auto& end : ends) {
      EXPECT_EQ(end.get_future().get().status().message(),
                "a peer wants a tensor outside its memory");
    }
  }
}

// The receiver knows the size of what it takes, or takes nothing.
TEST(CollectivesMessageTest, PartialResultsOfAnotherSizeEndTheJob) {
  Case c;
  c.tensors = {{0, 0, 64, Element::kFloat32, Element::kFloat32}};
  for (const size_t bytes : {size_t{8}, size_t{1} << 20}) {
    Arenas arenas = RandomArenas(c, Layout(c), 3);
    Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
    const std::vector<std::byte> other(bytes);
    for (size_t p = 0; p < 2; ++p) {
      processes.transport(p).set_tamper([&](MemoryTransport::Message& message) {
        if (!message.payload.empty()) message.payload = other;
      });
    }
    for (size_t p = 0; p < 2; ++p) processes.Arrive(p, c, {0, 1, 8});
    for (const auto& result : processes.Results())
      EXPECT_EQ(result.status().message(), "a peer sent partial results of another size");
  }
}

TEST(CollectivesMessageTest, PartialResultsWaitForTheirReceiver) {
  Case c;
  c.tensors = {{0, 0, 64, Element::kFloat32, Element::kFloat32}};
  Arenas arenas = RandomArenas(c, Layout(c), 3);
  Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
  std::atomic<bool> arrived = false, early = false;
  std::string header;  // of the word that process 1 is ready
  processes.transport(1).set_tamper([&](MemoryTransport::Message& message) {
    if (!arrived && !message.payload.empty()) early = true;
    if (header.empty()) header = message.header;
  });
  processes.Arrive(1, c, {0, 1, 8});
  // A member that sends all the same is not heard, whatever size it names.
  for (uint8_t kind = 0; kind < 16; ++kind) {
    header[header.size() - 8] = static_cast<char>(kind);
    for (const size_t bytes : {size_t{1}, size_t{64}, size_t{1} << 40})
      EXPECT_EQ(processes.at(0).OnMessage(header, bytes).buffer, nullptr);
  }
  EXPECT_TRUE(processes.failure(0).ok());
  arrived = true;
  processes.Arrive(0, c, {0, 1, 8});
  for (const auto& result : processes.Results()) EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(early);
}

TEST(CollectivesMessageTest, StrayMessagesAreDropped) {
  Case c;
  c.tensors = {{0, 0, 64, Element::kFloat32, Element::kFloat32}};
  Arenas arenas = RandomArenas(c, Layout(c), 3);
  Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
  EXPECT_EQ(processes.at(0).OnMessage("short", 8).buffer, nullptr);
  std::string header;
  processes.transport(1).set_tamper([&](MemoryTransport::Message& message) {
    if (header.empty()) header = message.header;
  });
  processes.Arrive(1, c, {0, 1, 8});
  EXPECT_EQ(processes.at(0).OnMessage(header, size_t{1} << 40).buffer, nullptr);
  EXPECT_EQ(processes.at(1).OnMessage(header, 8).buffer, nullptr);  // of itself
  // Sent twice, it counts once.
  processes.at(0).OnMessage(header, 0);
  processes.Arrive(0, c, {0, 1, 8});
  for (const auto& result : processes.Results()) EXPECT_TRUE(result.ok());
}

}  // namespace
}  // namespace vpod::fabric
