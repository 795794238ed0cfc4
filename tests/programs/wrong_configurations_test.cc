// Wrong configurations of programs with several IPUs, of plans and of profiles: each gets one line
// that names what is wrong, and a status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace vpod {
namespace {

struct Case {
  int status;
  std::string command, message;
  std::string engine_options = "";
};

std::string Tool(const std::string& command) {
  const size_t blank = command.find(' ');
  const std::string name = command.substr(0, blank);
  const bool is_example = name == "hands_on" || name == "first_program";
  const std::string folder = (is_example ? "client/examples/" : "tools/") + name;
  return absl::StrCat(folder, "/", command);
}

void Expect(const Case& test) {
  SCOPED_TRACE(absl::StrCat(test.command, "  ", test.engine_options));
  const std::string environment =
      test.engine_options.empty()
          ? ""
          : absl::StrCat("POPLAR_ENGINE_OPTIONS='", test.engine_options, "' ");
  FILE* pipe =
      popen(absl::StrCat(environment, Tool(test.command), " 2>&1 >/dev/null").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string errors;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) errors += static_cast<char>(c);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), test.status) << errors;
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  EXPECT_THAT(errors, testing::HasSubstr("error: "));
  EXPECT_THAT(errors, testing::HasSubstr(test.message));
}

TEST(WrongConfigurationsTest, ProgramsWithSeveralIpus) {
  const std::string small = "hands_on --network resnet18 --image-size 32 --micro-batch 1 ";
  for (const Case& test : std::vector<Case>{
           {2, small + "--ipus 3", "network resnet18 runs on 1 or 2 IPUs, not on 3"},
           {2, small + "--ipus 4", "network resnet18 runs on 1 or 2 IPUs, not on 4"},
           {2, small + "--ipus 0", "--ipus"},
           {2, small + "--ipus x", "--ipus"},
           {2, small + "--ipus 2 --accumulation 2", "the accumulation is 2, must be at least 3"},
           {2, small + "--ipus 2 --accumulation 2 --schedule interleaved", "must be at least 3"},
           {2, small + "--ipus 2 --split layer9.0 --accumulation 3", "no block 'layer9.0'"},
           {2, small + "--ipus 2 --split layer1.7 --accumulation 3", "no block 'layer1.7'"},
           {2, small + "--schedule phases", "phases"},
           {2, "hands_on --network resnet19 --schedule phased", "unknown network 'resnet19'"},
           {2, small + "--recompute some", "some"},
           {2, small + "--precision 8.8", "8.8"},
           {2, small + "--micro-batch 0", "--micro-batch"},
           {2, small + "--micro-batch -3", "--micro-batch"},
           {2, small + "--accumulation 0", "--accumulation"},
           {2, small + "--accumulation 70000", "--accumulation"},
           {2, small + "--device-iterations 0", "--device-iterations"},
           {2, small + "--runs 0", "--runs"},
           {2, small + "--replicas 0", "--replicas"},
           {2, small + "--wrong", "--wrong"},
           {2, small + "--learning-rate x", "--learning-rate"},
           {2, small + "--learning-rate nan", "--learning-rate: nan is not a number from 0 to 1"},
           {2, small + "--ipus 2 --split nonsense --accumulation 3", "no block 'nonsense'"},
           {2, small + "--schedule 1", "--schedule: '1' is not one of grouped, "},
           {2, small + "--schedule sharded", "--schedule needs --ipus above 1"},
           {2, small + "--split layer2.0", "--split needs --ipus above 1"},
           {2, small + "--recompute pipeline", "--recompute pipeline needs --ipus above 1"},
           {2, small + "--compile-only --learning-rate 0.1",
            "--compile-only cannot be given together"},
           {2, small + "--runs 1 --synchronous", "--synchronous needs --runs above 1"},
           {2, small + "--runs 1 --load-milliseconds 9",
            "--load-milliseconds needs --runs above 1"},
           {2, small + "--load-milliseconds 0", "--load-milliseconds: 0 is not a whole number"},
           {2, small + "--runs 1 --learning-rate 0.1",
            "--learning-rate has no effect on one update"},
           {2, small + "--schedule phased --off-chip-weights",
            "--off-chip-weights has no effect with --schedule phased"},
           {2, "hands_on --network mnist --recompute norm-only", "has nothing to recompute"},
           {2, "hands_on --network mnist --recompute standard", "has nothing to recompute"},
           {2, small + "--compile-only --runs 2",
            "--runs and --compile-only cannot be given together"},
           {2, small + "--compile-only --synchronous",
            "--synchronous and --compile-only cannot be given together"},
           {2, "hands_on --network mnist --ipus 4 --split layer2.0", "--split has no effect on"},
           {2, "hands_on --network mnist --image-size 32", "--image-size has no effect on"},
           {2, "hands_on --network resnet19", "unknown network 'resnet19'"},
           {2, "hands_on --network mnist --ipus 2", "network mnist runs on 1 or 4 IPUs"},
           {2, "hands_on --network mnist --ipus 4 --accumulation 6", "must be at least 7"},
           {2, "hands_on --network mnist --precision 16.16", "mnist has precision 32.32 only"},
           {1, "hands_on --network resnet101 --micro-batch 64 --compile-only",
            "Out of memory: Cannot fit all variable data onto one or more tiles. On IPU 0, "},
           {2, small + "--image-size 1 --micro-batch 70000 --compile-only", "--micro-batch"},
       })
    Expect(test);
}

TEST(WrongConfigurationsTest, EnvironmentOfPoprun) {
  setenv("POPDIST_NUM_TOTAL_REPLICAS", "2", /*overwrite=*/1);
  Expect({1, "hands_on --network mnist", "POPDIST_REPLICA_INDEX_OFFSET is not"});
  Expect({1, "first_program", "POPDIST_REPLICA_INDEX_OFFSET is not"});
  Expect({2, "hands_on --network mnist --replicas 2", "--replicas is poprun's"});
  unsetenv("POPDIST_NUM_TOTAL_REPLICAS");
}

TEST(WrongConfigurationsTest, Profiles) {
  const std::string small = "hands_on --network mnist --micro-batch 1 --runs 1";
  const auto json = [](const char* option, const char* value) {
    return absl::StrCat("{\"", option, "\": ", value, "}");
  };
  for (const Case& test : std::vector<Case>{
           {2, small, "is not a JSON object of strings", "autoReport.all"},
           {2, small, "is not a JSON object of strings", "[\"autoReport.all\"]"},
           {2, small, "is not a JSON object of strings", "{\"autoReport.all\": \"true\""},
           {2, small, "option 'autoReport.all' is not a string", json("autoReport.all", "true")},
           {2, small, "'autoReport.all' is 'yes', must be true or false",
            json("autoReport.all", "\"yes\"")},
           {2, small, "'autoReport.outputGraphProfile' is '1', must be true or false",
            json("autoReport.outputGraphProfile", "\"1\"")},
           {2, small, "'autoReport.outputExecutionProfile' is '', must be true or false",
            json("autoReport.outputExecutionProfile", "\"\"")},
           {2, small, "'autoReport.directory' is empty", json("autoReport.directory", "\"\"")},
           {2, small,
            "'autoReport.executionProfileProgramRunCount' is 'all', must be a whole number",
            json("autoReport.executionProfileProgramRunCount", "\"all\"")},
           {2, small, "'debug.allowOutOfMemory' is 'maybe', must be true or false",
            json("debug.allowOutOfMemory", "\"maybe\"")},
           {1, small, "cannot make the directory /proc/none/train: ",
            "{\"autoReport.all\": \"true\", \"autoReport.directory\": \"/proc/none\"}"},
           {1, small, "cannot make the directory /dev/null/train: ",
            "{\"autoReport.all\": \"true\", \"autoReport.directory\": \"/dev/null\"}"},
           {2, "popvision", "a command is missing; use one of summary, "},
           {2, "popvision look x", "unknown command 'look'"},
           {2, "popvision memory", "the argument profile is missing"},
           {1, "popvision memory /nowhere", "/nowhere: there is no such profile"},
           {1, "popvision memory /dev/null", "/dev/null"},
           {1, "popvision diff /nowhere /nowhere", "there is no such profile"},
       })
    Expect(test);
}

TEST(WrongConfigurationsTest, Plans) {
  for (const Case& test : std::vector<Case>{
           {2, "vpod plan", "give a model, a file with an executable, or -- and a program"},
           {2, "vpod plan resnet19",
            "'resnet19' is neither a model nor a file; models are bert-base, "},
           {2, "vpod plan resnet50 --pod 0", "--pod"},
           {2, "vpod plan resnet50 --pod 70000", "--pod"},
           {2, "vpod plan resnet50 --pod 16,x", "--pod"},
           {2, "vpod plan resnet50 --pod 16,4,16", "--pod names 16 twice"},
           {2, "vpod plan resnet50 --machine-type m2000,m2000", "--machine-type names m2000 twice"},
           {2, "vpod plan resnet50 --machine-type m3000", "m3000"},
           {2, "vpod plan resnet50 --micro-batch 0", "--micro-batch"},
           {2, "vpod plan resnet50 --accumulation 0", "--accumulation"},
           {2, "vpod plan resnet50 --ipus-per-replica 2",
            "model 'resnet50' needs stages to be split over 2 IPUs"},
           {2, "vpod plan resnet50 --ipus-per-replica 3 --stages layer2.0,layer3.0",
            "--ipus-per-replica: 3 is not a power of two up to 64"},
           {2, "vpod plan resnet50 --ipus-per-replica 2 --stages layer7.0",
            "no block 'layer7.0' for a stage to begin with, the blocks are layer1.0 to layer1.2, "},
           {2, "vpod plan resnet50 --ipus-per-replica 2 --stages layer2.0", "must be at least 3"},
           {2, "vpod plan bert-tiny --ipus-per-replica 2 --stages 1,9 --accumulation 9",
            "are the numbers of half layers on each IPU, as 1,3: '9' must be 1 to 4"},
           {2, "vpod plan bert-tiny --ipus-per-replica 4 --stages 2,0,1,1 --accumulation 9",
            "'0' must be 1 to 4"},
           {2, "vpod plan vgg16 --stages features.5", "model 'vgg16' takes no stages, only these"},
           {2, "vpod plan vit-b16 --ipus-per-replica 16", "has 12 blocks, too few for 16 IPUs"},
           {2, "vpod plan bert-tiny --ipus-per-replica 2 --stages 1,2 --accumulation 9",
            "bert has 4 half layers, 3 are dealt to IPUs"},
           {2, "vpod plan resnet50 --memory-proportion 0", "proportion"},
           {1, "vpod plan nowhere/executable", "cannot read nowhere/executable"},
           {1, "vpod plan nowhere.vipuexe --pod 4", "cannot read nowhere.vipuexe"},
           {1, "vpod plan /dev/null", "/dev/null is not a file"},
           {1, "vpod plan tools/vpod/vpod", "'tools/vpod/vpod': it is not a compiled executable"},
           {2, "vpod plan nowhere/executable --micro-batch 4",
            "--micro-batch is for models, not for executables"},
           {2, "vpod plan --search -- true", "--search is for models, not for programs"},
           {2, "vpod plan resnet50 -- true", "'resnet50' and a program after -- exclude"},
           {2, "vpod plan --", "-- is not followed by a program"},
           {1, "vpod plan -- nowhere/program", "cannot run 'nowhere/program': No such file"},
           {1, "vpod plan -- false", "program 'false' ended with status 1 before it had a"},
           {2, "vpod plan --pod 4 --machine-type m3000 -- false", "m3000"},
           {2, "vpod plan resnet50 --memory-proportion 1.5", "proportion"},
           {2, "vpod plan resnet50 --memory-proportion x", "--memory-proportion"},
           {2, "vpod plan resnet50 --memory-proportion 1e-300",
            "--memory-proportion: 1e-300 is not a number above 0 up to 1"},
           {2, "vpod plan resnet50 --precision 64", "64"},
           {2, "vpod plan resnet50 --optimizer adagrad", "adagrad"},
           {2, "vpod plan resnet50 --recompute some", "some"},
           {2, "vpod plan resnet50 --checkpoints layer9.0 --recompute standard",
            "no block 'layer9.0' for a checkpoint"},
           {2, "vpod plan vgg16 --checkpoints layer1.0", "takes no checkpoints"},
           {2, "vpod plan resnet50 --checkpoints layer1.0", "--checkpoints needs --recompute"},
           {2, "vpod plan resnet50 --image-size 4", "--image-size: 4 is not a whole number from 8"},
           {2, "vpod plan mnist --image-size 28", "model 'mnist' takes no --image-size"},
           {2, "vpod plan resnet50 --sequence-length 9", "'resnet50' takes no --sequence-length"},
           {2, "vpod plan bert-tiny --uint8-images", "model 'bert-tiny' takes no --uint8-images"},
           {2, "vpod plan gpt2 --predictions 9", "model 'gpt2' takes no --predictions"},
           {2, "vpod plan resnet50 --schedule sharded", "--schedule needs --ipus-per-replica"},
           {2, "vpod plan resnet50 --recompute pipeline", "pipeline needs --ipus-per-replica"},
           {2, "vpod plan mnist --recompute norm-only", "has nothing to recompute"},
           {2, "vpod plan resnet50 --checkpoints layer1.0 --recompute norm-only",
            "--checkpoints has no effect with --recompute norm-only"},
           {2, "vpod plan resnet50 --replicas 1 --tensor-sharding", "needs several replicas"},
           {2, "vpod plan bert-tiny --pod 4 --ipus-per-replica 4 --tensor-sharding",
            "needs several replicas"},
           {2, "vpod plan resnet50 --schedule phased --off-chip-activations",
            "--off-chip-activations has no effect with --schedule phased"},
           {2, "vpod plan resnet50 --optimizer sgd --off-chip-optimizer-state",
            "--off-chip-optimizer-state has no effect with --optimizer sgd"},
           {2, "vpod plan resnet50 --optimizer sgd --tensor-sharding",
            "--tensor-sharding has no effect with --optimizer sgd"},
           {2, "vpod plan resnet50 --optimizer lars --tensor-sharding",
            "--tensor-sharding has no effect with --optimizer lars"},
           {2, "vpod plan resnet50 --pod 12", "a power of two from 4 to 65536 IPUs, not '12'"},
           {2, "vpod plan resnet50 --search --pod 4,16", "--search takes one POD, --pod names 2"},
           {2, "vpod plan resnet50 --search --machine-type m2000,bow2000",
            "--search takes one type of machine, --machine-type names 2"},
           {2, "vpod plan resnet50 --pod 16 --replicas 17",
            "a POD of 16 IPUs has 16 replicas of 1 IPU, not 17"},
           {2, "vpod plan bert-tiny --attention-dropout 1",
            "--attention-dropout: 1 is not a number from 0 to below 1"},
           {2, "vpod plan bert-tiny --attention-dropout nan", "nan is not a number from 0"},
           {2, "vpod plan gpt2 --gelu tanh", "model 'gpt2' takes no --gelu"},
           {2, "vpod plan bert-tiny --gelu relu", "--gelu: 'relu' is not one of exact, tanh"},
           {2, "vpod plan mnist --ipus-per-replica 2",
            "model 'mnist' is split over 4 IPUs, but a replica has 2"},
           {2, "vpod plan vgg16 --classes 10", "model 'vgg16' takes no --classes"},
           {2, "vpod plan resnet50 --off-chip-accumulators",
            "--off-chip-accumulators needs --accumulation above 1"},
           {2, "vpod plan bert-tiny --sequence-length 0", "--sequence-length"},
           {2, "vpod plan resnet50 --json --csv", "--json and --csv cannot be given together"},
           {2, "vpod plan resnet50 --search --micro-batch 4",
            "--micro-batch and --search cannot be given together"},
           {2, "vpod plan resnet50 --global-batch 64", "--search"},
           {2, "vpod plan resnet50 --search --pod 16 --global-batch 8",
            "a global batch of 8 is too small for 16 IPUs"},
       })
    Expect(test);
}

}  // namespace
}  // namespace vpod
