#include "tools/vpod/support_bundle.h"

#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

constexpr char kIpuof[] = R"({"attributes": {"IPUoF": "1"}, "fabric_key": "sesame"})";

TEST(JsonWithoutSecretsTest, RemovesValuesOfSecretsAtAnyDepth) {
  EXPECT_EQ(
      JsonWithoutSecrets(kIpuof),
      "{\n  \"attributes\": {\n    \"IPUoF\": \"1\"\n  },\n  \"fabric_key\": \"(removed)\"\n}\n");
  const std::string deep = JsonWithoutSecrets(
      R"([{"Access-Keys": ["sesame"], "a": {"token": {"is": "sesame"}, "keys": 3}}])");
  EXPECT_EQ(deep.find("sesame"), std::string::npos) << deep;
  EXPECT_NE(deep.find("\"keys\": 3"), std::string::npos) << deep;
}

// However it was cut off, or what somebody wrote behind it.
TEST(JsonWithoutSecretsTest, TellsOnlyTheSizeOfWhatIsNotJson) {
  const std::string text = kIpuof;
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(JsonWithoutSecrets(text.substr(0, size)),
              "(not JSON: " + std::to_string(size) + " bytes left out)\n");
    EXPECT_EQ(JsonWithoutSecrets(text.substr(size + 1)).find("sesame"), std::string::npos) << size;
  }
  EXPECT_EQ(JsonWithoutSecrets("\"sesame\"").find("sesame"), std::string::npos);
  EXPECT_EQ(JsonWithoutSecrets(text + "x").find("sesame"), std::string::npos);
}

TEST(HclWithoutSecretsTest, KeepsLinesOfKeyAndValueWithoutSecrets) {
  EXPECT_EQ(HclWithoutSecrets("api-host=\"h\"\napi-access-key = \"sesame\"\n"),
            "api-host=\"h\"\napi-access-key =(removed)\n");
  for (const char* line :
       {"api-access-key \"sesame\"", "api-access-key: sesame", "sesame",
        "\"fabric_key\": \"sesame\"", "# the key is sesame", "api-host=\"h\" # key sesame",
        "api-access-key=\"sesa", "=sesame", "api-host=\"h\" \"sesame\""}) {
    const std::string clean = HclWithoutSecrets(line);
    EXPECT_EQ(clean.find("sesa"), std::string::npos) << clean;
  }
}

}  // namespace
}  // namespace vpod::tools
