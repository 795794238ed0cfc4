// IPUoF files as sites and container managers write them (lablup/backend.ai, accelerator/ipu), and
// partitions of several GCDs, which have several files.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Partition p4 of four IPUs, whose IPU# are 3, 2, 1, 0.
class IpuofFilesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(4);
    pod_->CreatePartition("p4", 4);
  }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }

  // Output of a script that must succeed.
  static std::string Sh(const std::string& script) {
    const Outcome outcome = pod_->Shell(script);
    EXPECT_EQ(outcome.code, 0) << script << "\n" << outcome.err;
    return outcome.out;
  }
  static std::string File(const std::string& name, const std::string& text) {
    const std::string path = pod_->directory() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  static Json Configuration() {
    return Json::parse(Sh("vipu get partition p4 --gcd 0 --ipuof-configs"));
  }
  static Json Devices(const std::vector<size_t>& numbers) {
    const Json whole = Configuration();
    Json devices = Json::array();
    for (const size_t i : numbers) devices.push_back(whole["devices"][i]);
    return devices;
  }
  // As generate_mounts of the plugin writes it.
  static std::string DevicesAndAttributes(const std::vector<size_t>& numbers) {
    return Json({{"devices", Devices(numbers)}, {"attributes", Configuration()["attributes"]}})
        .dump();
  }

  static void ExpectLists(const std::string& use, const Strings& numbers);
  static void ExpectMonitors(const std::string& use, const Strings& numbers);
  static void ExpectHolds(const std::string& path, const Strings& numbers);
  // Every tool and program has the two IPUs of a file, and no others.
  static void ExpectTwoIpus(const std::string& path, const Strings& numbers) {
    SCOPED_TRACE(path);
    const std::string use = "export IPUOF_CONFIG_PATH=" + path + "; ";
    ExpectLists(use, numbers);
    ExpectMonitors(use, numbers);
    Sh(use + "gc-hosttraffictest -d 1 --iterations 10");
    Sh(use + "gc-reset -d 0 && gc-reset -m");
    ExpectHolds(path, numbers);
  }

  static TestPod* pod_;
};
TestPod* IpuofFilesTest::pod_ = nullptr;

void IpuofFilesTest::ExpectLists(const std::string& use, const Strings& numbers) {
  EXPECT_EQ(Sh(use + "gc-info --ipu-count"), "2\n");
  const std::string list = Sh(use + "gc-info -l");
  EXPECT_TRUE(Contains(list, "Partition: p4 [active]\n")) << list;
  for (size_t i = 0; i < 2; ++i) {
    const std::regex line("-\\+- Id: +\\[" + std::to_string(i) +
                          "\\], target: \\[Fabric\\], IPU-M host: +\\[[0-9.]+\\], IPU#: \\[" +
                          numbers[i] + "\\]\n");
    EXPECT_TRUE(std::regex_search(list, line)) << list;
  }
  EXPECT_FALSE(Contains(list, "Id: [3]")) << list;
  const std::string number_of_1 = " -d 1 | sed -n 's/ *board ipu index: //p'";
  EXPECT_EQ(Sh(use + "gc-info -i" + number_of_1), numbers[1] + "\n");
  EXPECT_EQ(Sh(use + "gc-inventory" + number_of_1), numbers[1] + "\n");
}

void IpuofFilesTest::ExpectMonitors(const std::string& use, const Strings& numbers) {
  const Json cards = Json::parse(Sh(use + "gc-monitor -j"))["cards"];
  ASSERT_EQ(cards.size(), 1u) << cards;
  const Json& ipus = cards[0]["ipus"];
  ASSERT_EQ(ipus.size(), 2u) << cards;
  EXPECT_EQ(ipus[1]["ID"], "1");
  EXPECT_EQ(ipus[1]["IPU#"], numbers[1]);
  EXPECT_TRUE(Contains(Sh(use + "gc-monitor"), "has 2 reconfigurable IPUs"));
}

// The IPU that a program takes is the file's, not the partition's of that number.
void IpuofFilesTest::ExpectHolds(const std::string& path, const Strings& numbers) {
  const auto holder = pod_->Start({"env", "IPUOF_CONFIG_PATH=" + path, "gc-powertest", "-d", "1"});
  EXPECT_TRUE(holder->WaitForOutput("CARD LEVEL")) << holder->Err();
  const Json whole = Json::parse(Sh("gc-monitor -j"))["cards"][0]["ipus"];
  EXPECT_EQ(whole.size(), 4u);
  for (const Json& ipu : whole) EXPECT_EQ(ipu.contains("PID"), ipu["IPU#"] == numbers[1]) << ipu;
  EXPECT_EQ(pod_->Shell("IPUOF_CONFIG_PATH=" + path + " gc-info -d 1 --nlc-status").code, 1)
      << "in use";
  holder->Signal(SIGINT);
  EXPECT_EQ(holder->Wait().code, 0);
}

TEST_F(IpuofFilesTest, DevicesAreFoundByAddressAndPcieId) {
  Strings in_file, in_monitor;
  const Json configuration = Configuration();
  for (const Json& device : configuration["devices"]) {
    ASSERT_TRUE(device.contains("device_id")) << device;
    in_file.push_back(device["ip"].get<std::string>() + ":" + device["device_id"].dump());
  }
  const Json monitor = Json::parse(Sh("gc-monitor -j"));
  for (const Json& card : monitor["cards"]) {
    for (const Json& ipu : card["ipus"]) {
      in_monitor.push_back(card["IPU-M"].get<std::string>() + ":" +
                           ipu["PCIe ID"].get<std::string>());
    }
  }
  EXPECT_EQ(in_file, in_monitor);
}

TEST_F(IpuofFilesTest, AFileOfSomeDevicesHasThose) {
  const std::string pair = File("ipuof.conf", DevicesAndAttributes({2, 3}));
  ExpectTwoIpus(pair, {"1", "0"});
  // Neighbours are a device of two.
  Sh("IPUOF_CONFIG_PATH=" + pair + " replica_job --runs 2 --ipus 2");
  Sh("IPUOF_CONFIG_PATH=" + pair + " gc-hosttraffictest -d 2 --iterations 10");
}

TEST_F(IpuofFilesTest, SoHasAnArrayOfThem) {
  ExpectTwoIpus(File("array.conf", Devices({3, 2}).dump()), {"1", "0"});
}

TEST_F(IpuofFilesTest, IpusThatAreNoNeighboursAreUsedOneByOne) {
  const std::string path = File("apart.conf", DevicesAndAttributes({0, 3}));
  ExpectTwoIpus(path, {"3", "0"});
  const std::string use = "IPUOF_CONFIG_PATH=" + path;
  EXPECT_FALSE(Contains(Sh(use + " gc-info -l"), "Multi IPU"));
  const Outcome third = pod_->Shell(use + " gc-hosttraffictest -d 2");
  EXPECT_EQ(third.code, 1);
  EXPECT_TRUE(Contains(third.err, "device 2 does not exist")) << third.err;
  const Outcome both = pod_->Shell(use + " replica_job --runs 2 --ipus 2");
  EXPECT_EQ(both.code, 1);
  EXPECT_TRUE(Contains(both.err, "are used one by one")) << both.err;
}

// Two containers with two IPUs each share a partition and not an IPU.
TEST_F(IpuofFilesTest, ProgramsWithDifferentFilesTakeDifferentIpus) {
  const std::string first = File("first.conf", DevicesAndAttributes({0, 1}));
  const std::string second = File("second.conf", DevicesAndAttributes({2, 3}));
  const auto start = [](const std::string& path) {
    return pod_->Start(
        {"env", "IPUOF_CONFIG_PATH=" + path, "replica_job", "--runs", "1000000", "--ipus", "2"});
  };
  const auto a = start(first), b = start(second);
  ASSERT_TRUE(a->WaitForOutput("run 3 loss")) << a->Err();
  ASSERT_TRUE(b->WaitForOutput("run 3 loss")) << b->Err();
  Strings pids;
  const Json monitor = Json::parse(Sh("gc-monitor -j"));
  for (const Json& ipu : monitor["cards"][0]["ipus"]) pids.push_back(ipu["PID"]);
  const std::string pid_a = std::to_string(a->pid()), pid_b = std::to_string(b->pid());
  EXPECT_EQ(pids, (Strings{pid_a, pid_a, pid_b, pid_b}));
  const Outcome third = start(second)->Wait();
  EXPECT_EQ(third.code, 1);
  EXPECT_TRUE(Contains(third.err, "device 2 of the configuration: ")) << third.err;
  EXPECT_TRUE(Contains(third.err, "is in use by process " + pid_b)) << third.err;
  for (const auto& job : {a.get(), b.get()}) {
    job->Signal(SIGTERM);
    job->Wait();
  }
}

TEST_F(IpuofFilesTest, AFileMayHaveAnyName) {
  for (const std::string name : {"HOST.config", "ipu", "p64_cl_a01_a16.json"}) {
    const std::string directory = pod_->directory() + "/conf-" + name;
    fs::create_directories(directory);
    std::ofstream(directory + "/" + name) << Configuration();
    std::ofstream(directory + "/README") << "Files of the site.\n";
    std::ofstream(directory + "/." + name) << Configuration();
    const Outcome outcome = pod_->Shell("IPUOF_CONFIG_DIR=" + directory + " gc-info --ipu-count");
    EXPECT_EQ(outcome.out, "4\n") << name << "\n" << outcome.err;
    EXPECT_EQ(outcome.err, "") << name;
  }
}

TEST_F(IpuofFilesTest, SoMayASystemWideFile) {
  if (pod_->Shell("unshare -rm true").code != 0) GTEST_SKIP() << "no mount namespaces here";
  const std::string etc = pod_->directory() + "/etc";
  fs::create_directories(etc + "/ipuof.conf.d");
  for (const char* name : {"passwd", "hosts", "nsswitch.conf"})
    fs::copy_file(std::string("/etc/") + name, etc + "/" + name);
  std::ofstream(etc + "/ipuof.conf.d/HOST.config") << Configuration();
  EXPECT_EQ(Sh("unshare -rm bash -c 'mount --bind " + etc +
               " /etc && env -u VPOD_HOME IPUOF_CONFIG_DIR=/nonexistent gc-info --ipu-count'"),
            "4\n");
}

class SeveralGcdsTest : public ::testing::Test {
 protected:
  SeveralGcdsTest() : pod_(8) {
    pod_.environment()["IPUOF_VIPU_API_PARTITION_ID"] = "";
    pod_.environment()["IPUOF_VIPU_API_GCD_ID"] = "";
    const Outcome made =
        pod_.Run({"vipu-admin", "create", "partition", "g2", "--size", "8", "--num-gcds", "2"});
    EXPECT_EQ(made.code, 0) << made.err;
    from_controller_ =
        "IPUOF_VIPU_API_HOST=127.0.0.1 IPUOF_VIPU_API_PORT=" + std::to_string(pod_.port()) + " ";
  }
  void ExpectAllIpus(const std::string& where) {
    SCOPED_TRACE(where);
    const Outcome list = pod_.Shell(where + " gc-info -l");
    EXPECT_EQ(list.code, 0) << list.err;
    EXPECT_TRUE(Contains(list.out, "Partition: g2 (gcd:0) [active]")) << list.out;
    EXPECT_TRUE(Contains(list.out, "Partition: g2 (gcd:1) [active]")) << list.out;
    EXPECT_TRUE(Contains(list.out, "Id: [7], target: [Fabric]")) << list.out;
    EXPECT_EQ(pod_.Shell(where + " gc-info --ipu-count").out, "8\n");
    Strings ipus;
    const Json monitor = Json::parse(pod_.Shell(where + " gc-monitor -j").out);
    for (const Json& card : monitor["cards"]) {
      for (const Json& ipu : card["ipus"])
        ipus.push_back(ipu["GCD"].get<std::string>() + "/" + ipu["ID"].get<std::string>());
    }
    EXPECT_EQ(ipus, (Strings{"0/0", "0/1", "0/2", "0/3", "1/0", "1/1", "1/2", "1/3"}));
    const Outcome table = pod_.Shell(where + " gc-monitor");
    EXPECT_TRUE(Contains(table.out, "g2 (gcd:1) [active] has 4 IPUs")) << table.out << table.err;
  }
  TestPod pod_;
  std::string from_controller_;
};

TEST_F(SeveralGcdsTest, AreAllListed) {
  ExpectAllIpus("");
  ExpectAllIpus(from_controller_ + "IPUOF_VIPU_API_PARTITION_ID=g2");
  ExpectAllIpus("IPUOF_VIPU_API_PARTITION_ID=g2");
  EXPECT_EQ(pod_.Shell("IPUOF_VIPU_API_GCD_ID=1 gc-info -l | grep -c 'target: .Fabric'").out,
            "4\n");
  // Once, when the others are asked for.
  EXPECT_EQ(pod_.Shell("gc-info -l --all-partitions | grep -c 'target: .Fabric'").out, "8\n");
}

TEST_F(SeveralGcdsTest, WhatNeedsOneSaysHowToChooseIt) {
  for (const char* command :
       {"gc-info -i -d 0", "gc-reset -d 0", "gc-hosttraffictest -d 0", "replica_job --runs 1"}) {
    for (const std::string& where : {std::string(), from_controller_}) {
      const Outcome outcome = pod_.Shell(where + command);
      EXPECT_EQ(outcome.code, 1) << command;
      const size_t partition = outcome.err.find("IPUOF_VIPU_API_PARTITION_ID"),
                   gcd = outcome.err.find("IPUOF_VIPU_API_GCD_ID"),
                   path = outcome.err.find("IPUOF_CONFIG_PATH");
      EXPECT_LT(partition, gcd) << outcome.err;
      EXPECT_LT(gcd, path) << outcome.err;
    }
  }
  EXPECT_EQ(pod_.Shell("IPUOF_VIPU_API_GCD_ID=1 gc-reset -d 0").code, 0);
}

}  // namespace
}  // namespace vpod::testing
