// Results of collectives, byte by byte, and what passes between racks for them.
#include "device/fabric/collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/fabric/collectives_test_util.h"
#include "device/fabric/memory_transport.h"

namespace vpod::fabric {
namespace {

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
    for (const auto& outcome : processes.Results()) {
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      const ReplicaGroup last = GroupsOf(c).back();
      EXPECT_GE(outcome->clock, 100 + c.size - 1);
      EXPECT_LE(outcome->clock, 100 + last.Replica(last.size - 1));
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

TEST(CollectivesWideTest, Float64InputsAreRoundedOnceOrNotAtAll) {
  for (const bool shared : {false, true}) {
    for (const Element output : {Element::kFloat32, Element::kFloat16, Element::kFloat64}) {
      for (const Kind kind : {Kind::kAllReduce, Kind::kReduceScatter}) {
        Case c{.kind = kind, .scale = 1.0 / 8};
        c.tensors = {{0, 0, 8000, Element::kFloat64, output}};
        for (const auto& split : Splits(8)) Verify(c, split, shared);
      }
    }
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

}  // namespace
}  // namespace vpod::fabric
