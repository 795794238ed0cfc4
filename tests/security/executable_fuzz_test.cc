// Mutated executables against everything that an agent does with them: parsing, validation,
// prices, memory, preparation of kernels, and, if they are small, runs. Whatever the bytes, the
// worst that happens is a refusal or a run that fails.
//   VPOD_FUZZ_EXECUTABLES  their number (20000)
//   VPOD_FUZZ_SEED         other mutations (2026)
// The script `fuzz` makes a million of them under the address sanitizer.
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <thread>

#include "device/engine/engine.h"
#include "device/model/cost.h"
#include "device/program/op.h"
#include "tests/security/executable_seeds.h"

namespace vpod::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::mt19937_64;
namespace v1 = program::v1;

constexpr uint64_t kMemoryBudget = 64 << 20;
// Elements and operations of a run, all replicas together: it takes milliseconds.
constexpr double kMostWork = 2e6;
constexpr std::chrono::seconds kPatience(120);

uint64_t NumberFrom(const char* variable, uint64_t absent) {
  const char* text = std::getenv(variable);
  return text == nullptr ? absent : std::strtoull(text, nullptr, 10);
}

// --- Mutations ---

// A field that a message has, or may have.
struct Spot {
  Message* message;
  const FieldDescriptor* field;
  int index = -1;  // of a repeated one
};

// Fields of a message and of those below. Absent single fields are there too.
void FindSpots(Message& message, std::vector<Spot>& spots) {
  const Reflection& reflection = *message.GetReflection();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* field = message.GetDescriptor()->field(f);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        spots.push_back({&message, field, i});
        if (is_message) FindSpots(*reflection.MutableRepeatedMessage(&message, field, i), spots);
      }
    } else if (!is_message) {
      const bool other_case = field->real_containing_oneof() != nullptr;
      if (!other_case || reflection.HasField(message, field)) spots.push_back({&message, field});
    } else if (reflection.HasField(message, field)) {
      spots.push_back({&message, field});
      FindSpots(*reflection.MutableMessage(&message, field), spots);
    }
  }
}

// The value of a number as all kinds of number can hold it; 0 of others.
double NumberAt(const Spot& spot) {
  const Reflection& reflection = *spot.message->GetReflection();
#define VPOD_GET(type)                                              \
  (spot.index < 0 ? reflection.Get##type(*spot.message, spot.field) \
                  : reflection.GetRepeated##type(*spot.message, spot.field, spot.index))
  switch (spot.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return VPOD_GET(Int32);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(VPOD_GET(Int64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return VPOD_GET(UInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(VPOD_GET(UInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return VPOD_GET(Double);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return static_cast<double>(VPOD_GET(Float));
    case FieldDescriptor::CPPTYPE_ENUM:
      return VPOD_GET(EnumValue);
    default:
      return 0;
  }
#undef VPOD_GET
}

template <class T>
T Cut(double value) {
  if (!(value > static_cast<double>(std::numeric_limits<T>::min())))
    return std::numeric_limits<T>::min();
  if (value >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

// Near the old value or that of another field more often than at an edge.
double AnyNumber(const Spot& spot, const std::vector<Spot>& spots, Random& random) {
  static const double edges[] = {0,   1,    2,     3,          8,   63,  64, 65, 127,  128, 255,
                                 256, 1023, 65535, 2147483647, 4e9, 1e9, -1, -2, 1e19, 0.5, 1e-30};
  static const double floats[] = {std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(),
                                  1e38,
                                  -1e38,
                                  -0.0};
  const bool is_float = spot.field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT ||
                        spot.field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  switch (random() % 8) {
    case 0:
      return NumberAt(spot) + 1;
    case 1:
      return NumberAt(spot) - 1;
    case 2:
      return NumberAt(spot) * 2;
    case 3:
      return static_cast<double>(random() % 16);
    case 4:
    case 5:
      return NumberAt(spots[random() % spots.size()]);
    default:
      if (is_float && random() % 2 == 0) return floats[random() % std::size(floats)];
      return edges[random() % std::size(edges)];
  }
}

void SetNumber(const Spot& spot, double value, Random& random) {
  const Reflection& reflection = *spot.message->GetReflection();
#define VPOD_SET(type, number)                                             \
  (spot.index < 0 ? reflection.Set##type(spot.message, spot.field, number) \
                  : reflection.SetRepeated##type(spot.message, spot.field, spot.index, number))
  switch (spot.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return VPOD_SET(Int32, Cut<int32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return VPOD_SET(Int64, Cut<int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return VPOD_SET(UInt32, Cut<uint32_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return VPOD_SET(UInt64, Cut<uint64_t>(value));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return VPOD_SET(Double, value);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return VPOD_SET(Float, std::abs(value) > 3e38 ? std::numeric_limits<float>::infinity()
                                                    : static_cast<float>(value));
    case FieldDescriptor::CPPTYPE_ENUM:
      return VPOD_SET(EnumValue, static_cast<int>(random() % 40));
    case FieldDescriptor::CPPTYPE_BOOL:
      return VPOD_SET(Bool, random() % 2 == 0);
    default:
      return;
  }
#undef VPOD_SET
}

// Another message of the same type, from here or from another executable.
void ReplaceMessage(const Spot& spot, const std::vector<Spot>& donors, Random& random) {
  const auto at = [](const Spot& place) {
    const Reflection& reflection = *place.message->GetReflection();
    return place.index < 0
               ? reflection.MutableMessage(place.message, place.field)
               : reflection.MutableRepeatedMessage(place.message, place.field, place.index);
  };
  for (int tries = 0; tries < 20; ++tries) {
    const Spot& donor = donors[random() % donors.size()];
    if (donor.field->message_type() != spot.field->message_type()) continue;
    const std::unique_ptr<Message> copy(at(donor)->New());
    copy->CopyFrom(*at(donor));  // it may lie inside the other
    auto* instruction = dynamic_cast<v1::Instruction*>(copy.get());
    if (instruction != nullptr && random() % 2 == 0) {
      // Another op on the same operands.
      const auto& old = dynamic_cast<const v1::Instruction&>(*at(spot));
      *instruction->mutable_inputs() = old.inputs();
      *instruction->mutable_outputs() = old.outputs();
    }
    at(spot)->CopyFrom(*copy);
    return;
  }
}

// One more element of a repeated field, one less, or two in each other's place.
void Rearrange(const Spot& spot, const std::vector<Spot>& spots, Random& random) {
  Message& message = *spot.message;
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, spot.field);
  switch (random() % 3) {
    case 0:
      return reflection.RemoveLast(&message, spot.field);
    case 1:
      return reflection.SwapElements(&message, spot.field, spot.index,
                                     static_cast<int>(random() % static_cast<uint64_t>(size)));
    default:
      break;
  }
  if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const std::unique_ptr<Message> copy(
        reflection.GetRepeatedMessage(message, spot.field, spot.index).New());
    copy->CopyFrom(reflection.GetRepeatedMessage(message, spot.field, spot.index));
    reflection.AddMessage(&message, spot.field)->CopyFrom(*copy);
  } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    reflection.AddUInt32(&message, spot.field,
                         Cut<uint32_t>(NumberAt(spots[random() % spots.size()])));
  } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    reflection.AddInt64(&message, spot.field,
                        Cut<int64_t>(NumberAt(spots[random() % spots.size()])));
  }
}

void MutateField(v1::Executable& executable, v1::Executable& donor, Random& random) {
  std::vector<Spot> spots, others;
  FindSpots(executable, spots);
  if (spots.empty()) return;
  const Spot& spot = spots[random() % spots.size()];
  if (spot.index >= 0 && random() % 4 == 0) return Rearrange(spot, spots, random);
  if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    FindSpots(donor, others);
    std::erase_if(others, [](const Spot& each) {
      return each.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
    });
    if (!others.empty()) ReplaceMessage(spot, others, random);
  } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    static const std::string words[] = {"", "v0", "main", "data", std::string(100, 'l')};
    if (spot.index < 0) {
      spot.message->GetReflection()->SetString(spot.message, spot.field,
                                               words[random() % std::size(words)]);
    }
  } else {
    SetNumber(spot, AnyNumber(spot, spots, random), random);
  }
}

void MutateBytes(std::string& bytes, Random& random) {
  for (uint64_t rounds = 1 + random() % 4; rounds > 0 && !bytes.empty(); --rounds) {
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.insert(at, std::string(random() % 16, static_cast<char>(random())));
        break;
      case 2:
        bytes += bytes.substr(at, random() % 64);
        break;
      default:
        bytes[at] = static_cast<char>(random());
    }
  }
}

// --- What an agent does ---

// Elements and operations of a run of a program, of one replica.
double WorkOf(const v1::Executable& text, uint32_t program) {
  double work = 0;
  for (int ipu = 0; ipu < text.ipus_size(); ++ipu) {
    const auto& tensors = text.ipus(ipu).tensors();
    const auto types = [&](const auto& indices) {
      program::Types result;
      for (uint32_t index : indices)
        result.push_back(program::TypeOf(tensors[static_cast<int>(index)]));
      return result;
    };
    program::ForEachInstruction(
        text.ipus(ipu), text.programs(static_cast<int>(program)).functions(ipu),
        [&](const v1::Instruction& instruction, uint64_t times) {
          const program::Types inputs = types(instruction.inputs()),
                               outputs = types(instruction.outputs());
          double most = 100;  // an instruction by itself
          for (const auto* operands : {&inputs, &outputs}) {
            for (const auto& type : *operands)
              most = std::max(most, static_cast<double>(type.elements()));
          }
          const auto operations = program::FindOp(instruction.attributes_case())->operations;
          if (operations != nullptr)
            most = std::max(most, operations(instruction, inputs, outputs));
          work += most * static_cast<double>(times);
        });
  }
  return work;
}

// How far the executables came.
struct Tally {
  uint64_t valid = 0, loaded = 0, runs = 0, failed_runs = 0;
};

class Agent {
 public:
  // False if a run does not end.
  bool Load(const std::string& bytes, const std::string& origins, Random& random, Tally& tally) {
    const auto executable = program::Executable::Parse(bytes, {}, origins);
    if (!executable.ok()) {
      EXPECT_EQ(executable.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_LT(executable.status().message().size(), 4000u);
      return true;
    }
    ++tally.valid;
    // The end of a run may still hold the engine before, and its memory.
    while (!last_engine_.expired()) std::this_thread::yield();
    const uint32_t ipus = (*executable)->ipus_per_replica();
    auto job = std::make_shared<fabric::Job>("job", fabric::JobShape{1, kReplicas, ipus});
    fabric::JobMember member;
    member.local_replicas = kReplicas;
    EXPECT_TRUE(job->Join(job->shape(), std::move(member)).ok());
    const auto engine = engine::Engine::Create(*executable, {.executors = &executors_,
                                                             .budget = &budget_,
                                                             .job = job,
                                                             .local_replicas = kReplicas,
                                                             .check_finite = random() % 8 == 0});
    if (!engine.ok()) return true;
    ++tally.loaded;
    last_engine_ = *engine;
    job->Loaded(0, 0, (*executable)->hash());
    streams_.assign((*engine)->layout().TotalBytes() + 64, std::byte{});
    for (std::byte& byte : streams_) byte = static_cast<std::byte>(random() % 4);
    for (uint32_t p = 0; p < static_cast<uint32_t>((*executable)->proto().programs_size()); ++p) {
      if (kReplicas * WorkOf((*executable)->proto(), p) > kMostWork) continue;
      ++tally.runs;
      const auto status = Run(**engine, p);
      if (!status.has_value()) return false;
      if (!status->ok()) ++tally.failed_runs;
    }
    return true;
  }

 private:
  std::optional<absl::Status> Run(engine::Engine& engine, uint32_t program) {
    struct Outcome {
      base::Mutex mutex;
      std::condition_variable changed;
      std::optional<absl::Status> status;
    };
    const auto outcome = std::make_shared<Outcome>();
    const auto address = reinterpret_cast<uintptr_t>(streams_.data());
    engine.Run(program, streams_.data() + (64 - address % 64) % 64,
               [outcome](const absl::StatusOr<engine::RunResult>& result) {
                 base::MutexLock lock(outcome->mutex);
                 outcome->status = result.status();
                 outcome->changed.notify_all();
               });
    base::MutexLock lock(outcome->mutex);
    lock.WaitUntil(outcome->changed, std::chrono::steady_clock::now() + kPatience,
                   [&] { return outcome->status.has_value(); });
    return outcome->status;
  }

  engine::MemoryBudget budget_{kMemoryBudget};
  std::weak_ptr<engine::Engine> last_engine_;
  std::vector<std::byte> streams_;
  engine::Executors executors_{2};
};

// --- Tests ---

TEST(ExecutableFuzzTest, TheSeedsAreValidAndRun) {
  Agent agent;
  Random random(1);
  for (const v1::Executable& seed : ExecutableSeeds()) {
    const auto valid = program::Executable::Make(seed);
    ASSERT_TRUE(valid.ok()) << valid.status() << "\n" << seed.DebugString();
    Tally tally;
    EXPECT_TRUE(agent.Load(program::Serialize(seed), "", random, tally));
    EXPECT_EQ(tally.loaded, 1u) << seed.DebugString();
  }
}

TEST(ExecutableFuzzTest, AgentsOutliveWhateverIsLoaded) {
  const uint64_t count = NumberFrom("VPOD_FUZZ_EXECUTABLES", 20000);
  const uint64_t seed = NumberFrom("VPOD_FUZZ_SEED", 2026);
  std::fprintf(stderr, "VPOD_FUZZ_SEED=%lu VPOD_FUZZ_EXECUTABLES=%lu\n", seed, count);
  const std::vector<v1::Executable> seeds = ExecutableSeeds();
  Random random(seed);
  Agent agent;
  Tally tally;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count; ++i) {
    // The last ones, which are large, less often.
    const size_t choices = random() % 4 == 0 ? seeds.size() : seeds.size() - 3;
    v1::Executable executable = seeds[random() % choices], donor = seeds[random() % choices];
    for (uint64_t rounds = 1 + random() % 3; rounds > 0; --rounds)
      MutateField(executable, donor, random);
    std::string bytes = program::Serialize(executable), origins;
    if (random() % 8 == 0) MutateBytes(bytes, random);
    if (random() % 8 == 0) {
      v1::Origins table;
      table.add_origins()->set_scope("layer");
      for (const v1::Ipu& ipu : executable.ipus()) {
        v1::IpuOrigins& names = *table.add_ipus();
        for (const v1::Function& function : ipu.functions()) {
          auto& instructions = *names.add_functions()->mutable_instructions();
          instructions.Resize(function.instructions_size(), 1);
        }
      }
      origins = table.SerializeAsString();
      if (random() % 2 == 0) MutateBytes(origins, random);
    }
    ASSERT_TRUE(agent.Load(bytes, origins, random, tally))
        << "a run does not end: executable " << i << "\n"
        << executable.DebugString();
    if (HasFailure()) FAIL() << "executable " << i << "\n" << executable.DebugString();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr,
               "%lu executables in %.0f s: %lu valid, %lu loaded, %lu runs, of which %lu failed\n",
               count, took.count(), tally.valid, tally.loaded, tally.runs, tally.failed_runs);
  // The mutations must leave something to be run.
  EXPECT_GT(tally.runs * 50, count);
}

}  // namespace
}  // namespace vpod::testing
