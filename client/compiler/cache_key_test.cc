#include "client/compiler/cache_key.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace vpod::compiler {
namespace {

constexpr size_t kReplicas = 1, kOption = 3, kGraph = 5;

KeyParts Parts() { return {"build", "replicas", "IPUs", "options", "program", "graph"}; }

// The key of a program of which some parts are others.
std::string Other(std::initializer_list<size_t> parts, const std::string& value = "other") {
  KeyParts changed = Parts();
  for (size_t part : parts) changed[part] = value;
  return KeyOf(changed);
}

class CacheKeyTest : public testing::Test {
 protected:
  CacheKeyTest() {
    std::string path = testing::TempDir() + "/keys.XXXXXX";
    directory_ = mkdtemp(path.data());
  }
  ~CacheKeyTest() override { std::filesystem::remove_all(directory_); }

  void AddFile(const std::string& name) { std::ofstream(directory_ + "/" + name) << "x"; }
  void AddKey(const std::string& key) { AddFile(key + ".vipuexe"); }
  std::string Difference() const { return DifferenceFromNearest(directory_, KeyOf(Parts())); }
  static std::string Nearest(const std::string& difference, const std::string& key) {
    return difference + " of " + key + ".vipuexe, the nearest file";
  }

  std::string directory_;
};

TEST_F(CacheKeyTest, IsOfAllParts) {
  std::set<std::string> keys = {KeyOf(Parts())};
  for (size_t part = 0; part < kKeyPartNames.size(); ++part) keys.insert(Other({part}));
  EXPECT_EQ(keys.size(), 1 + kKeyPartNames.size());
  for (const std::string& key : keys) {
    EXPECT_EQ(key.size(), 64u);
    EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), key.npos) << key;
  }
  // Parts that have the same bytes together are not the same.
  EXPECT_NE(KeyOf({"ab", "c"}), KeyOf({"a", "bc"}));
}

TEST_F(CacheKeyTest, TheNearestFileIsNamed) {
  AddKey(Other({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Difference(), "no file there has any part of its key");
  AddKey(Other({kGraph}));
  EXPECT_EQ(Difference(), Nearest("the graph (operators, shapes, names, source lines) differs from "
                                  "that",
                                  Other({kGraph})));
  // A file of the same graph is nearer, though more parts of its key differ.
  AddKey(Other({0, kReplicas, kOption}));
  EXPECT_EQ(Difference(), Nearest("the build of the compiler, the number of replicas and an option "
                                  "of the compiler differ from those",
                                  Other({0, kReplicas, kOption})));
  AddKey(Other({kReplicas}));
  EXPECT_EQ(Difference(), Nearest("the number of replicas differs from that", Other({kReplicas})));
}

TEST_F(CacheKeyTest, TheNewestIsNearest) {
  const std::string newest = Other({kReplicas}, "2");
  for (const char* replicas : {"1", "2", "3"}) AddKey(Other({kReplicas}, replicas));
  const auto path = directory_ + "/" + newest + ".vipuexe";
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) + std::chrono::hours(1));
  EXPECT_EQ(Difference(), Nearest("the number of replicas differs from that", newest));
}

TEST_F(CacheKeyTest, OtherFilesAreIgnored) {
  EXPECT_EQ(Difference(), "");
  EXPECT_EQ(DifferenceFromNearest(directory_ + "/missing", KeyOf(Parts())), "");
  AddKey(KeyOf(Parts()));  // the program's own, which is damaged
  for (const char* name : {"", "notes", "short.vipuexe", "key.vipuexe.tmp"})
    AddFile(std::string("f") + name);
  AddKey(std::string(64, 'x'));
  AddFile(Other({kReplicas}) + ".profile");
  EXPECT_EQ(Difference(), "");
  EXPECT_EQ(DifferenceFromNearest(directory_ + "/fnotes", KeyOf(Parts())), "");
}

}  // namespace
}  // namespace vpod::compiler
