// Tests of Validate for an executable as a whole: names, streams, nesting, limits, exchange between
// IPUs. Single instructions are the subject of validate_test.cc.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

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

// Each IPU has float32[4] as tensors 0 and 1, float32[8] as 2 and int32[4] as 3; `rest` adds
// streams and variables.
std::string IpuText() {
  return "ipus{arena_bytes:256 tensors{type:FLOAT32 dims:4} tensors{type:FLOAT32 dims:4 offset:64} "
         "tensors{type:FLOAT32 dims:8 offset:128} tensors{type:INT32 dims:4 offset:192}} ";
}
v1::Executable WithBlocks(const std::vector<std::string>& blocks, const std::string& rest = "") {
  std::string text = absl::StrCat("ipus_per_replica:", blocks.size(), " ", rest);
  for (size_t i = 0; i < blocks.size(); ++i) absl::StrAppend(&text, IpuText());
  absl::StrAppend(&text, "programs{name:'main' ");
  for (const std::string& block : blocks) absl::StrAppend(&text, "blocks{", block, "} ");
  absl::StrAppend(&text, "}");
  return FromText(text);
}

std::string Step(const std::string& text) { return absl::StrCat("instructions{", text, "} "); }
std::string Send(int to, int channel, int tensor = 0) {
  return Step(absl::StrCat("send{tensor:", tensor, " to_ipu:", to, " channel:", channel, "}"));
}
std::string Receive(int from, int channel, int tensor = 0) {
  return Step(
      absl::StrCat("receive{tensor:", tensor, " from_ipu:", from, " channel:", channel, "}"));
}
std::string AllReduce() { return Step("all_reduce{operator:SUM inputs:0 outputs:1}"); }
// `steps` is a list of Step texts.
std::string Repeat(uint64_t count, std::string steps) {
  for (size_t at = 0; (at = steps.find("instructions{", at)) != std::string::npos;) {
    steps.replace(at, 12, "body");
  }
  return Step(absl::StrCat("repeat{count:", count, " ", steps, "}"));
}
const char kFill[] = "instructions{fill{output:0}} ";

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
  for (uint32_t ipus : {1, 2, 4, 8, 16}) ExpectValid(WithBlocks(std::vector<std::string>(ipus)));
  for (uint32_t ipus : {0, 3, 5, 32}) {
    ExpectRefused(WithBlocks(std::vector<std::string>(ipus)),
                  absl::StrCat("ipus_per_replica is ", ipus, ", must be 1, 2, 4, 8 or 16"));
  }
  v1::Executable executable = WithBlocks({"", ""});
  executable.set_ipus_per_replica(4);
  ExpectRefused(executable, "2 IPUs described, 4 expected");
}

TEST(ValidateStructureTest, RefusesProgramsWithoutNameOrBlocks) {
  v1::Executable executable = WithBlocks({"", ""});
  *executable.add_programs() = executable.programs(0);
  ExpectRefused(executable, "program 'main': bad name or number of blocks");
  executable.mutable_programs(1)->set_name("other");
  ExpectValid(executable);
  executable.mutable_programs(1)->clear_name();
  ExpectRefused(executable, "program '': bad name or number of blocks");
  executable = WithBlocks({"", ""});
  executable.mutable_programs(0)->add_blocks();
  ExpectRefused(executable, "program 'main': bad name or number of blocks");
  executable.mutable_programs(0)->clear_blocks();
  ExpectRefused(executable, "program 'main': bad name or number of blocks");
  executable.clear_programs();
  ExpectRefused(executable, "the executable has no program");
}

TEST(ValidateStructureTest, RefusesBadVariables) {
  ExpectValid(WithBlocks({""}, "variables{name:'v' tensor:3} variables{name:'w' tensor:3}"));
  ExpectRefused(WithBlocks({""}, "variables{name:'v'} variables{name:'v' tensor:1}"),
                "variable 'v'");
  ExpectRefused(WithBlocks({""}, "variables{tensor:1}"), "variable ''");
  ExpectRefused(WithBlocks({""}, "variables{name:'v' tensor:4}"), "variable 'v'");
  ExpectRefused(WithBlocks({""}, "variables{name:'v' ipu:1}"), "variable 'v'");
}

TEST(ValidateStructureTest, RefusesBadStreams) {
  const std::string good =
      "streams{name:'s' to_device:true type:FLOAT32 dims:4 transfers_per_run:2} ";
  ExpectValid(WithBlocks({""}, good));
  ExpectRefused(WithBlocks({""}, absl::StrCat(good, good)), "stream 's': bad name, IPU or shape");
  ExpectRefused(WithBlocks({""}, "streams{type:FLOAT32}"), "stream '': bad name");
  ExpectRefused(WithBlocks({""}, "streams{name:'s'}"), "stream 's': bad name, IPU or shape");
  ExpectRefused(WithBlocks({""}, "streams{name:'s' type:FLOAT32 dims:-4}"), "stream 's': bad");
  ExpectRefused(WithBlocks({""}, "streams{name:'s' type:FLOAT32 ipu:1}"), "stream 's': bad");
  ExpectValid(WithBlocks({""}, "streams{name:'s' type:FLOAT32 tiles:1472}"));
  ExpectRefused(WithBlocks({""}, "streams{name:'s' type:FLOAT32 tiles:1473}"),
                "stream 's' takes 1473 tiles, an IPU has 1472");
}

TEST(ValidateStructureTest, RefusesStreamsBeyondTheLimitOfBytes) {
  const auto stream = [](const std::string& name, uint64_t elements, uint64_t transfers) {
    return absl::StrCat("streams{name:'", name, "' type:FLOAT32 dims:", elements,
                        " transfers_per_run:", transfers, "} ");
  };
  const Limits limits{.stream_bytes = 4096};
  ExpectValid(WithBlocks({""}, stream("a", 64, 16)), limits);
  ExpectValid(WithBlocks({""}, stream("a", 64, 8) + stream("b", 1, 512)), limits);
  ExpectValid(WithBlocks({""}, stream("a", 1 << 30, 0)), limits);
  const std::string text = "streams of one run exceed 4096 bytes";
  ExpectRefused(WithBlocks({""}, stream("a", 64, 17)), text, limits);
  ExpectRefused(WithBlocks({""}, stream("a", 64, 8) + stream("b", 1, 513)), text, limits);
  // 8 GiB × 2^32 transfers wraps 64 bits.
  ExpectRefused(WithBlocks({""}, stream("a", uint64_t{1} << 31, 0xffffffff)), text, limits);
}

TEST(ValidateStructureTest, RefusesTransfersThatTheStreamDoesNotDeclare) {
  const std::string streams =
      "streams{name:'in' to_device:true type:FLOAT32 dims:4 transfers_per_run:6} "
      "streams{name:'out' type:FLOAT32 dims:4 transfers_per_run:1}"
      "streams{name:'far' type:FLOAT32 dims:4 ipu:1 transfers_per_run:1}";
  const std::string in = Step("stream_in{stream:0 tensor:0}"),
                    out = Step("stream_out{stream:1 tensor:0}");
  ExpectValid(WithBlocks({Repeat(2, Repeat(2, in) + in) + out, ""}, streams));
  ExpectRefused(WithBlocks({Repeat(2, Repeat(3, in) + in), ""}, streams),
                "program 'main' makes 8 transfers of stream 'in', which declares 6");
  ExpectRefused(WithBlocks({out + out, ""}, streams),
                "program 'main' makes 2 transfers of stream 'out', which declares 1");
  const auto refused = [&](const std::string& step, const std::string& part) {
    ExpectRefused(WithBlocks({Step(step), ""}, streams), part);
  };
  refused("stream_in{stream:1 tensor:0}", "stream 'out' has another direction or IPU");
  refused("stream_out{stream:0 tensor:0}", "stream 'in' has another direction or IPU");
  refused("stream_out{stream:2 tensor:0}", "stream 'far' has another direction or IPU");
  refused("stream_out{stream:3 tensor:0}", "stream 3 does not exist");
  refused("stream_in{stream:0 tensor:2}", "tensor 2 is float32[8], must be float32[4]");
  refused("stream_in{stream:0 tensor:3}", "tensor 3 is int32[4], must be float32[4]");
}

TEST(ValidateStructureTest, RefusesDeepNesting) {
  std::string steps = kFill;
  for (int depth = 0; depth < 8; ++depth) steps = Repeat(1, steps);
  ExpectValid(WithBlocks({steps}));
  ExpectRefused(WithBlocks({Repeat(1, steps)}), "repeats are nested deeper than 8");
  ExpectRefused(WithBlocks({Repeat(1, Repeat(1, kFill))}), "nested deeper than 1", {.nesting = 1});
}

TEST(ValidateStructureTest, NamesTheInstructionInsideRepeats) {
  ExpectRefused(WithBlocks({kFill + Repeat(2, kFill + Repeat(2, Step("fill{output:9}")))}),
                "program 'main' IPU 0 instruction 1: 1/0/tensor 9 does not exist");
}

TEST(ValidateStructureTest, RefusesRepeatsThatDoNothingOrNeverEnd) {
  ExpectRefused(WithBlocks({Repeat(0, kFill)}), "repeat count must be 1 or more");
  ExpectValid(WithBlocks({Repeat(1u << 31, kFill)}));
  ExpectRefused(WithBlocks({Repeat(1u << 31, Repeat(4, kFill))}), "repeats multiply to more than");
  ExpectRefused(WithBlocks({Repeat(0xffffffff, Repeat(0xffffffff, Repeat(0xffffffff, kFill)))}),
                "repeats multiply to more than");
  ExpectRefused(WithBlocks({Repeat(1u << 31, kFill + std::string(kFill))}),
                "executed instructions");
}

// The rounds of an empty body cost time and are in no count of executed instructions.
TEST(ValidateStructureTest, RefusesEmptyRepeats) {
  ExpectRefused(WithBlocks({Repeat(0xffffffff, "")}), "a repeat needs a body");
}

// Validation must not play through the rounds of repeats without exchanges: this program has some
// 10^14 of them in all.
TEST(ValidateStructureTest, LongRepeatsWithoutExchangesCostNothing) {
  v1::Executable executable = WithBlocks({Repeat(0xfffffff0, kFill)});
  for (int i = 0; i < 30000; ++i) {
    *executable.add_programs() = executable.programs(0);
    executable.mutable_programs(i + 1)->set_name(absl::StrCat("p", i));
  }
  ExpectValid(executable, {.programs = 30001});
  ExpectRefused(executable, "the executable has 30001 programs, at most 1024 are accepted");
}

TEST(ValidateStructureTest, RefusesTooManyInstructionsAndTensors) {
  const Limits limits{.tensors = 4, .instructions = 3, .executed_instructions = 10};
  ExpectValid(WithBlocks({kFill + Repeat(2, kFill)}), limits);
  ExpectRefused(WithBlocks({kFill + Repeat(2, kFill) + kFill}), "more than 3 instructions", limits);
  ExpectRefused(WithBlocks({Repeat(10, kFill)}), "more than 10 executed instructions", limits);
  ExpectRefused(WithBlocks({""}), "IPU 0: more than 3 tensors", {.tensors = 3});
}

TEST(ValidateExchangeTest, AcceptsMatchingExchanges) {
  ExpectValid(WithBlocks({Send(1, 0) + Receive(1, 1, 1), Receive(0, 0) + Send(0, 1)}));
  ExpectValid(WithBlocks({Repeat(3, Send(1, 7)), Receive(0, 7) + Repeat(2, Receive(0, 7))}));
  ExpectValid(
      WithBlocks({Repeat(2, Send(1, 0) + AllReduce()), Repeat(2, Receive(0, 0) + AllReduce())}));
  ExpectValid(WithBlocks(
      {Repeat(2, Repeat(3, Send(1, 0)) + AllReduce()) + Send(1, 0),
       Repeat(2, Receive(0, 0) + Repeat(2, Receive(0, 0)) + AllReduce()) + Receive(0, 0)}));
  // Around a ring of four.
  ExpectValid(WithBlocks({Send(1, 0) + Receive(3, 0), Receive(0, 0) + Send(2, 0),
                          Receive(1, 0) + Send(3, 0), Receive(2, 0) + Send(0, 0)}));
}

TEST(ValidateExchangeTest, RefusesPeersOutsideTheReplica) {
  ExpectRefused(WithBlocks({Send(0, 0), ""}), "IPU 0 is not another IPU of the replica");
  ExpectRefused(WithBlocks({Receive(2, 0), ""}), "IPU 2 is not another IPU of the replica");
  ExpectRefused(WithBlocks({Send(1, 0)}), "IPU 1 is not another IPU of the replica");
  ExpectRefused(WithBlocks({Send(1, 0, 4), ""}), "tensor 4 does not exist");
}

TEST(ValidateExchangeTest, RefusesExchangesThatNobodyAnswers) {
  ExpectRefused(WithBlocks({Send(1, 0), ""}),
                "IPU 0 waits for an exchange that no other IPU makes");
  ExpectRefused(WithBlocks({"", Receive(0, 0)}), "IPU 1 waits for an exchange");
  ExpectRefused(WithBlocks({Send(1, 0), Receive(0, 1)}), "IPU 0 waits for an exchange");
  ExpectRefused(WithBlocks({Send(1, 0), Receive(2, 0), "", ""}), "IPU 0 waits for an exchange");
  ExpectRefused(WithBlocks({Repeat(3, Send(1, 0)), Repeat(2, Receive(0, 0))}), "IPU 0 waits");
  ExpectRefused(WithBlocks({Send(1, 0, 0), Receive(0, 0, 2)}),
                "channel 0 sends float32[4] but receives float32[8]");
  ExpectRefused(WithBlocks({Send(1, 0, 0), Receive(0, 0, 3)}),
                "channel 0 sends float32[4] but receives int32[4]");
}

TEST(ValidateExchangeTest, RefusesDeadlocks) {
  // Both send first; each waits for the other to receive.
  ExpectRefused(WithBlocks({Send(1, 0) + Receive(1, 1), Send(0, 1) + Receive(0, 0)}),
                "IPU 0 waits");
  ExpectRefused(WithBlocks({Receive(1, 1) + Send(1, 0), Receive(0, 0) + Send(0, 1)}),
                "IPU 0 waits");
  // Crossed order of two channels.
  ExpectRefused(WithBlocks({Send(1, 0) + Send(1, 1), Receive(0, 1) + Receive(0, 0)}),
                "IPU 0 waits");
  // A ring in which everybody sends first.
  ExpectRefused(WithBlocks({Send(1, 0) + Receive(3, 0), Send(2, 0) + Receive(0, 0),
                            Send(3, 0) + Receive(1, 0), Send(0, 0) + Receive(2, 0)}),
                "IPU 0 waits");
}

TEST(ValidateExchangeTest, RefusesMismatchedCollectives) {
  ExpectRefused(WithBlocks({AllReduce() + AllReduce(), AllReduce()}),
                "IPU 0 waits for an exchange");
  ExpectRefused(WithBlocks({AllReduce(), Repeat(2, AllReduce())}), "IPU 1 waits for an exchange");
  // One IPU is in the collective while the other waits for its tensor.
  ExpectRefused(WithBlocks({AllReduce() + Send(1, 0), Receive(0, 0) + AllReduce()}), "IPU 0 waits");
}

// A replica's IPU that holds no variables has nothing to reduce and takes no part.
TEST(ValidateExchangeTest, IpusWithoutCollectivesDoNotHoldUpTheOthers) {
  ExpectValid(WithBlocks({Send(1, 0), Receive(0, 0) + AllReduce()}));
  ExpectValid(WithBlocks({"", Repeat(5, AllReduce()), "", Repeat(5, AllReduce())}));
}

TEST(ValidateExchangeTest, RefusesMoreExchangesThanItPlaysThrough) {
  const Limits limits{.rendezvous = 1000};
  ExpectValid(WithBlocks({Repeat(1000, AllReduce())}), limits);
  const std::string text = "more than 1000 exchanges between IPUs in a run of each program";
  ExpectRefused(WithBlocks({Repeat(1001, AllReduce())}), text, limits);
  ExpectRefused(WithBlocks({Repeat(1000, AllReduce()) + AllReduce()}), text, limits);
  ExpectRefused(WithBlocks({Repeat(100, Repeat(10, AllReduce()) + AllReduce())}), text, limits);
  const std::string half = Repeat(500, AllReduce()), more = Repeat(501, AllReduce());
  ExpectValid(WithBlocks({half, half}), limits);
  ExpectRefused(WithBlocks({more, more}), text, limits);
  // A program for itself may; all together take the time of their sum.
  v1::Executable two = WithBlocks({half});
  *two.add_programs() = WithBlocks({more}).programs(0);
  two.mutable_programs(1)->set_name("other");
  ExpectRefused(two, text, limits);
}

}  // namespace
}  // namespace vpod::program
