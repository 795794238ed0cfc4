#include "client/vipu/ipuof_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <utility>

namespace vpod::vipu {
namespace {

vipuuser::PartitionConfig Config(const std::string& id, uint32_t gcd = 0, uint32_t gcds = 1) {
  vipuuser::PartitionConfig config;
  for (uint32_t i = 0; i < 2; ++i) {
    vipuuser::IpuofDevice* device = config.add_devices();
    device->set_ip("10.1.5.10");
    device->set_server_port(11003 - i);
    device->set_rdma_port(11103 - i);
    device->set_agent_id("ag0");
    device->set_ild(1);
    device->set_routing_id(i);
    device->set_pcie_id(3 - i);
    device->set_endpoint("127.0.0.1:4000");
  }
  auto& attributes = *config.mutable_attributes();
  attributes["GCD Id"] = std::to_string(gcd);
  attributes["Partition Id"] = id;
  attributes["Number of GCDs"] = std::to_string(gcds);
  attributes["Partition generation"] = "17";
  attributes["Note"] = "\"quoted\" \\ ü \n";
  config.set_fabric_key("5e1a");
  return config;
}

std::string ParseError(const std::string& text) {
  const auto config = ParseIpuofJson(text);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(config.status().message());
}

TEST(IpuofJson, ComesBackAsItWas) {
  const vipuuser::PartitionConfig config = Config("pt4");
  const auto parsed = ParseIpuofJson(IpuofJson(config));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->DebugString(), config.DebugString());
}

TEST(IpuofJson, HasThePublishedShape) {
  const auto json = nlohmann::json::parse(IpuofJson(Config("pt4")));
  EXPECT_EQ(json.at("attributes").at("GCD Id"), "0");
  ASSERT_EQ(json.at("devices").size(), 2u);
  EXPECT_EQ(json["devices"][0].at("ip"), "10.1.5.10");
  EXPECT_EQ(json["devices"][0].at("server_port"), 11003);
  EXPECT_EQ(json["devices"][0].at("rdma_port"), 11103);
  EXPECT_EQ(json.at("fabric_key"), "5e1a");
}

TEST(IpuofJson, NamesEachDeviceByItsPcieId) {
  const auto json = nlohmann::json::parse(IpuofJson(Config("pt4")));
  EXPECT_EQ(json["devices"][0].at("device_id"), 3);
  EXPECT_EQ(json["devices"][1].at("device_id"), 2);
}

// A device says all that is needed to use it.
TEST(IpuofJson, DevicesAloneAreAConfiguration) {
  const vipuuser::PartitionConfig config = Config("pt4", 1, 2);
  const auto json = nlohmann::json::parse(IpuofJson(config));
  for (const nlohmann::json& cut :
       {json["devices"], nlohmann::json({{"devices", json["devices"]}}),
        nlohmann::json({{"devices", json["devices"]}, {"attributes", json["attributes"]}})}) {
    const auto parsed = ParseIpuofJson(cut.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->fabric_key(), "5e1a");
    for (const char* name : {"Partition Id", "GCD Id", "Number of GCDs", "Partition generation"})
      EXPECT_EQ(Attribute(*parsed, name), Attribute(config, name));
    EXPECT_EQ(Attribute(*parsed, kGcdIpus), "");
  }
}

TEST(IpuofJson, SomeDevicesKnowTheSizeOfTheirGcd) {
  auto json = nlohmann::json::parse(IpuofJson(Config("pt4")));
  json["devices"].erase(0);
  const auto parsed = ParseIpuofJson(json.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Attribute(*parsed, kGcdIpus), "2");
  ASSERT_EQ(parsed->devices_size(), 1);
  EXPECT_EQ(parsed->devices(0).routing_id(), 1u);
  EXPECT_EQ(ParseIpuofJson(IpuofJson(*parsed))->DebugString(), parsed->DebugString());
}

TEST(IpuofJson, DevicesAreSortedByTheirPositionAndEachIsThereOnce) {
  auto json = nlohmann::json::parse(IpuofJson(Config("pt4")));
  std::swap(json["devices"][0], json["devices"][1]);
  EXPECT_EQ(ParseIpuofJson(json.dump())->DebugString(), Config("pt4").DebugString());
  json["devices"][0] = json["devices"][1];
  EXPECT_EQ(ParseError(json.dump()), "two devices have the routing_id 0");
}

TEST(IpuofJson, DevicesOfTwoPartitionsAreRefused) {
  auto json = nlohmann::json::parse(IpuofJson(Config("p1")));
  json["devices"].push_back(nlohmann::json::parse(IpuofJson(Config("p2")))["devices"][0]);
  EXPECT_EQ(ParseError(json["devices"].dump()),
            "devices of different partitions: Partition Id p1 and p2");
}

TEST(IpuofJson, DeviceIdStandsInForPcieId) {
  const auto config = ParseIpuofJson(R"([{"ip": "10.1.5.10", "device_id": 2}])");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices(0).pcie_id(), 2u);
}

TEST(IpuofJson, WithoutAKeyNoDeviceHasOne) {
  vipuuser::PartitionConfig config = Config("pt4");
  config.clear_fabric_key();
  EXPECT_EQ(IpuofJson(config).find("key"), std::string::npos);
}

TEST(IpuofJson, OlderArrayOfDevicesIsRead) {
  const auto config =
      ParseIpuofJson(R"([{"ip": "10.1.5.10", "server_port": 11003, "rdma_port": 11103}])");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->devices_size(), 1);
  EXPECT_EQ(config->devices(0).server_port(), 11003u);
  EXPECT_TRUE(config->attributes().empty());
}

TEST(IpuofJson, UnknownKeysAreIgnored) {
  EXPECT_TRUE(ParseIpuofJson(R"({"devices": [{"ip": "h", "speed": [1]}], "version": 3,
                                 "attributes": {"GCD Id": 1}})")
                  .ok());
}

TEST(IpuofJson, MalformedTextIsRefusedByName) {
  EXPECT_EQ(ParseError(""), "not an IPUoF configuration: malformed JSON");
  EXPECT_EQ(ParseError("{"), "not an IPUoF configuration: malformed JSON");
  EXPECT_EQ(ParseError("{}"), "not an IPUoF configuration: no \"devices\"");
  for (const char* text :
       {"[]", "3", "null", "\"x\"", R"({"devices": {}})", R"({"devices": []})"}) {
    EXPECT_EQ(ParseError(text),
              "not an IPUoF configuration: \"devices\" must be a non-empty array");
  }
  EXPECT_EQ(ParseError("[3]"), "every device must be a JSON object");
  EXPECT_EQ(ParseError("[{}]"), "a device has neither \"ip\" nor \"endpoint\"");
  EXPECT_EQ(ParseError("[{\"ip\": 7}]"), "a device has neither \"ip\" nor \"endpoint\"");
}

TEST(IpuofJson, EveryTruncationIsRefused) {
  std::string text = IpuofJson(Config("pt4"));
  text.pop_back();  // the line break is not needed
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(ParseIpuofJson(text.substr(0, size)).ok()) << size;
}

TEST(IpuofJson, RandomMutationsNeverCrash) {
  const std::string text = IpuofJson(Config("pt4"));
  std::mt19937 random(20240607);
  int parsed = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string mutant = text;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % mutant.size();
      switch (random() % 4) {
        case 0:
          mutant[at] = static_cast<char>(random());
          break;
        case 1:
          mutant.erase(at, 1 + random() % 8);
          break;
        case 2:
          mutant.insert(at, mutant.substr(random() % mutant.size(), 1 + random() % 16));
          break;
        default:
          mutant[at] = "{}[]\",:0-9e"[random() % 11];
          break;
      }
      if (mutant.empty()) mutant = " ";
    }
    const auto config = ParseIpuofJson(mutant);
    if (!config.ok()) continue;
    ++parsed;
    const auto again = ParseIpuofJson(IpuofJson(*config));
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << mutant;
    EXPECT_EQ(again->DebugString(), config->DebugString());
  }
  EXPECT_GT(parsed, 0);
}

}  // namespace
}  // namespace vpod::vipu
