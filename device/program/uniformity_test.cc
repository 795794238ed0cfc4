#include "device/program/uniformity.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "device/program/byte_set.h"

namespace vpod::program {
namespace {

// Tensors 0 to 3 are the variables "a" to "d" of 4 floats, 4 and 5 are temporary, 6 is the variable
// "more". `functions` are those of the one IPU; the last is the program.
std::shared_ptr<const Executable> Make(const std::string& functions, int number) {
  v1::Executable text;
  std::string source = "ipus_per_replica: 1 ipus { arena_bytes: 1024 ";
  for (int i = 0; i < 6; ++i)
    absl::StrAppend(&source, "tensors { type: FLOAT32 dims: 4 offset: ", 64 * i, " } ");
  absl::StrAppend(&source, "tensors { type: BOOL offset: 384 } tensors { type: INT32 offset: 448 }",
                  "tensors { type: UINT32 offset: 512 } ",
                  "tensors { type: FLOAT32 dims: 2 offset: 256 } ",
                  "tensors { type: FLOAT32 dims: 1 offset: 256 } ", functions, " } ");
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&source, "variables { name: '", std::string(1, static_cast<char>('a' + i)),
                    "' tensor: ", i, " } ");
  }
  absl::StrAppend(&source, "variables { name: 'more' tensor: 6 } streams { name: 's' ",
                  "to_device: true type: FLOAT32 dims: 4 transfers_per_run: 9 } ",
                  "programs { name: 'p' functions: ", number - 1, " }");
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(source, &text)) << source;
  auto executable = Executable::Make(std::move(text));
  EXPECT_TRUE(executable.ok()) << executable.status();
  return executable.ok() ? *executable : nullptr;
}

std::string Names(const Executable& executable, const std::vector<bool>& variables) {
  std::string names;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i])
      absl::StrAppend(&names, names.empty() ? "" : " ", executable.host_tensors()[i].name);
  }
  return names;
}

// The uniform variables, of four replicas.
std::string Uniform(const std::string& functions, int number = 1,
                    const std::set<std::string>& differ = {}, bool spans_processes = true) {
  const auto executable = Make(functions, number);
  if (executable == nullptr) return "";
  std::vector<bool> candidates;
  for (const HostTensor& variable : executable->host_tensors())
    candidates.push_back(!differ.contains(variable.name));
  return Names(
      *executable,
      FindUniform(*executable, {0, 4, 4, spans_processes}, std::move(candidates)).variables);
}

constexpr char kStream[] = "instructions { stream_in {} outputs: 4 } ";
constexpr char kReduce[] = "instructions { all_reduce { operator: SUM } inputs: 4 outputs: 4 } ";

std::string Add(int a, int b, int sum) {
  return absl::StrCat("instructions { binary { operator: ADD } inputs: ", a, " inputs: ", b,
                      " outputs: ", sum, " } ");
}
std::string Function(const std::string& instructions) {
  return absl::StrCat("functions { ", instructions, " } ");
}

TEST(UniformityTest, WhatNobodyWritesIsUniform) {
  EXPECT_EQ(Uniform(Function(kStream)), "a b c d more");
}

TEST(UniformityTest, ReplicasDifferByTheirData) {
  EXPECT_EQ(Uniform(Function(absl::StrCat(kStream, Add(0, 4, 0)))), "b c d more");
}

TEST(UniformityTest, AnAllReduceMakesTheUpdateEqual) {
  EXPECT_EQ(Uniform(Function(absl::StrCat(kStream, kReduce, Add(0, 4, 0)))), "a b c d more");
}

TEST(UniformityTest, AReductionInGroupsDoesNot) {
  const std::string groups =
      "instructions { all_reduce { operator: SUM group { kind: CONSECUTIVE size: 2 } } inputs: 4 "
      "outputs: 4 } ";
  EXPECT_EQ(Uniform(Function(absl::StrCat(kStream, groups, Add(0, 4, 0)))), "b c d more");
}

// As replicas do it that share out the update of a variable.
TEST(UniformityTest, AnAllGatherInAProcessMakesTheUpdateEqualUnlessItIsInGroups) {
  const auto gather = [](const std::string& group, int input) {
    return Function(absl::StrCat(kStream, "instructions { all_gather { ", group,
                                 " } inputs: ", input, " outputs: 0 }"));
  };
  const std::string all = gather("", 10), groups = gather("group { kind: CONSECUTIVE size: 2 }", 9);
  EXPECT_EQ(Uniform(all, 1, {}, /*spans_processes=*/false), "a b c d more");
  EXPECT_EQ(Uniform(all), "b c d more");
  EXPECT_EQ(Uniform(groups, 1, {}, /*spans_processes=*/false), "b c d more");
}

TEST(UniformityTest, DifferencesSpread) {
  // a += data, b += a, c += b.
  const std::string chain = absl::StrCat(Add(1, 2, 2), Add(0, 1, 1), kStream, Add(0, 4, 0));
  EXPECT_EQ(Uniform(Function(chain)), "d more");
}

TEST(UniformityTest, DifferencesInTheBeginningSpread) {
  const std::string update = absl::StrCat(kStream, kReduce, Add(4, 3, 4), Add(0, 4, 0));
  EXPECT_EQ(Uniform(Function(update)), "a b c d more");
  EXPECT_EQ(Uniform(Function(update), 1, {"d"}), "b c more");
  EXPECT_EQ(Uniform(Function(update), 1, {"a"}), "b c d more");
}

TEST(UniformityTest, CollectivesAndReplicasTouchNoSharedVariable) {
  EXPECT_EQ(Uniform(Function("instructions { all_reduce { operator: SUM } inputs: 0 outputs: 0 }")),
            "b c d more");
  EXPECT_EQ(Uniform(Function("instructions { replica_index {} outputs: 8 } instructions { cast { "
                             "type: BOOL } inputs: 8 outputs: 6 }")),
            "a b c d");
}

TEST(UniformityTest, AnOverwrittenPartIsEqualAndTheRestIsNot) {
  // Tensor 9 is the first half of tensor 4.
  const std::string half = "instructions { fill {} outputs: 9 } ";
  EXPECT_EQ(Uniform(Function(absl::StrCat(kStream, half, Add(0, 4, 0)))), "b c d more");
  EXPECT_EQ(
      Uniform(Function(absl::StrCat("instructions { fill {} outputs: 4 } ", half, Add(0, 4, 0)))),
      "a b c d more");
}

TEST(UniformityTest, ABranchTakenByTheDataOfAReplicaDiffers) {
  const std::string update = Function(Add(0, 1, 0));
  const std::string branch = "instructions { if { then_function: 0 } inputs: 6 } ";
  EXPECT_EQ(Uniform(update + Function(branch), 2), "a b c d more");
  EXPECT_EQ(Uniform(update + Function(branch), 2, {"more"}), "b c d");
}

TEST(UniformityTest, RoundsOfALoopFollowOneAnother) {
  // Each round: a += temporary, then the temporary takes data.
  const std::string body = Function(absl::StrCat(Add(0, 4, 0), kStream));
  const std::string repeat = "instructions { repeat { function: 0 count: 1 } } ";
  EXPECT_EQ(Uniform(body + Function("instructions { fill {} outputs: 4 } " + repeat), 2),
            "b c d more");
  const std::string equal = Function(Add(0, 1, 0));
  EXPECT_EQ(Uniform(equal + Function(repeat), 2), "a b c d more");
}

TEST(UniformityTest, AConditionMayDifferInALaterRound) {
  const std::string body = Function(
      absl::StrCat(Add(0, 1, 0),
                   "instructions { replica_index {} outputs: 8 } instructions { cast { type: BOOL "
                   "} inputs: 8 outputs: 6 }"));
  EXPECT_EQ(
      Uniform(body + Function("instructions { while { function: 0 max_rounds: 4 } inputs: 6 }"), 2),
      "b c d");
}

TEST(UniformityTest, OnlyUpdatesRunOnce) {
  const auto executable =
      Make(Function(absl::StrCat(kStream, kReduce, Add(0, 4, 0), Add(0, 1, 5))), 1);
  ASSERT_NE(executable, nullptr);
  const Uniformity uniform = FindUniform(*executable, {0, 4, 4}, std::vector<bool>(5, true));
  EXPECT_EQ(uniform.once[0][0], std::vector<bool>({false, false, true, false}));
}

// Whether each all-reduce needs to give its results to one replica only, for a function.
std::vector<bool> ForOne(const std::string& functions, int number, size_t function = 0) {
  const auto executable = Make(functions, number);
  if (executable == nullptr) return {};
  const Uniformity uniform = FindUniform(*executable, {0, 4, 4}, std::vector<bool>(5, true));
  std::vector<bool> result;
  const auto& instructions =
      executable->proto().ipus(0).functions(static_cast<int>(function)).instructions();
  for (int i = 0; i < instructions.size(); ++i) {
    if (instructions[i].has_all_reduce())
      result.push_back(uniform.results_for_one[0][function][static_cast<size_t>(i)]);
  }
  return result;
}

TEST(UniformityTest, ResultsThatOthersReadAreForAll) {
  const std::string update = absl::StrCat(kStream, kReduce, Add(0, 4, 0));
  EXPECT_EQ(ForOne(Function(update), 1), std::vector<bool>({true}));
  // To read what was overwritten before is to read other data.
  EXPECT_EQ(ForOne(Function(absl::StrCat(update, kStream, Add(0, 4, 5))), 1),
            std::vector<bool>({true}));
  EXPECT_EQ(ForOne(Function(absl::StrCat(update, Add(0, 4, 5))), 1), std::vector<bool>({false}));
  // By another all-reduce, and in part: tensor 9 is the first half of tensor 4.
  EXPECT_EQ(ForOne(Function(absl::StrCat(update, kReduce, Add(1, 4, 1))), 1),
            std::vector<bool>({false, true}));
  EXPECT_EQ(ForOne(Function(absl::StrCat(update,
                                         "instructions { unary { operator: NEGATE } "
                                         "inputs: 9 outputs: 9 }")),
                   1),
            std::vector<bool>({false}));
}

TEST(UniformityTest, ResultsAreReadInTheNextRoundOrRun) {
  const std::string late = absl::StrCat(Add(4, 4, 5), kStream, kReduce, Add(0, 4, 0));
  EXPECT_EQ(ForOne(Function(late), 1), std::vector<bool>({false}));  // by the next run
  const std::string repeat = "instructions { repeat { function: 0 count: 2 } } ";
  EXPECT_EQ(ForOne(Function(late) + Function(kStream + repeat + kStream), 2),
            std::vector<bool>({false}));
  EXPECT_EQ(ForOne(Function(absl::StrCat(kStream, kReduce, Add(0, 4, 0))) +
                       Function(repeat + kStream + Add(4, 4, 5)),
                   2),
            std::vector<bool>({true}));
  // One branch overwrites them, the other does not.
  const std::string update = absl::StrCat(kStream, kReduce, Add(0, 4, 0));
  const std::string branch = "instructions { if { then_function: 0 } inputs: 6 } ";
  EXPECT_EQ(ForOne(Function("instructions { fill {} outputs: 4 }") +
                       Function(absl::StrCat(update, branch, Add(4, 4, 5))),
                   2, 1),
            std::vector<bool>({false}));
}

TEST(UniformityTest, AnAllReduceWritesAVariableOnceWithinAProcess) {
  const auto executable =
      Make(Function(absl::StrCat(kStream,
                                 "instructions { all_reduce { operator: SUM } inputs: 4 "
                                 "outputs: 0 }")),
           1);
  ASSERT_NE(executable, nullptr);
  const std::vector<bool> all(5, true);
  const Uniformity here = FindUniform(*executable, {0, 4, 4, /*spans_processes=*/false}, all);
  EXPECT_EQ(Names(*executable, here.variables), "a b c d more");
  EXPECT_EQ(here.results_for_one[0][0], std::vector<bool>({false, true}));
  const Uniformity apart = FindUniform(*executable, {0, 4, 4, /*spans_processes=*/true}, all);
  EXPECT_EQ(Names(*executable, apart.variables), "b c d more");
  EXPECT_EQ(apart.results_for_one[0][0], std::vector<bool>({false, false}));
}

TEST(UniformityTest, TooManyNestedLoopsHaveNoUniformVariables) {
  // Each level finds a difference that the one below it has made: 8 levels multiply.
  std::string functions = Function(absl::StrCat(Add(0, 1, 0), Add(1, 0, 1)));
  for (int level = 0; level < 7; ++level) {
    std::string calls;
    for (int i = 0; i < 16; ++i)
      absl::StrAppend(&calls, "instructions { call { function: ", level, " } } ");
    functions += Function(calls);
  }
  const auto executable = Make(functions, 8);
  ASSERT_NE(executable, nullptr);
  EXPECT_EQ(Uniform(functions, 8), "");
}

TEST(ByteSetTest, RangesMergeAndAreCut) {
  ByteSet set;
  set.Add(0, 10);
  set.Add(20, 30);
  set.Add(10, 20);
  EXPECT_EQ(set.ranges().size(), 1u);
  set.Remove(5, 25);
  EXPECT_TRUE(set.Contains(0, 5));
  EXPECT_FALSE(set.Contains(0, 6));
  EXPECT_TRUE(set.Touches(4, 6));
  EXPECT_FALSE(set.Touches(5, 25));
  EXPECT_TRUE(set.Contains(25, 30));
  EXPECT_TRUE(set.Contains(7, 7));
  ByteSet other;
  other.Add(3, 27);
  set.IntersectWith(other);
  EXPECT_EQ(set.ranges(), (std::map<uint64_t, uint64_t>{{3, 5}, {25, 27}}));
}

}  // namespace
}  // namespace vpod::program
