#include "tests/security/witness.h"

#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::testing {
namespace {

constexpr uint64_t kMostGrowth = 1024;
constexpr uint64_t kLooksForEachBundle = 64;

template <class Message>
absl::StatusOr<uint64_t> SizeOf(const absl::StatusOr<std::vector<Message>>& list) {
  if (!list.ok()) return list.status();
  uint64_t bytes = 0;
  for (const Message& message : *list) bytes += message.ByteSizeLong();
  return bytes;
}

vipuadmin::ListEventsRequest NewestEvents() {
  vipuadmin::ListEventsRequest request;
  request.set_limit(1000);
  return request;
}

}  // namespace

Witness::Witness(SecurePod& pod, const std::string& user)
    : client_(ConfigOfNew(pod, user), std::chrono::seconds(20)) {
  const auto views = Views();
  const auto bundle = Bundle();
  EXPECT_TRUE(views.ok() && bundle.ok()) << views.status() << bundle.status();
  if (views.ok()) views_ = *views;
  first_bundle_ = bundle_ = bundle.value_or(0);
}

vipu::ClientConfig Witness::ConfigOfNew(SecurePod& pod, const std::string& name) {
  vipu::ClientConfig config = pod.ConfigOf("root");
  vipuadmin::User user;
  user.set_id(name);
  user.set_admin(true);
  const auto key = vipu::Client(config, std::chrono::seconds(20)).CreateUser(user);
  EXPECT_TRUE(key.ok()) << key.status();
  config.user_id = user.id();
  config.access_key = key.value_or("");
  return config;
}

absl::StatusOr<std::map<std::string, uint64_t>> Witness::Views() {
  std::map<std::string, uint64_t> views;
  VPOD_ASSIGN_OR_RETURN(views["list partitions"], SizeOf(client_.ListPartitions()));
  VPOD_ASSIGN_OR_RETURN(views["list events"], SizeOf(client_.ListEvents(NewestEvents())));
  const auto agent = client_.GetAgent("ag1");
  // The messages may have removed it.
  if (!agent.ok() && !absl::IsNotFound(agent.status())) return agent.status();
  views["get agent"] = agent.ok() ? agent->ByteSizeLong() : 0;
  return views;
}

absl::StatusOr<uint64_t> Witness::Bundle() {
  uint64_t all = 0;
  for (const absl::StatusOr<uint64_t>& size :
       {SizeOf(client_.ListAgents()), SizeOf(client_.ListClusters()),
        SizeOf(client_.ListAllAllocations()), SizeOf(client_.ListUsers()),
        SizeOf(client_.ListPartitions(/*with_devices=*/true)),
        SizeOf(client_.ListEvents(NewestEvents()))}) {
    VPOD_RETURN_IF_ERROR(size.status());
    all += *size;
  }
  return all;
}

::testing::AssertionResult Witness::Look() {
  ++looks_;
  const auto views = Views();
  if (!views.ok()) return ::testing::AssertionFailure() << views.status();
  for (const auto& [name, bytes] : *views) {
    // An agent that is there again is as long as it was.
    if (bytes > views_[name] + kMostGrowth && !(name == "get agent" && views_[name] == 0)) {
      return ::testing::AssertionFailure()
             << name << " has grown from " << views_[name] << " to " << bytes << " bytes";
    }
  }
  views_ = *views;
  if (looks_ % kLooksForEachBundle != 0) return ::testing::AssertionSuccess();
  const auto bundle = Bundle();
  if (!bundle.ok()) return ::testing::AssertionFailure() << bundle.status();
  bundle_ = *bundle;
  if (bundle_ <= first_bundle_ + looks_ * kMostGrowth) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "a support bundle has grown from " << first_bundle_ << " to " << bundle_ << " bytes in "
         << looks_ << " messages";
}

std::string Witness::Sizes() const {
  std::string text = absl::StrCat("a support bundle's lists: ", first_bundle_, " bytes before, ",
                                  bundle_, " after");
  for (const auto& [name, bytes] : views_) absl::StrAppend(&text, "; ", name, ": ", bytes);
  return text;
}

}  // namespace vpod::testing
