// Tests of Validate for an executable as a whole: names, streams, nesting, limits, exchange between
// IPUs. Single instructions are the subject of validate_test.cc and validate_types_test.cc.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"

namespace vpod::program {
namespace {

using testing::HasSubstr;

v1::Executable FromText(const std::string& text) {
  v1::Executable executable;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &executable)) << text;
  return executable;
}

// Each IPU has float32[4] as tensors 0 and 1, float32[8] as 2, int32[4] as 3, a bool as 4 and an
// int32 as 5; `rest` adds streams, variables and exchanges.
std::string IpuText() {
  return "arena_bytes:256 tensors{type:FLOAT32 dims:4} tensors{type:FLOAT32 dims:4 offset:64} "
         "tensors{type:FLOAT32 dims:8 offset:128} tensors{type:INT32 dims:4 offset:192} "
         "tensors{type:BOOL offset:64} tensors{type:INT32 offset:128} ";
}

std::string Step(const std::string& text) { return absl::StrCat("instructions{", text, "} "); }
// An instruction that executes a function of its own, made of `steps`; WithFunctions resolves it.
std::string Nested(const std::string& instruction, const std::string& steps) {
  return absl::StrCat("<", instruction, "|", steps, ">");
}
std::string Repeat(uint64_t count, const std::string& steps) {
  return Nested(absl::StrCat("repeat{count:", count, " function:$}"), steps);
}
std::string Call(const std::string& steps) { return Nested("call{function:$}", steps); }
std::string AllReduce() { return Step("all_reduce{operator:SUM} inputs:0 outputs:1"); }

// The functions of an IPU, the entry last.
std::vector<std::string> Functions(std::string entry) {
  std::vector<std::string> functions;
  for (size_t end; (end = entry.find('>')) != std::string::npos;) {
    const size_t begin = entry.rfind('<', end), bar = entry.find('|', begin);
    std::string instruction = entry.substr(begin + 1, bar - begin - 1);
    instruction.replace(instruction.find('$'), 1, absl::StrCat(functions.size()));
    functions.push_back(entry.substr(bar + 1, end - bar - 1));
    entry.replace(begin, end - begin + 1, Step(instruction));
  }
  functions.push_back(entry);
  return functions;
}

v1::Executable WithFunctions(const std::vector<std::string>& entries,
                             const std::string& rest = "") {
  std::string text = absl::StrCat("ipus_per_replica:", entries.size(), " ", rest);
  std::string program = "programs{name:'main' ";
  for (const std::string& entry : entries) {
    const std::vector<std::string> functions = Functions(entry);
    absl::StrAppend(&text, "ipus{", IpuText());
    for (const std::string& function : functions)
      absl::StrAppend(&text, "functions{", function, "} ");
    absl::StrAppend(&text, "} ");
    absl::StrAppend(&program, "functions:", functions.size() - 1, " ");
  }
  return FromText(absl::StrCat(text, program, "}"));
}

// A table of exchanges, each given as moves "from/tensor>to/tensor", and its steps by IPU.
struct Exchanges {
  std::string table;
  std::vector<std::map<uint32_t, std::string>> steps;

  explicit Exchanges(const std::vector<std::vector<std::array<uint32_t, 4>>>& exchanges) {
    for (const auto& moves : exchanges) {
      absl::StrAppend(&table, "exchanges{");
      std::map<uint32_t, std::string> operands;
      for (const auto& [from, from_tensor, to, to_tensor] : moves) {
        absl::StrAppend(&table, "moves{from_ipu:", from, " from_tensor:", from_tensor,
                        " to_ipu:", to, " to_tensor:", to_tensor, "} ");
        absl::StrAppend(&operands[from], " inputs:", from_tensor);
        absl::StrAppend(&operands[to], " outputs:", to_tensor);
      }
      absl::StrAppend(&table, "} ");
      for (auto& [ipu, text] : operands)
        text = absl::StrCat("exchange{exchange:", steps.size(), "}", text);
      steps.push_back(std::move(operands));
    }
  }
  // The step of an IPU in an exchange.
  std::string At(size_t exchange, uint32_t ipu) const { return Step(steps[exchange].at(ipu)); }
};

// 0 sends to 1, and 1 to 0.
Exchanges ThereAndBack() { return Exchanges({{{0, 0, 1, 0}}, {{1, 0, 0, 1}}}); }

const char kFill[] = "instructions{fill{} outputs:0} ";

void ExpectValid(const v1::Executable& executable, const Limits& limits = {}) {
  const absl::Status status = Validate(executable, limits);
  EXPECT_TRUE(status.ok()) << status;
}

void ExpectRefused(const v1::Executable& executable, const std::string& part,
                   const Limits& limits = {}) {
  const absl::Status status = Validate(executable, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(ValidateStructureTest, RefusesOtherNumbersOfIpus) {
  for (uint32_t ipus : {1, 2, 4, 8, 16, 32, 64})
    ExpectValid(WithFunctions(std::vector<std::string>(ipus)));
  for (uint32_t ipus : {0, 3, 5, 128}) {
    ExpectRefused(
        WithFunctions(std::vector<std::string>(ipus)),
        absl::StrCat("ipus_per_replica is ", ipus, ", must be a power of two from 1 to 64"));
  }
  v1::Executable executable = WithFunctions({"", ""});
  executable.set_ipus_per_replica(4);
  ExpectRefused(executable, "2 IPUs described, 4 expected");
}

TEST(ValidateStructureTest, RefusesProgramsWithoutNameOrFunctions) {
  v1::Executable executable = WithFunctions({"", ""});
  *executable.add_programs() = executable.programs(0);
  ExpectRefused(executable, "two programs are called 'main'");
  executable.mutable_programs(1)->set_name("other");
  ExpectValid(executable);
  executable.mutable_programs(1)->clear_name();
  ExpectRefused(executable, "a program has no name");
  executable = WithFunctions({"", ""});
  executable.mutable_programs(0)->add_functions(0);
  ExpectRefused(executable, "program 'main' has 3 functions, needs one for each of the 2 IPUs");
  executable.mutable_programs(0)->clear_functions();
  ExpectRefused(executable, "program 'main' has 0 functions");
  executable.clear_programs();
  ExpectRefused(executable, "the executable has no program");
}

TEST(ValidateStructureTest, RefusesBadVariables) {
  ExpectValid(WithFunctions({""}, "variables{name:'v' tensor:3} variables{name:'w' tensor:3}"));
  ExpectRefused(WithFunctions({""}, "variables{name:'v'} variables{name:'v' tensor:1}"),
                "variable 'v': the name is used twice");
  ExpectRefused(WithFunctions({""}, "variables{tensor:1}"), "variable '': the name is empty");
  ExpectRefused(WithFunctions({""}, "variables{name:'v' tensor:6}"),
                "variable 'v': tensor 6 of IPU 0 does not exist (there are ");
  ExpectRefused(WithFunctions({""}, "variables{name:'v' ipu:1}"),
                "variable 'v': IPU 1 is not in the replica, must be 0 to 0");
}

TEST(ValidateStructureTest, RefusesBadStreams) {
  const std::string good =
      "streams{name:'s' to_device:true type:FLOAT32 dims:4 transfers_per_run:2} ";
  ExpectValid(WithFunctions({""}, good));
  ExpectRefused(WithFunctions({""}, absl::StrCat(good, good)),
                "stream 's': the name is used twice");
  ExpectRefused(WithFunctions({""}, "streams{type:FLOAT32}"), "stream '': the name is empty");
  ExpectRefused(WithFunctions({""}, "streams{name:'s'}"), "stream 's': unknown element type 0");
  ExpectRefused(WithFunctions({""}, "streams{name:'s' type:FLOAT32 dims:-4}"), "stream 's': ");
  ExpectRefused(WithFunctions({""}, "streams{name:'s' type:FLOAT32 ipu:1}"),
                "stream 's': IPU 1 is not in the replica, must be 0 to 0");
  ExpectValid(WithFunctions({""}, "streams{name:'s' type:FLOAT32 tiles:1472}"));
  ExpectRefused(WithFunctions({""}, "streams{name:'s' type:FLOAT32 tiles:1473}"),
                "stream 's' takes 1473 tiles, an IPU has 1472");
}

TEST(ValidateStructureTest, RefusesStreamsBeyondTheLimitOfBytes) {
  const auto stream = [](const std::string& name, uint64_t elements, uint64_t transfers) {
    return absl::StrCat("streams{name:'", name, "' type:FLOAT32 dims:", elements,
                        " transfers_per_run:", transfers, "} ");
  };
  const Limits limits{.stream_bytes = 4096};
  ExpectValid(WithFunctions({""}, stream("a", 64, 16)), limits);
  ExpectValid(WithFunctions({""}, stream("a", 64, 8) + stream("b", 1, 512)), limits);
  ExpectValid(WithFunctions({""}, stream("a", 1 << 30, 0)), limits);
  const std::string text = "streams of one run exceed 4096 bytes";
  ExpectRefused(WithFunctions({""}, stream("a", 64, 17)), text, limits);
  ExpectRefused(WithFunctions({""}, stream("a", 64, 8) + stream("b", 1, 513)), text, limits);
  // 8 GiB × 2^32 transfers wraps 64 bits.
  ExpectRefused(WithFunctions({""}, stream("a", uint64_t{1} << 31, 0xffffffff)), text, limits);
}

TEST(ValidateStructureTest, RefusesTransfersThatTheStreamDoesNotDeclare) {
  const std::string streams =
      "streams{name:'in' to_device:true type:FLOAT32 dims:4 transfers_per_run:6} "
      "streams{name:'out' type:FLOAT32 dims:4 transfers_per_run:1}"
      "streams{name:'far' type:FLOAT32 dims:4 ipu:1 transfers_per_run:1}";
  const std::string in = Step("stream_in{stream:0} outputs:0"),
                    out = Step("stream_out{stream:1} inputs:0");
  ExpectValid(WithFunctions({Repeat(2, Repeat(2, in) + in) + out, ""}, streams));
  ExpectRefused(WithFunctions({Repeat(2, Repeat(3, in) + in), ""}, streams),
                "program 'main' makes 8 transfers of stream 'in', which declares 6");
  ExpectRefused(WithFunctions({out + out, ""}, streams),
                "program 'main' makes 2 transfers of stream 'out', which declares 1");
  const auto refused = [&](const std::string& step, const std::string& part) {
    ExpectRefused(WithFunctions({Step(step), ""}, streams), part);
  };
  refused("stream_in{stream:1} outputs:0", "stream 'out' goes to the host");
  refused("stream_out{stream:0} inputs:0", "stream 'in' goes to the device");
  refused("stream_out{stream:2} inputs:0", "stream 'far' is one of IPU 1, not of IPU 0");
  refused("stream_out{stream:3} inputs:0", "stream 3 does not exist (there are 3)");
  refused("stream_in{stream:0} outputs:2", "tensor 2 is float32[8], must be float32[4]");
  refused("stream_in{stream:0} outputs:3", "tensor 3 is int32[4], must be float32[4]");
}

TEST(ValidateStructureTest, RefusesDeepNesting) {
  std::string steps = kFill;
  for (int depth = 0; depth < 8; ++depth) steps = Repeat(1, steps);
  ExpectValid(WithFunctions({steps}));
  ExpectRefused(WithFunctions({Repeat(1, steps)}), "calls are nested deeper than 8");
  ExpectRefused(WithFunctions({Repeat(1, Repeat(1, kFill))}), "nested deeper than 1",
                {.nesting = 1});
}

TEST(ValidateStructureTest, NamesTheInstructionInAFunction) {
  ExpectRefused(WithFunctions({kFill + Repeat(2, kFill + Repeat(2, Step("fill{} outputs:9")))}),
                "IPU 0 function 0 instruction 0 (fill): tensor 9 does not exist");
  ExpectRefused(WithFunctions({kFill + Repeat(2, kFill + Step("fill{} outputs:9"))}),
                "IPU 0 function 0 instruction 1 (fill): tensor 9 does not exist");
}

TEST(ValidateStructureTest, RefusesRepeatsThatDoNothingOrNeverEnd) {
  ExpectRefused(WithFunctions({Repeat(0, kFill)}), "repeat count must be 1 or more");
  ExpectValid(WithFunctions({Repeat(1u << 31, kFill)}));
  const std::string text = "program 'main' IPU 0: more than 4294967296 executed instructions";
  ExpectRefused(WithFunctions({Repeat(1u << 31, Repeat(4, kFill))}), text);
  ExpectRefused(WithFunctions({Repeat(0xffffffff, Repeat(0xffffffff, Repeat(0xffffffff, kFill)))}),
                text);
  ExpectRefused(WithFunctions({Repeat(1u << 31, kFill + std::string(kFill))}), text);
}

// The rounds of an empty body cost time and are in no count of executed instructions.
TEST(ValidateStructureTest, RefusesEmptyRepeats) {
  ExpectRefused(WithFunctions({Repeat(0xffffffff, "")}),
                "function 0, which is repeated, does nothing");
  ExpectValid(WithFunctions({Call("") + kFill}));
}

TEST(ValidateStructureTest, FunctionsCallOnlyThoseBeforeThem) {
  for (const std::string instruction :
       {"call{function:0}", "repeat{function:1 count:2}", "if{else_function:0} inputs:4",
        "while{function:7 max_rounds:1} inputs:4"}) {
    ExpectRefused(WithFunctions({Step(instruction)}),
                  "is not before its caller; functions call only those before them");
  }
  v1::Executable executable = WithFunctions({""});
  executable.mutable_programs(0)->set_functions(0, 1);
  ExpectRefused(executable, "program 'main' IPU 0: function 1 does not exist (there are 1)");
}

TEST(ValidateStructureTest, RepeatsCountInAnInt32) {
  v1::Executable executable = WithFunctions({Repeat(3, kFill)});
  v1::Instruction* repeat =
      executable.mutable_ipus(0)->mutable_functions(1)->mutable_instructions(0);
  repeat->add_outputs(5);
  ExpectValid(executable);
  repeat->set_outputs(0, 3);
  ExpectRefused(executable, "tensor 3 is int32[4], must be int32[]");
}

TEST(ValidateStructureTest, BranchesAndLoopsTakeABool) {
  const std::string branch = "if{then_function:$} inputs:",
                    loop = "while{function:$ max_rounds:9} inputs:";
  for (const std::string& each : {branch, loop}) {
    ExpectValid(WithFunctions({Nested(each + "4", kFill)}));
    ExpectRefused(WithFunctions({Nested(each + "3", kFill)}),
                  "tensor 3 is int32[4], must be bool[]");
    // A branch that streams, reduces or exchanges would leave others waiting.
    for (const std::string& step : {AllReduce(), Call(AllReduce()), Repeat(2, AllReduce())}) {
      ExpectRefused(WithFunctions({Nested(each + "4", step)}),
                    "streams or communicates, which the functions of an if or while do not");
    }
  }
  const Exchanges e = ThereAndBack();
  const std::string stream =
      "streams{name:'s' to_device:true type:FLOAT32 dims:4 transfers_per_run:9} ";
  const std::string otherwise = "if{else_function:$} inputs:4";
  for (const std::string& each : {branch + "4", loop + "4", otherwise}) {
    ExpectRefused(WithFunctions({Nested(each, e.At(0, 0)), e.At(0, 1)}, e.table),
                  "streams or communicates");
    ExpectRefused(WithFunctions({Nested(each, Step("stream_in{stream:0} outputs:0"))}, stream),
                  "streams or communicates");
  }
  ExpectRefused(WithFunctions({Step("if{} inputs:4")}), "an if needs a function");
  ExpectRefused(WithFunctions({Nested("while{function:$} inputs:4", kFill)}),
                "a while needs a max_rounds of 1 or more");
  ExpectRefused(WithFunctions({Nested("while{function:$ max_rounds:2} inputs:4", "")}),
                "function 0, which is repeated, does nothing");
  ExpectValid(WithFunctions({Nested("if{then_function:$} inputs:4", "")}));
}

// Validation must not play through the rounds of repeats without exchanges: this program has some
// 10^14 of them in all.
TEST(ValidateStructureTest, LongRepeatsWithoutExchangesCostNothing) {
  v1::Executable executable = WithFunctions({Repeat(0xfffffff0, kFill)});
  for (int i = 0; i < 30000; ++i) {
    *executable.add_programs() = executable.programs(0);
    executable.mutable_programs(i + 1)->set_name(absl::StrCat("p", i));
  }
  ExpectValid(executable, {.programs = 30001});
  ExpectRefused(executable, "the executable has 30001 programs, at most 1024 are accepted");
}

TEST(ValidateStructureTest, RefusesTooManyInstructionsAndTensors) {
  const Limits limits{.tensors = 6, .instructions = 3, .executed_instructions = 10};
  ExpectValid(WithFunctions({kFill + Repeat(2, kFill)}), limits);
  ExpectRefused(WithFunctions({kFill + Repeat(2, kFill) + kFill}), "more than 3 instructions",
                limits);
  ExpectRefused(WithFunctions({Repeat(10, kFill)}), "more than 10 executed instructions", limits);
  ExpectRefused(WithFunctions({""}), "IPU 0: more than 3 tensors", {.tensors = 3});
}

// --- Exchanges between IPUs ---

TEST(ValidateExchangeTest, AcceptsMatchingExchanges) {
  const Exchanges e = ThereAndBack();
  ExpectValid(WithFunctions({e.At(0, 0) + e.At(1, 0), e.At(0, 1) + e.At(1, 1)}, e.table));
  ExpectValid(WithFunctions({Repeat(3, e.At(0, 0)), e.At(0, 1) + Repeat(2, e.At(0, 1))}, e.table));
  ExpectValid(WithFunctions(
      {Repeat(2, Repeat(3, e.At(0, 0)) + AllReduce()) + Call(e.At(0, 0)), Repeat(7, e.At(0, 1))},
      e.table));
  // Both ways at once, one tensor to two IPUs, and around a ring of four.
  const Exchanges at_once({{{0, 0, 1, 0}, {1, 1, 0, 1}},
                           {{0, 0, 1, 0}, {0, 0, 2, 0}},
                           {{0, 0, 1, 1}, {1, 0, 2, 1}, {2, 0, 3, 1}, {3, 0, 0, 1}}});
  ExpectValid(WithFunctions({at_once.At(0, 0) + at_once.At(1, 0) + at_once.At(2, 0),
                             at_once.At(0, 1) + at_once.At(1, 1) + at_once.At(2, 1),
                             at_once.At(1, 2) + at_once.At(2, 2), at_once.At(2, 3)},
                            at_once.table));
}

TEST(ValidateExchangeTest, RefusesMovesThatDoNotFit) {
  const auto refused = [](const std::vector<std::array<uint32_t, 4>>& moves,
                          const std::string& part) {
    ExpectRefused(WithFunctions({"", ""}, Exchanges({moves}).table), part);
  };
  refused({}, "exchange 0 has no moves");
  refused({{0, 0, 0, 1}}, "exchange 0: a move needs two different IPUs of the replica");
  refused({{0, 0, 2, 1}}, "exchange 0: a move needs two different IPUs of the replica");
  refused({{0, 0, 1, 6}}, "exchange 0: tensor 6 of IPU 1 does not exist");
  refused({{0, 9, 1, 0}}, "exchange 0: tensor 9 of IPU 0 does not exist");
  refused({{0, 0, 1, 2}}, "exchange 0 moves float32[4] to float32[8]");
  refused({{0, 0, 1, 3}}, "exchange 0 moves float32[4] to int32[4]");
  const std::string shares =
      "exchange 0: a tensor that IPU 1 receives shares bytes with another of the exchange";
  refused({{0, 0, 1, 0}, {0, 1, 1, 0}}, shares);
  refused({{0, 0, 1, 0}, {1, 0, 0, 1}}, shares);
  v1::Executable wide = WithFunctions({"", ""}, Exchanges({{{0, 0, 1, 0}}}).table);
  wide.mutable_ipus(0)->mutable_tensors(0)->set_wide_accumulator(true);
  ExpectRefused(wide, "exchange 0: tensor 0 of IPU 0 is a wide accumulator");
}

TEST(ValidateExchangeTest, RefusesStepsThatAreNotThoseOfTheTable) {
  const Exchanges e = ThereAndBack();
  const auto refused = [&](const std::string& step, const std::string& part) {
    ExpectRefused(WithFunctions({Step(step), "", "", ""}, e.table), part);
  };
  refused("exchange{exchange:2}", "exchange 2 does not exist (there are 2)");
  refused("exchange{exchange:0}", "the inputs are not what exchange 0 takes from this IPU");
  refused("exchange{exchange:0} inputs:1", "the inputs are not what exchange 0 takes");
  refused("exchange{exchange:0} inputs:0 outputs:1",
          "the outputs are not what exchange 0 brings to this IPU");
  refused("exchange{exchange:1}", "the outputs are not what exchange 1 brings to this IPU");
  ExpectRefused(WithFunctions({"", "", Step("exchange{exchange:0}"), ""}, e.table),
                "exchange 0 does not name IPU 2");
}

TEST(ValidateExchangeTest, RefusesExchangesThatNobodyAnswers) {
  const Exchanges e = ThereAndBack();
  const std::string text = "program 'main': IPU 0 waits for an exchange that another IPU does not";
  ExpectRefused(WithFunctions({e.At(0, 0), ""}, e.table), text);
  ExpectRefused(WithFunctions({"", e.At(0, 1)}, e.table), "IPU 1 waits for an exchange");
  ExpectRefused(WithFunctions({e.At(0, 0), e.At(1, 1)}, e.table), text);
  ExpectRefused(WithFunctions({Repeat(3, e.At(0, 0)), Repeat(2, e.At(0, 1))}, e.table), text);
  // In another order.
  ExpectRefused(WithFunctions({e.At(0, 0) + e.At(1, 0), e.At(1, 1) + e.At(0, 1)}, e.table), text);
  // A ring of pairs in which everybody comes to the next one first.
  const Exchanges ring({{{0, 0, 1, 0}}, {{1, 0, 2, 0}}, {{2, 0, 3, 0}}, {{3, 0, 0, 0}}});
  ExpectRefused(WithFunctions({ring.At(0, 0) + ring.At(3, 0), ring.At(1, 1) + ring.At(0, 1),
                               ring.At(2, 2) + ring.At(1, 2), ring.At(3, 3) + ring.At(2, 3)},
                              ring.table),
                text);
}

// Collectives are between the same IPU of several replicas: a stage may reduce alone.
TEST(ValidateExchangeTest, IpusNeedNotAgreeOnCollectives) {
  const Exchanges e = ThereAndBack();
  ExpectValid(WithFunctions({AllReduce() + AllReduce(), AllReduce()}));
  ExpectValid(WithFunctions({AllReduce() + e.At(0, 0), e.At(0, 1) + AllReduce()}, e.table));
  ExpectValid(WithFunctions({"", Repeat(5, AllReduce()), "", Repeat(4, AllReduce())}));
}

// Programs are looked through when they are priced: many steps of an exchange of many moves, or
// many programs that reach the same functions, would take minutes.
TEST(ValidateExchangeTest, RefusesTextsThatWouldBeLookedThroughForLong) {
  std::vector<std::array<uint32_t, 4>> moves;
  for (uint32_t to = 1; to < 16; ++to) moves.push_back({0, 0, to, 0});
  const Exchanges e({moves});
  std::vector<std::string> entries;
  for (uint32_t ipu = 0; ipu < 16; ++ipu) entries.push_back(e.At(0, ipu) + e.At(0, ipu));
  ExpectValid(WithFunctions(entries, e.table), {.instructions = 30});
  ExpectRefused(WithFunctions(entries, e.table), "more than 29 instructions", {.instructions = 29});
  ExpectValid(WithFunctions(entries, e.table), {.reached_instructions = 16 * 30});
  ExpectRefused(WithFunctions(entries, e.table),
                "program 'main': the programs reach more than 479 instructions in all",
                {.reached_instructions = 16 * 30 - 1});
  ExpectRefused(WithFunctions({""}, "exchanges{} exchanges{}"), "more than 1 exchanges",
                {.exchanges = 1});
  ExpectRefused(WithFunctions({Call("") + Call("")}), "IPU 0: more than 2 functions",
                {.instructions = 2});
}

TEST(ValidateExchangeTest, RefusesMoreExchangesThanItPlaysThrough) {
  const Limits limits{.rendezvous = 1000};
  const Exchanges e = ThereAndBack();
  const auto both = [&](uint64_t rounds, const std::string& more = "") {
    return WithFunctions({Repeat(rounds, e.At(0, 0)) + more, Repeat(rounds, e.At(0, 1))}, e.table);
  };
  ExpectValid(both(500), limits);
  const std::string text = "more than 1000 exchanges between IPUs in a run of each program";
  ExpectRefused(both(501), text, limits);
  ExpectRefused(both(500, e.At(0, 0)), text, limits);
  // Rounds of rounds count, collectives do not.
  ExpectRefused(both(100, Repeat(100, Repeat(10, e.At(0, 0)))), text, limits);
  ExpectValid(both(500, Repeat(5000, AllReduce())), limits);
  ExpectRefused(both(1, Repeat(1u << 31, e.At(0, 0))), text, limits);
  // A program for itself may; all together take the time of their sum.
  v1::Executable two = both(300);
  *two.add_programs() = two.programs(0);
  two.mutable_programs(1)->set_name("other");
  ExpectRefused(two, text, limits);
}

TEST(ValidateStructureTest, BoundsOperands) {
  const Limits limits{.operands_per_instruction = 4, .operands = 10};
  const std::string four = Step("concat{} inputs:[0,0] inputs:1 outputs:6");
  const auto with = [&](const std::string& steps) {
    v1::Executable executable = WithFunctions({steps});
    v1::Tensor* joined = executable.mutable_ipus(0)->add_tensors();
    joined->set_type(v1::FLOAT32);
    joined->add_dims(12);
    joined->set_offset(192);
    return executable;
  };
  ExpectValid(with(four + four), limits);
  ExpectRefused(with(four + four + four), "the instructions have more than 10 operands in all",
                limits);
  ExpectRefused(with(Step("all_finite{} inputs:[0,0,0,0] outputs:4")),
                "the instruction has 5 operands, at most 4 are accepted", limits);
}

}  // namespace
}  // namespace vpod::program
