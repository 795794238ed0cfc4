// Each mistake in the printed form of a program is refused with its line and what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/compiler/assembly.h"
#include "client/compiler/backward.h"
#include "client/compiler/dead_code.h"
#include "client/compiler/fusion.h"
#include "client/compiler/graph_text.h"
#include "client/compiler/lowered_text.h"
#include "client/compiler/text_test_programs.h"

namespace vpod::compiler {
namespace {

using testing::HasSubstr;

constexpr char kGraph[] =
    R"(program "train" ipus 1 replicas 1 device_iterations 1 accumulation 1 off_chip_state false off_chip_accumulators false tensor_shards 1
optimizer SGD learning_rate 0.1 momentum 0 dampening 0 weight_decay 0 nesterov false maximize false float16_velocity false dampen_all false combined false velocity_scaling 1
reduction mean
remote_buffer on IPU 0 { name: "rows" type: FLOAT32 dims: 4 rows: 2 }
%0 = input "x" : float32[2,3] on IPU 0
%1 = variable "w" : float32[3] on IPU 0
%2 = binary { operator: MULTIPLY } (%0, %1) : float32[2,3] on IPU 0 from { op: "multiply" }
%3 = reduce { operator: SUM axes: 0 axes: 1 } (%2) : float32[] on IPU 0 from { op: "sum" }
%6 = buffer "b" : float32[] on IPU 0
assign %6 = %3
assign %6 = %3 always
assign %6 = %3 if read
loss %3
backward from %7
%8 = constant 1.5 : float32[3] on IPU 0
%9 = pass_by (%8) gradient to %1 : float32[3] on IPU 0
%10 = stop (%9) : float32[3] on IPU 0
gradient of %1: %10
)";

constexpr char kLowered[] = R"(program "infer" device_iterations 1 accumulation 1 output_period 1
stream "x" to device : float32[2,3] on IPU 0
stream "y" to host : float32[6] on IPU 0
IPU 0
%0 : float32[2,3] strides [3,1] in storage 0 at 0
%1 : float32[3,2] strides [1,3] in storage 0 at 0
%2 : float32[6] strides [1] in storage 1 at 0 variable "w"
setup:
  %2 = fill { value: 1 } () from { op: "fill" phase: UPDATE }
body:
  %0 = stream_in { } () from { scope: "x" op: "stream_in" }
  stream_out { stream: 1 } (%2) from { scope: "y" op: "stream_out" }
IPU 1
%0 : float32[6] strides [1] in storage 0 at 0
move %2 on IPU 0 to %0 on IPU 1
)";

template <class Form>
void ExpectRefused(const std::string& text, absl::StatusOr<Form> (*read)(absl::string_view),
                   const std::string& message) {
  const absl::Status status = read(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << text;
}

// A part of a text, what stands in its place, and the error.
struct Mistake {
  std::string part, instead, message;
};

template <class Form>
void ExpectAllRefused(const std::string& text, absl::StatusOr<Form> (*read)(absl::string_view),
                      const std::vector<Mistake>& mistakes) {
  const absl::StatusOr<Form> form = read(text);
  ASSERT_TRUE(form.ok()) << form.status();
  EXPECT_EQ(Print(*form), text);
  for (const auto& [part, instead, message] : mistakes) {
    const size_t at = text.find(part);
    ASSERT_NE(at, text.npos) << part;
    ExpectRefused(std::string(text).replace(at, part.size(), instead), read, message);
  }
}

TEST(BadTextTest, MistakesInGraphsAreNamed) {
  ExpectAllRefused<GraphProgram>(
      kGraph, ReadGraph,
      {
          {"program \"train\"", "programme", "line 1: expected 'program', found 'programme "},
          {"ipus 1", "ipus 3",
           "line 1: ipus_per_replica is 3, must be a power of two from 1 to 64"},
          {"tensor_shards 1", "tensor_shards 0", "line 1: tensor_shards is 0, must divide the 1"},
          {"tensor_shards 1", "tensor_shards 2", "line 1: tensor_shards is 2, must divide the 1"},
          {"ipus 1", "ipus 0", "line 4: expected an IPU below 0, found 0"},
          {"accumulation 1", "accumulation", "line 1: expected a number from 0 to 4294967295"},
          {"momentum 0", "momentum zero", "line 2: expected a number, found 'zero"},
          {"nesterov false", "nesterov 0", "line 2: expected 'true' or 'false', found '0"},
          {"maximize false", "", "line 2: expected 'maximize', found 'float16_velocity false"},
          {"mean", "median", "line 3: expected 'mean', found 'median'"},
          {"rows: 2 }", "rows: 2", "line 4: expected RemoteBuffer and then '}'"},
          {"rows: 2", "cows: 2", "has no field named \"cows\""},
          {"rows: 2 }", "rows: 2 } 3", "line 4: expected the end of the line, found '3'"},
          {"\"x\"", "\"\"", "line 5: expected a name that is not empty"},
          {"\"x\"", "\"x", "line 5: expected a text in quotes, found '\"x : float32[2,3]"},
          {"float32[2,3]", "float33[2,3]", "line 5: expected a type, such as float32[2,3], found"},
          {"float32[2,3]", "float32[2,-3]", "line 5: expected a number from 0 to 2147483648"},
          {"float32[2,3]", "float32[2147483648,2]", "line 5: dimensions [2147483648,2] are outs"},
          {"on IPU 0\n%1", "\n%1", "line 5: expected 'on IPU', found the end of the line"},
          {"on IPU 0\n%1", "on IPU 1\n%1", "line 5: expected an IPU below 1, found 1"},
          {"%1 = variable", "%0 = variable", "line 6: %0 is defined twice"},
          {"%1 = variable", "%1048576 = variable", "line 6: expected an id below 1048576, found"},
          {"binary { ", "flop { ", "line 7: expected an operation ("},
          {"binary { operator: MULTIPLY }", "", "line 7: expected an operation before its operan"},
          {"binary { operator: MULTIPLY }", "sgd {}", "line 7: sgd is an op that only a later pas"},
          {"MULTIPLY }", "MULTIPLY } inputs: 1", "line 7: expected an operation before its opera"},
          {"MULTIPLY }", "MULTIPLY } rounding {}", "line 7: a node has no rounding of its own"},
          {"MULTIPLY", "EQUAL", "line 7: expected bool[2,3] as what binary makes"},
          {"(%0, %1)", "(%0)", "line 7: binary takes 2 inputs, not 1"},
          {"(%0, %1)", "(%0, %5)", "line 7: %5 is not defined before this line"},
          {"(%0, %1)", "(%0, %1", "line 7: expected ')', found ': float32"},
          {"from { op: \"multiply\" }", "", "line 7: expected 'from', found the end of the line"},
          {"%2 = binary", "binary", "line 7: expected 'on IPU', found ': float32[2,3]"},
          {"assign %6", "assign %0", "line 10: %0 is not a buffer or variable"},
          {"%3 always", "%3 never", "line 11: expected the end of the line, found 'never'"},
          {"loss %3", "loss", "line 13: expected '%', found the end of the line"},
          {"loss %3\n", "", "line 17: expected a line 'loss' before the end"},
          {"backward from %7\n", "", "expected a line 'backward from' before the end"},
          {"optimizer", "", "expected"},
          {"1.5 :", "1.5e :", "line 15: expected ':', found 'e : float32[3]"},
          {"(%8) gradient to", "(%8)", "line 16: expected 'gradient to', found '%1 : float32[3]"},
          {"stop (%9)", "stop (%11)", "line 17: %11 is not defined before this line"},
          {"stop (%9)", "stop %9", "line 17: expected '(', found '%9 : float32[3]"},
          {"(%9) : float32[3]", "(%9) : float32[2]",
           "line 17: expected the elements of float32[3], not float32[2]"},
          {"gradient of %1: %10\n", "", "line 17: expected a line 'gradient of %1' before the end"},
          {"gradient of %1", "gradient of %6", "line 18: %6 is not a variable"},
          {"gradient of %1: %10\n", "gradient of %1:\ngradient of %1:\n",
           "line 19: %1 has its gradients already"},
      });
  ExpectRefused<GraphProgram>("", ReadGraph, "line 1: expected 'program', found the end of the li");
}

TEST(BadTextTest, MistakesInLoweredProgramsAreNamed) {
  ExpectAllRefused<LoweredProgram>(
      kLowered, ReadLowered,
      {
          {"program", "", "line 1: expected 'program', found"},
          {"to host", "to nobody", "line 3: expected 'to host', found 'to nobody"},
          {"IPU 0\n%0", "IPU 1\n%0", "line 4: expected IPU 0"},
          {"IPU 0\n%0", "%0", "line 4: expected 'stream' or 'IPU', found '%0 :"},
          {"%1 : float32", "%0 : float32", "line 6: expected %1 or a section"},
          {"[1,3]", "[1]", "line 6: expected 2 strides"},
          {"[1,3]", "[2147483648,3]", "line 6: strides [2147483648,3] of float32[3,2] span more"},
          {"in storage 1", "in storage 2", "line 7: expected a storage from 0 to 1"},
          {"variable \"w\"", "variable", "line 7: expected a text in quotes"},
          {"body:", "corpse:", "line 10: expected an operation and then '('"},
          {"fill { value: 1 }", "repeat {}", "line 9: repeat is an op that only a later pass may"},
          {"%2 = fill", "%3 = fill", "line 9: %3 is not defined before this line"},
          {"stream_in { }", "stream_in { stream: 2 }",
           "line 11: stream 2 is not defined before this line"},
          {"(%2)", "(%2", "line 12: expected ')', found 'from {"},
          {"move %2", "move %3", "line 15: %3 is not defined before this line"},
          {"on IPU 1\n", "on IPU 2\n", "line 15: IPU 2 is not defined before this line"},
      });
}

TEST(BadTextTest, MistakesInPipelinesAreNamed) {
  constexpr char kText[] = R"(program "infer" device_iterations 2 accumulation 1 output_period 1
pipeline period 1 positions 2
stream "x" to device : float32[6] on IPU 0
IPU 0
%0 : float32[6] strides [1] in storage 0 at 0
position 0:
  %0 = stream_in { } () from { scope: "x" op: "stream_in" }
pinned [0]
IPU 1
%0 : float32[6] strides [1] in storage 0 at 0
pinned [0]
move %0 on IPU 0 to %0 on IPU 1 at position 0
)";
  ExpectAllRefused<LoweredProgram>(
      kText, ReadLowered,
      {
          {"pipeline period 1", "pipeline period 0",
           "line 2: a pipeline comes before IPUs and has a period"},
          {"output_period 1", "output_period 0", "line 1: output_period is 0, must divide the 2"},
          {"output_period 1", "output_period 4", "line 1: output_period is 4, must divide the 2"},
          {"positions 2", "positions 4294967295", "line 2: a pipeline comes before IPUs"},
          {"position 0:", "position 2:", "line 6: there are 2 positions"},
          {"pinned [0]", "pinned [1]", "line 8: storage 1 is not defined before this line"},
          {"at position 0", "at position 2", "line 12: there are 2 positions"},
      });
}

// --- Mutations ---

using Random = std::mt19937;  // the same numbers everywhere

// Another text, a little different.
std::string Mutate(std::string text, Random& random) {
  if (text.empty()) return text;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const auto any_line = [&]() -> std::string& { return lines[random() % lines.size()]; };
  const size_t at = random() % text.size();
  switch (random() % 7) {
    case 0:
      text[at] = static_cast<char>(random());
      return text;
    case 1:
      return text.erase(at, random() % 20);
    case 2:
      return text.substr(0, at);
    case 3:
      any_line() = any_line();
      break;
    case 4: {
      std::string& line = any_line();
      line = absl::StrCat(line, "\n", line);
      break;
    }
    case 5:
      std::swap(any_line(), any_line());
      break;
    default: {
      static constexpr const char* kNumbers[] = {
          "0", "1", "2", "7", "-1", "1000", "4294967295", "9223372036854775807", "1e400", "[", "%"};
      std::string& line = any_line();
      const size_t digit = line.find_first_of("0123456789", line.empty() ? 0 : at % line.size());
      if (digit != line.npos) line.replace(digit, 1, kNumbers[random() % std::size(kNumbers)]);
    }
  }
  return absl::StrJoin(lines, "\n");
}

// Nothing crashes, and the executable may be invalid.
void Assemble(LoweredProgram program) {
  Assembler assembler(static_cast<uint32_t>(program.ipus.size()), /*total_replicas=*/0);
  assembler.AddState(program);
  assembler.AddProgram(std::move(program));
  program::Executable::Make(assembler.Finish(), {}, assembler.Origins({})).IgnoreError();
}

// A mutated text is refused, or it is a program of which the rest of the compiler makes something.
template <class Form>
int CountRead(const std::string& text, absl::StatusOr<Form> (*read)(absl::string_view),
              void (*finish)(Form), Random& random) {
  constexpr int kMutations = 1000;
  int count = 0;
  for (int i = 0; i < kMutations; ++i) {
    std::string mutated = text;
    for (uint32_t steps = random() % 3 + 1; steps > 0; --steps)
      mutated = Mutate(std::move(mutated), random);
    SCOPED_TRACE(mutated);
    absl::StatusOr<Form> form = read(mutated);
    if (!form.ok()) {
      EXPECT_EQ(form.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(form.status().message()), testing::StartsWith("line "));
      continue;
    }
    ++count;
    const std::string printed = Print(*form);
    const absl::StatusOr<Form> again = read(printed);
    EXPECT_EQ(again.ok() ? Print(*again) : again.status().ToString(), printed);
    finish(*std::move(form));
  }
  return count;
}

TEST(BadTextTest, MutationsNeverCrash) {
  Random random(7);
  int read = 0;
  for (const TestProgram& test : SmallPrograms()) {
    SCOPED_TRACE(test.name);
    auto program = AddGradients(test.graph, test.options.programs[0], test.options);
    ASSERT_TRUE(program.ok()) << program.status();
    RemoveDeadCode(*program);
    read += CountRead<GraphProgram>(
        Print(*program), ReadGraph,
        [](GraphProgram form) {
          RemoveDeadCode(form);
          if (form.rounding.empty()) Fuse(form);
          Assemble(Lower(form));
        },
        random);
    if (program->rounding.empty()) Fuse(*program);
    read += CountRead<GraphProgram>(
        Print(*program), ReadGraph, [](GraphProgram form) { Assemble(Lower(form)); }, random);
    read += CountRead<LoweredProgram>(Print(Lower(*program)), ReadLowered, Assemble, random);
  }
  EXPECT_GT(read, 50);  // of about 1000
}

}  // namespace
}  // namespace vpod::compiler
