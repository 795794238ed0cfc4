#include "tools/vpod/pod_shape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"

namespace vpod::tools {
namespace {

PodShape Shape() {
  PodShape shape;
  shape.ipus = 128;
  shape.machine_type = "bow2000";
  shape.cluster_topology = "switched";
  shape.api_port = 8190;
  shape.metrics_port = 2190;
  shape.memory_limit_mib = 4096;
  shape.addresses = "127.12";
  shape.agent_per_machine = shape.described_clusters = shape.unfinished = shape.secure = true;
  return shape;
}

// What is wrong with a file in which one value is another.
std::string Error(const std::string& key, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(ShapeText(Shape()));
  json[key] = value;
  const auto shape = ParseShape(json.dump());
  return shape.ok() ? "" : std::string(shape.status().message());
}

TEST(PodShapeTest, AFileHasAllOfIt) {
  const auto shape = ParseShape(ShapeText(Shape()));
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(ShapeText(*shape), ShapeText(Shape()));
}

TEST(PodShapeTest, FilesOfEarlierVersionsLackKeys) {
  const auto shape = ParseShape(R"({"ipus": 16, "machine_type": "m2000", "api_port": 8090})");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->metrics_port, 0u);
  EXPECT_EQ(shape->addresses, "");
  EXPECT_FALSE(shape->agent_per_machine);
  EXPECT_FALSE(shape->secure);
}

TEST(PodShapeTest, APodOfOneRackHasNoClusterTopology) {
  for (const char* topology : {"none", ""}) {
    const std::string text =
        R"({"ipus": 16, "machine_type": "m2000", "api_port": 8090, "cluster_topology": "$"})";
    const auto shape = ParseShape(absl::StrReplaceAll(text, {{"$", topology}}));
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_EQ(shape->cluster_topology, "");
  }
}

TEST(PodShapeTest, BadValuesAreNamedWithWhatIsAllowed) {
  EXPECT_EQ(Error("ipus", 96), "ipus 96: the size must be a power of two from 4 to 65536");
  EXPECT_EQ(Error("ipus", 4294967296 + 16),
            "ipus is 4294967312, must be a whole number from 4 to 65536");
  EXPECT_EQ(Error("ipus", "16"), "ipus is \"16\", must be a whole number from 4 to 65536");
  EXPECT_EQ(Error("ipus", -16), "ipus is -16, must be a whole number from 4 to 65536");
  EXPECT_EQ(Error("machine_type", "m3000"), "unknown machine type 'm3000'; give m2000 or bow2000");
  EXPECT_EQ(Error("machine_type", 1), "machine_type is 1, must be a text");
  EXPECT_EQ(Error("cluster_topology", "ring"),
            "cluster_topology ring: it must be looped or switched");
  EXPECT_EQ(Error("ipus", 16),
            "cluster_topology switched needs two racks or more, i.e. ipus 128 or larger");
  EXPECT_EQ(Error("api_port", 0), "api_port is 0, must be a whole number from 1 to 65535");
  EXPECT_EQ(Error("api_port", 70000), "api_port is 70000, must be a whole number from 1 to 65535");
  EXPECT_EQ(Error("metrics_port", 8190),
            "metrics_port 8190 is the controller's port; give another");
  EXPECT_EQ(Error("memory_limit_mib", 4294967296),
            "memory_limit_mib is 4294967296, must be a whole number from 0 to 2147483648");
  for (const char* addresses : {"127.11", "127.8", "127.254", "10.12", "127.12.0.1", "127. 12"}) {
    EXPECT_EQ(Error("addresses", addresses),
              std::string("addresses is \"") + addresses + "\", must be 127.10, 127.12 … 127.252");
  }
  EXPECT_EQ(Error("agents", "two"), "agents is \"two\", must be one or processes");
  EXPECT_EQ(Error("secure", 1), "secure is 1, must be true or false");
}

TEST(PodShapeTest, WhatIsNoShapeAtAll) {
  const auto error = [](const std::string& text) {
    return std::string(ParseShape(text).status().message());
  };
  EXPECT_EQ(error("{"), "it is not a JSON object");
  EXPECT_EQ(error("[]"), "it is not a JSON object");
  EXPECT_EQ(error("{}"), "it has no ipus");
  EXPECT_EQ(error(R"({"ipus": 16, "machine_type": "m2000"})"), "it has no api_port");
}

// Values come from other people's files, too.
TEST(PodShapeTest, ErrorsAreShortAndPrintable) {
  const std::string error = Error("machine_type", "m\n\x1b[31m" + std::string(1000, 'x'));
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_LT(error.size(), 150u);
}

}  // namespace
}  // namespace vpod::tools
