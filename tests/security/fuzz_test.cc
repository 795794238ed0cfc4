// Random and mutated messages against every call of the real daemons, behind TLS and with an
// administrator's key, so that they reach the handlers. The worst that happens is a refusal: the
// daemons live, answer, and hold no more memory and descriptors than before; and after each message
// another administrator reads what there is, which has hardly grown.
//   VPOD_FUZZ_MESSAGES  messages to each daemon (20000)
//   VPOD_FUZZ_SEED      other messages (2026); the script `fuzz` takes a random one
#include "tests/support/fuzz.h"

#include <google/protobuf/dynamic_message.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "device/base/grpc_connect.h"
#include "device/base/version.h"
#include "tests/security/secure_pod.h"
#include "tests/security/witness.h"
#include "tests/system/exhaustion.h"

namespace vpod::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 4;
// Growth in the second half, whatever the number of messages: arenas breathe, and the sanitizer
// keeps records of what it has seen.
#ifdef __SANITIZE_ADDRESS__
constexpr long kMaxKibGrowth = 64 << 10;
#else
constexpr long kMaxKibGrowth = 8 << 10;
#endif
constexpr long kMaxDescriptorGrowth = 16;

// Limits the freed memory that the sanitizer keeps, as it is not the daemons'.
void KeepLittleOfFreedMemory() {
  const char* options = std::getenv("ASAN_OPTIONS");
  if (options == nullptr) return;
  const std::string more =
      std::string(options) + ":quarantine_size_mb=8:thread_local_quarantine_size_kb=64";
  setenv("ASAN_OPTIONS", more.c_str(), 1);
}

// Values at the edges more often than others.
uint64_t AnyNumber(Random& random) {
  static const uint64_t edges[] = {0,   1,     2,          4,         63,        64,
                                   255, 65536, UINT32_MAX, INT64_MAX, UINT64_MAX};
  return random() % 4 == 0 ? random() : edges[random() % std::size(edges)];
}

// Names of things that are there, that are not, and of nothing.
std::string AnyText(const FieldDescriptor& field, Random& random) {
  if (field.name() == "allocation_id" && random() % 2 == 0) return "a1";
  if (field.name() == "version" && random() % 2 == 0) return base::kVersion;
  // Wherever a text is cut, every second place is inside a character.
  static const std::string umlauts = [] {
    std::string text = "x";
    while (text.size() < 5000) text += "ö";
    return text;
  }();
  static const std::string words[] = {"",
                                      "p1",
                                      "p2",
                                      "x",
                                      "127.10.0.1",
                                      "127.0.0.1:1",
                                      "torus",
                                      "ringswnc",
                                      "W_0",
                                      "../../etc",
                                      "a|b c",
                                      "%s%n",
                                      "\n",
                                      "\xc3\xa9",
                                      std::string(63, 'i'),
                                      umlauts,
                                      std::string(100000, 'l')};
  return words[random() % std::size(words)];
}

// An agent that is told to hang does not answer, as it should not: that is asked elsewhere.
int AnyChoice(const FieldDescriptor& field, Random& random) {
  const int choice = static_cast<int>(random() % 12);
  const auto* value = field.enum_type()->FindValueByNumber(choice);
  return value != nullptr && value->name() == "AGENT_HANG" ? 0 : choice;
}

void Fill(Message& message, Random& random, int depth);

void FillField(Message& message, const FieldDescriptor& field, Random& random, int depth) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
#define VPOD_SET(type, value)                                \
  repeated ? reflection.Add##type(&message, &field, (value)) \
           : reflection.Set##type(&message, &field, (value))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return VPOD_SET(Int32, static_cast<int32_t>(AnyNumber(random)));
    case FieldDescriptor::CPPTYPE_INT64:
      return VPOD_SET(Int64, static_cast<int64_t>(AnyNumber(random)));
    case FieldDescriptor::CPPTYPE_UINT32:
      return VPOD_SET(UInt32, static_cast<uint32_t>(AnyNumber(random)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return VPOD_SET(UInt64, AnyNumber(random));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return VPOD_SET(Double, static_cast<double>(AnyNumber(random)) * (random() % 2 ? 1 : -1e-9));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return VPOD_SET(Float, static_cast<float>(AnyNumber(random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return VPOD_SET(Bool, random() % 2 == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return VPOD_SET(EnumValue, AnyChoice(field, random));
    case FieldDescriptor::CPPTYPE_STRING:
      return VPOD_SET(String, AnyText(field, random));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Fill(repeated ? *reflection.AddMessage(&message, &field)
                           : *reflection.MutableMessage(&message, &field),
                  random, depth + 1);
  }
#undef VPOD_SET
}

void Fill(Message& message, Random& random, int depth) {
  if (depth > kMaxDepth) return;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (random() % 3 == 0) continue;
    const uint64_t count = field.is_repeated() ? random() % 4 : 1;
    for (uint64_t n = 0; n < count; ++n) FillField(message, field, random, depth);
  }
  // What no daemon knows, and none may keep.
  if (random() % 8 == 0) {
    message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(
        1000, std::string(50000, 'u'));
  }
}

std::unique_ptr<Message> NewRequest(const MethodDescriptor& method) {
  static google::protobuf::DynamicMessageFactory factory;
  return std::unique_ptr<Message>(factory.GetPrototype(method.input_type())->New());
}

// Returns `bytes` as the daemon reads them.
std::string TextOf(const MethodDescriptor& method, const std::string& bytes) {
  const std::unique_ptr<Message> message = NewRequest(method);
  return message->ParseFromString(bytes) ? message->ShortDebugString() : "no message";
}

std::string AnyBytes(const MethodDescriptor& method, Random& random) {
  if (random() % 8 == 0) {
    std::string bytes(random() % 512, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }
  const std::unique_ptr<Message> message = NewRequest(method);
  Fill(*message, random, 0);
  std::string bytes = message->SerializePartialAsString();
  if (random() % 2 == 0) {
    MutateBytes(bytes, random);
    if (TextOf(method, bytes).find("AGENT_HANG") != std::string::npos) bytes.clear();
  }
  return bytes;
}

// A daemon, how it is reached, who looks on, and what it held after the first half of its messages.
struct Target {
  const char* name;
  std::shared_ptr<grpc::Channel> channel;
  std::vector<const MethodDescriptor*> methods;
  int pid;
  Witness* witness;
  Footprint warm = {};
};

// Whether the daemon took the message as it should.
::testing::AssertionResult Survived(const Target& target, const grpc::Status& status) {
  if (kill(target.pid, 0) != 0) return ::testing::AssertionFailure() << "it has ended";
  // An agent itself says so of a peer that was made up.
  const bool of_a_peer = status.error_message().find("does not answer") != std::string::npos;
  if (status.error_code() == grpc::UNAVAILABLE && !of_a_peer)
    return ::testing::AssertionFailure() << status.error_message();
  // The client then ends the connection, with whatever else goes on there.
  if (status.error_message().find("metadata size exceeds") != std::string::npos)
    return ::testing::AssertionFailure() << "its answer is too long: " << status.error_message();
  if (status.error_code() == grpc::DEADLINE_EXCEEDED)
    return ::testing::AssertionFailure() << "it does not answer";
  return ::testing::AssertionSuccess();
}

void Bombard(SecurePod& pod, Target& target, const std::map<std::string, std::string>& root,
             uint64_t messages, uint64_t seed) {
  Random random(seed);
  for (uint64_t sent = 0; sent < messages; ++sent) {
    if (sent == messages / 2) target.warm = FootprintOf(target.pid);
    const MethodDescriptor& method = *target.methods[random() % target.methods.size()];
    const std::string bytes = AnyBytes(method, random);
    const grpc::Status status = CallRaw(*target.channel, method, bytes, root);
    ASSERT_TRUE(Survived(target, status))
        << target.name << ", message " << sent << ", " << method.full_name() << " of "
        << TextOf(method, bytes).substr(0, 2000) << "\n"
        << pod.LastWords();
    ASSERT_TRUE(target.witness->Look())
        << target.name << ", message " << sent << ", " << method.full_name() << " of "
        << TextOf(method, bytes).substr(0, 2000);
  }
}

TEST(FuzzTest, DaemonsOutliveWhateverIsSent) {
  const uint64_t messages = NumberFrom("VPOD_FUZZ_MESSAGES", 20000);
  const uint64_t seed = NumberFrom("VPOD_FUZZ_SEED", 2026);
  std::fprintf(stderr, "VPOD_FUZZ_SEED=%lu VPOD_FUZZ_MESSAGES=%lu\n", seed, messages);
  KeepLittleOfFreedMemory();
  SecurePod pod({"--log-level", "error"});
  ASSERT_TRUE(pod.ready());
  // The certificate of a daemon opens every call of an agent, the key all those of the controller.
  const base::Tls tls = pod.Certificates("server");
  const std::map<std::string, std::string> root = {{"vipu-user-id", "root"},
                                                   {"vipu-access-key", pod.key("root")}};
  Witness at_server(pod, "warden"), at_agent(pod, "ranger");
  Target targets[] = {{"vipu-server", base::Connect(pod.server(), base::Peer::kController, tls),
                       ControllerMethods(), pod.server_pid(), &at_server},
                      {"vipu-agent", base::Connect(pod.agent(), base::Peer::kAgent, tls),
                       AgentMethods(), pod.agent_pid(), &at_agent}};
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> senders;
  for (Target& target : targets)
    senders.emplace_back([&] { Bombard(pod, target, root, messages, seed); });
  for (std::thread& sender : senders) sender.join();
  ASSERT_FALSE(HasFatalFailure());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr, "%.0f messages/s\n",
               static_cast<double>(messages * std::size(targets)) / took.count());
  for (const Target& target : targets) {
    const Footprint after = FootprintOf(target.pid);
    std::fprintf(
        stderr,
        "%s: %ld KiB and %ld descriptors after half of its messages, %ld KiB and %ld after "
        "all\n",
        target.name, target.warm.memory_kib, target.warm.descriptors, after.memory_kib,
        after.descriptors);
    std::fprintf(stderr, "%s: %s\n", target.name, target.witness->Sizes().c_str());
    EXPECT_LT(after.memory_kib, target.warm.memory_kib + kMaxKibGrowth) << target.name;
    EXPECT_LT(after.descriptors, target.warm.descriptors + kMaxDescriptorGrowth) << target.name;
  }
  pod.EnsurePartition();  // and the POD still does its work
}

}  // namespace
}  // namespace vpod::testing
