// Clients that speak IPUoF but mean no good: truncated, bit-flipped and random executables,
// messages of noise, random calls. The worst that happens is a named refusal.
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "device/program/executable.h"
#include "tests/system/hostile_client.h"

namespace vpod::testing {
namespace {

using Random = std::mt19937_64;

constexpr uint64_t kSeed = 20240607;

TEST_F(HostileClientTest, TruncatedExecutablesAreRefused) {
  const auto client = Attached();
  const std::string& good = example_;
  for (size_t bytes = 0; bytes < good.size(); bytes += 1 + good.size() / 150) {
    const grpc::Status status = client->Load(good.substr(0, bytes));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << bytes << " bytes: " << Text(status);
    EXPECT_FALSE(status.error_message().empty());
  }
}

// Loads a spoilt executable; when the agent takes it, it must also run or refuse it.
void LoadAndRun(RawClient& client, const std::string& bytes, uint64_t seed, int* accepted) {
  const grpc::Status loaded = client.Load(bytes);
  if (!loaded.ok()) {
    EXPECT_TRUE(IsNamedRefusal(loaded)) << "seed " << seed << ": " << Text(loaded);
    return;
  }
  ++*accepted;
  const grpc::Status ran = client.Run(0, 0, std::chrono::milliseconds(500));
  EXPECT_TRUE(ran.ok() || IsNamedRefusal(ran) ||
              ran.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
      << "seed " << seed << ": " << Text(ran);
}

TEST_F(HostileClientTest, FlippedBitsAreRefusedOrRun) {
  int accepted = 0;
  for (uint64_t seed = kSeed; seed < kSeed + 300; ++seed) {
    Random random(seed);
    std::string bytes = example_;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const auto client = Attached();
    LoadAndRun(*client, bytes, seed, &accepted);
  }
  std::printf("%d of 300 executables with flipped bits were accepted\n", accepted);
}

TEST_F(HostileClientTest, NoiseIsRefused) {
  const auto client = Attached();
  for (uint64_t seed = kSeed; seed < kSeed + 150; ++seed) {
    Random random(seed);
    std::string bytes(random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Half of them begin as an executable does.
    if (seed % 2 == 0) bytes = example_.substr(0, 8) + bytes;
    const grpc::Status status = client->Load(bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << "seed " << seed << ": " << Text(status);
  }
}

// Changes one field of a message, or of one of its parts.
class FieldChanger {
 public:
  explicit FieldChanger(Random& random) : random_(random) {}

  void Change(google::protobuf::Message& message) {
    // Down to a random part, then any of its fields.
    google::protobuf::Message* part = &message;
    while (random_() % 8 != 0) {
      std::vector<google::protobuf::Message*> parts = Parts(*part);
      if (parts.empty()) break;
      part = parts[random_() % parts.size()];
    }
    const auto* descriptor = part->GetDescriptor();
    if (descriptor->field_count() == 0) return;  // as of an op without attributes
    ChangeField(*part, *descriptor->field(static_cast<int>(random_() % descriptor->field_count())));
  }

 private:
  using Field = google::protobuf::FieldDescriptor;

  static std::vector<google::protobuf::Message*> Parts(google::protobuf::Message& message) {
    std::vector<google::protobuf::Message*> parts;
    std::vector<const Field*> fields;
    const auto* reflection = message.GetReflection();
    reflection->ListFields(message, &fields);
    for (const Field* field : fields) {
      if (field->cpp_type() != Field::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) {
        parts.push_back(reflection->MutableMessage(&message, field));
        continue;
      }
      for (int i = 0; i < reflection->FieldSize(message, field); ++i)
        parts.push_back(reflection->MutableRepeatedMessage(&message, field, i));
    }
    return parts;
  }

  uint64_t Number() {
    switch (random_() % 6) {
      case 0:
        return 0;
      case 1:
        return random_() % 8;
      case 2:
        return 64 * (random_() % 64);
      case 3:
        return uint64_t{1} << random_() % 64;
      case 4:
        return UINT64_MAX - random_() % 3;
      default:
        return random_();
    }
  }

  void ChangeField(google::protobuf::Message& message, const Field& field) {
    const auto* reflection = message.GetReflection();
    if (field.is_repeated()) {
      const int size = reflection->FieldSize(message, &field);
      switch (random_() % 5) {
        case 0:
          reflection->ClearField(&message, &field);
          return;
        case 1:
          if (size > 0) reflection->RemoveLast(&message, &field);
          return;
        case 2:
          if (size > 1) {
            reflection->SwapElements(&message, &field, static_cast<int>(random_() % size),
                                     static_cast<int>(random_() % size));
          }
          return;
        case 3:
          if (size > 0) SetElement(message, field, static_cast<int>(random_() % size));
          return;
        default:
          Add(message, field);
          return;
      }
    }
    const uint64_t number = Number();
    switch (field.cpp_type()) {
      case Field::CPPTYPE_UINT32:
        reflection->SetUInt32(&message, &field, static_cast<uint32_t>(number));
        break;
      case Field::CPPTYPE_UINT64:
        reflection->SetUInt64(&message, &field, number);
        break;
      case Field::CPPTYPE_INT64:
        reflection->SetInt64(&message, &field, static_cast<int64_t>(number));
        break;
      case Field::CPPTYPE_BOOL:
        reflection->SetBool(&message, &field, number % 2 == 0);
        break;
      case Field::CPPTYPE_DOUBLE:
        reflection->SetDouble(&message, &field, Real(number));
        break;
      case Field::CPPTYPE_FLOAT:
        reflection->SetFloat(&message, &field, static_cast<float>(Real(number)));
        break;
      case Field::CPPTYPE_ENUM:
        reflection->SetEnumValue(&message, &field, static_cast<int>(number % 24));
        break;
      case Field::CPPTYPE_STRING:
        reflection->SetString(&message, &field, std::string(number % 70, 'n'));
        break;
      case Field::CPPTYPE_MESSAGE:
        reflection->MutableMessage(&message, &field);
        break;
      default:
        break;
    }
  }

  // Operands are elements: they must go wrong while their number stays right.
  void SetElement(google::protobuf::Message& message, const Field& field, int index) {
    const auto* reflection = message.GetReflection();
    if (field.cpp_type() == Field::CPPTYPE_UINT32) {
      reflection->SetRepeatedUInt32(&message, &field, index, static_cast<uint32_t>(Number()));
    } else if (field.cpp_type() == Field::CPPTYPE_INT64) {
      reflection->SetRepeatedInt64(&message, &field, index, static_cast<int64_t>(Number()));
    }
  }

  void Add(google::protobuf::Message& message, const Field& field) {
    const auto* reflection = message.GetReflection();
    const int size = reflection->FieldSize(message, &field);
    switch (field.cpp_type()) {
      case Field::CPPTYPE_UINT32:
        reflection->AddUInt32(&message, &field, static_cast<uint32_t>(Number()));
        break;
      case Field::CPPTYPE_INT64:
        reflection->AddInt64(&message, &field, static_cast<int64_t>(Number()));
        break;
      case Field::CPPTYPE_MESSAGE: {
        google::protobuf::Message* added = reflection->AddMessage(&message, &field);
        if (size > 0) {
          added->CopyFrom(
              reflection->GetRepeatedMessage(message, &field, static_cast<int>(random_() % size)));
        }
        break;
      }
      default:
        break;
    }
  }

  static double Real(uint64_t number) {
    double value;
    std::memcpy(&value, &number, sizeof(value));
    return value;
  }

  Random& random_;
};

TEST_F(HostileClientTest, ChangedFieldsAreRefusedOrRun) {
  program::v1::Executable good;
  ASSERT_TRUE(good.ParseFromString(example_.substr(8)));
  int accepted = 0;
  for (uint64_t seed = kSeed; seed < kSeed + 500; ++seed) {
    Random random(seed);
    program::v1::Executable changed = good;
    FieldChanger changer(random);
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) changer.Change(changed);
    const auto client = Attached();
    LoadAndRun(*client, program::Serialize(changed), seed, &accepted);
  }
  std::printf("%d of 500 changed executables were accepted\n", accepted);
}

TEST_F(HostileClientTest, MessagesOfNoiseAreRefused) {
  RawClient client(endpoint_);
  for (uint64_t seed = kSeed; seed < kSeed + 200; ++seed) {
    Random random(seed);
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const char* methods[] = {"Attach",      "Load",        "Run",        "WriteStream",
                             "ReadStream",  "WriteTensor", "ReadTensor", "GetCounters",
                             "ResetDevice", "NoSuchCall"};
    const char* method = methods[seed % std::size(methods)];
    const grpc::Status status = client.SendRaw(method, bytes);
    EXPECT_FALSE(status.ok()) << method << ", seed " << seed;
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << method << ", seed " << seed;
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
        << method << ", seed " << seed;
  }
}

TEST_F(HostileClientTest, RandomCallsOnALeaseAreAnsweredOrRefused) {
  for (uint64_t seed = kSeed; seed < kSeed + 20; ++seed) {
    Random random(seed);
    const auto client = random() % 4 == 0 ? Attached() : Loaded();
    const auto number = [&]() -> uint64_t {
      return random() % 3 == 0 ? random() : random() % 3 == 0 ? random() % 3 : random() % 2000;
    };
    for (int call = 0; call < 40; ++call) {
      const std::string data(number() % 4000, static_cast<char>(random()));
      const std::string name = random() % 2 == 0 ? "w" : std::string(number() % 40, 'v');
      const auto replica = static_cast<uint32_t>(number()), slot = static_cast<uint32_t>(number());
      grpc::Status status;
      switch (random() % 7) {
        case 0:
          status = client->Run(static_cast<uint32_t>(number()) % 3, slot % 3);
          break;
        case 1:
          status = client->WriteStream(slot % 3, number(), data);
          break;
        case 2:
          status = client->ReadStream(slot, number(), number());
          break;
        case 3:
          status = client->WriteTensor(name, data, random() % 2 == 0, replica);
          break;
        case 4:
          status = client->ReadTensor(name, replica);
          break;
        case 5:
          status = client->Counters();
          break;
        default:
          status = client->Load(random() % 2 == 0 ? example_ : data, {});
          break;
      }
      EXPECT_TRUE(status.ok() || IsNamedRefusal(status)) << "seed " << seed << ": " << Text(status);
    }
  }
}

}  // namespace
}  // namespace vpod::testing
