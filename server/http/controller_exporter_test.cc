#include "server/http/controller_exporter.h"

#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/controller/controller_fixture.h"
#include "server/http/families.h"

namespace vpod::http {
namespace {

vipuadmin::Agent AgentOf(const std::string& id, const std::string& status, uint32_t free) {
  vipuadmin::Agent agent;
  agent.set_id(id);
  agent.set_cluster_id("c1");
  agent.set_num_ipus(4);
  agent.set_free_ipus(free);
  agent.set_status(status);
  agent.set_last_seen_ms(status == "Unknown" ? -1 : 1500);
  return agent;
}

ControllerState SmallPod() {
  ControllerState state;
  state.agents = {AgentOf("ag0", "Up", 1), AgentOf("ag1", "Down", 4), AgentOf("ag2", "Unknown", 4)};
  state.agents[0].set_failed_ipus(1);
  vipuadmin::Cluster& cluster = state.clusters.emplace_back();
  cluster.set_id("c1");
  vipuadmin::TestClusterReply* test = cluster.add_last_tests();
  test->set_test("Cabling");
  test->set_passed(30);
  test->set_expected(32);
  vipuadmin::Allocation allocation;
  allocation.set_id("a1");
  allocation.set_cluster_id("c1");
  for (const char* id : {"ag0", "ag1", "gone"}) allocation.add_agent_ids(id);
  state.allocations = {allocation};
  vipuuser::Partition partition;
  partition.mutable_requirements()->set_id("p1");
  partition.mutable_requirements()->set_cluster_id("c1");
  partition.mutable_requirements()->set_allocation_id("a1");
  partition.mutable_requirements()->set_size(2);
  partition.mutable_status()->set_state(vipuuser::PS_ERROR);
  partition.mutable_status()->set_created_by("al\"ice");
  state.partitions = {partition};
  return state;
}

std::map<RequestCounter::Call, Histogram> SomeCalls() {
  std::map<RequestCounter::Call, Histogram> calls;
  calls[{"vipuuser.VipuUser", "CreatePartition", grpc::OK}].Observe(0.003);
  calls[{"vipuuser.VipuUser", "CreatePartition", grpc::RESOURCE_EXHAUSTED}].Observe(0.001);
  calls[{"vipuuser.VipuUser", "CreatePartition", grpc::NOT_FOUND}].Observe(0.001);
  calls[{"vipuuser.VipuUser", "ListAllocations", grpc::OK}].Observe(0.001);
  calls[{"vipuadmin.VipuAdmin", "ListAllocations", grpc::OK}].Observe(0.001);
  calls[{"vipuuser.VipuUser", "ListIpuAttributes", grpc::OK}].Observe(0.001);
  calls[{"vipuuser.VipuUser", "GetPartitionStatus", grpc::OK}].Observe(0.001);
  calls[{"vipuagent.VipuRegistry", "Heartbeat", grpc::OK}].Observe(0.001);
  return calls;
}

TEST(ControllerExporterTest, ShowsTheStateOfThePod) {
  const std::string text = WriteControllerMetrics(SmallPod(), SomeCalls(), 1.7e9, Format::kText);
  for (const char* line :
       {"vipu_build_info{version=\"1.18.0\"} 1", "vipu_start_time_seconds 1700000000",
        "vipu_agents{status=\"Up\"} 1", "vipu_agents{status=\"Down\"} 1",
        "vipu_agents{status=\"Unknown\"} 1", "vipu_agent_up{agent=\"ag0\",cluster=\"c1\"} 1",
        "vipu_agent_up{agent=\"ag1\",cluster=\"c1\"} 0",
        "vipu_agent_last_seen_seconds{agent=\"ag1\"} 1.5", "vipu_clusters 1", "vipu_allocations 1",
        "vipu_partitions{state=\"ACTIVE\"} 0", "vipu_partitions{state=\"ERROR\"} 1",
        "vipu_partition_size_ipus{partition=\"p1\",cluster=\"c1\",allocation=\"a1\",user="
        "\"al\\\"ice\",state=\"ERROR\"} 2",
        "vipu_ipus{cluster=\"c1\",allocation=\"a1\",use=\"free\"} 1",
        "vipu_ipus{cluster=\"c1\",allocation=\"a1\",use=\"used\"} 2",
        "vipu_ipus{cluster=\"c1\",allocation=\"a1\",use=\"error\"} 5",
        "vipu_cluster_test_passed{cluster=\"c1\",test=\"Cabling\"} 30",
        "vipu_cluster_test_expected{cluster=\"c1\",test=\"Cabling\"} 32"}) {
    EXPECT_TRUE(absl::StrContains(text, absl::StrCat("\n", line, "\n"))) << line << "\n" << text;
  }
  EXPECT_FALSE(absl::StrContains(text, "vipu_agent_last_seen_seconds{agent=\"ag2\"}"));
}

TEST(ControllerExporterTest, CountsOperationsAndRequests) {
  const std::string text = WriteControllerMetrics(SmallPod(), SomeCalls(), 0, Format::kText);
  for (
      const char* line :
      {"vipu_operations_total{verb=\"create\",noun=\"partition\",result=\"success\"} 1",
       "vipu_operations_total{verb=\"create\",noun=\"partition\",result=\"failed\"} 2",
       "vipu_operations_total{verb=\"list\",noun=\"allocation\",result=\"success\"} 2",
       "vipu_operations_total{verb=\"list\",noun=\"ipu-attrs\",result=\"success\"} 1",
       "vipu_operation_duration_seconds_bucket{verb=\"create\",noun=\"partition\",result="
       "\"success\",le=\"0.005\"} 1",
       "vipu_operation_duration_seconds_sum{verb=\"create\",noun=\"partition\",result=\"success\"} "
       "0.003",
       "vipu_api_requests_total{endpoint=\"user\",method=\"CreatePartition\",code=\"NOT_FOUND\"} 1",
       "vipu_api_requests_total{endpoint=\"user\",method=\"GetPartitionStatus\",code=\"OK\"} 1",
       "vipu_api_requests_total{endpoint=\"admin\",method=\"ListAllocations\",code=\"OK\"} 1",
       "vipu_api_requests_total{endpoint=\"admin\",method=\"Heartbeat\",code=\"OK\"} 1"}) {
    EXPECT_TRUE(absl::StrContains(text, absl::StrCat("\n", line, "\n"))) << line << "\n" << text;
  }
  // Parts of commands are no operations.
  EXPECT_FALSE(absl::StrContains(text, "status\",result"));
}

TEST(ControllerExporterTest, WritesTheFamiliesInTheirOrder) {
  const std::string text = WriteControllerMetrics({}, {}, 0, Format::kText);
  size_t at = 0;
  for (const Family* family : kControllerFamilies) {
    const size_t found = text.find(absl::StrCat("# TYPE ", family->name, " "), at);
    ASSERT_NE(found, std::string::npos) << family->name;
    at = found;
  }
}

class ControllerRoutesTest : public controller::ControllerTest {
 protected:
  Routes RoutesOf(bool secure) {
    return ControllerRoutes({*controller_, counter_, [this] { return health_; }}, secure);
  }
  nlohmann::json GetJson(const std::string& path) {
    const Response response = RoutesOf(false).at(path)({});
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.content_type, "application/json");
    return nlohmann::json::parse(response.body, nullptr, false);
  }

  RequestCounter counter_;
  absl::Status health_;
};

TEST_F(ControllerRoutesTest, ListsAreJson) {
  CreatePod(2);
  CreateActive(Wanted("p1", 4));
  EXPECT_EQ(GetJson("/api/v1/agents")["agents"][1]["id"], "ag1");
  EXPECT_EQ(GetJson("/api/v1/clusters")["clusters"][0]["free_ipus"], 4);
  EXPECT_EQ(GetJson("/api/v1/allocations")["allocations"][0]["cluster_id"], "c1");
  const auto partition = GetJson("/api/v1/partitions")["partitions"][0];
  EXPECT_EQ(partition["requirements"]["id"], "p1");
  EXPECT_EQ(partition["status"]["state"], "PS_ACTIVE");
  const Routes routes = RoutesOf(false);
  EXPECT_EQ(routes.at("/api/v1/agents")({.accept = "text/html"}).status, 406);
}

TEST_F(ControllerRoutesTest, HealthIsWhetherItAnswers) {
  const Handler handler = RoutesOf(false).at("/healthz");
  EXPECT_EQ(handler({}).status, 200);
  EXPECT_EQ(handler({}).body, "ok\n");
  health_ = absl::UnavailableError("no answer");
  EXPECT_EQ(handler({}).status, 503);
  EXPECT_EQ(handler({}).body, "no answer\n");
}

TEST_F(ControllerRoutesTest, NothingSecretIsShown) {
  CreatePod(2);
  CreateActive(Wanted("p1", 4));
  for (const auto& [path, handler] : RoutesOf(false)) {
    const std::string body = handler({}).body;
    EXPECT_FALSE(absl::StrContains(body, "fabric_key")) << path << "\n" << body;
  }
}

TEST_F(ControllerRoutesTest, ASecureControllerShowsNoObjects) {
  vipuadmin::User user;
  user.set_id("alice");
  ASSERT_TRUE(controller_->CreateUser(user, "root").ok());
  const Routes routes = RoutesOf(true);
  EXPECT_FALSE(routes.contains("/api/v1/partitions"));
  EXPECT_FALSE(routes.contains("/api/v1/agents"));
  EXPECT_TRUE(routes.contains("/api/v1/exporters"));
  EXPECT_TRUE(absl::StrContains(routes.at("/metrics")({}).body, "\nvipu_users 1\n"));
}

TEST_F(ControllerRoutesTest, ExportersAreTargetsForPrometheus) {
  Register(0, 2, "process-1");
  Register(2, 1, "process-2");
  CreateAgents(0, 4);  // the last one's process never registered
  EXPECT_EQ(GetJson("/api/v1/exporters").dump(),
            R"([{"targets":["process-1:2112","process-2:2112"]}])");
}

}  // namespace
}  // namespace vpod::http
