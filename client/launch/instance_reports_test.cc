#include "client/launch/instance_reports.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>

#include "device/base/device_use.h"

namespace vpod::launch {
namespace {

using std::chrono::milliseconds;

// Wait statuses as Linux has them.
constexpr int kKilled = 9, kExit3 = 3 << 8;

InstanceReport Report(int instance, ReportKind kind, int at_ms, int status = 0) {
  return {instance, kind, 4711 + instance, status, milliseconds(at_ms), "boot", "host"};
}
InstanceReport Started(int instance) { return Report(instance, ReportKind::kStarted, 0); }
InstanceReport Told(int instance, int at_ms) {
  return Report(instance, ReportKind::kToldToEnd, at_ms);
}
InstanceReport Ended(int instance, int at_ms, int status) {
  return Report(instance, ReportKind::kEnded, at_ms, status);
}

TEST(FirstEndTest, TheEarliestEndCountsWhateverArrivesFirst) {
  const auto first = FindFirstEnd(
      {Started(0), Started(1), Started(2), Ended(0, 11, kExit3), Ended(2, 10, kKilled)}, 3);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->instance, 2);
  EXPECT_EQ(first->pid, 4713);
  EXPECT_EQ(first->host, "host");
  EXPECT_EQ(first->status, kKilled);
}

TEST(FirstEndTest, AProcessThatMpirunEndsIsNotTheCause) {
  const auto first =
      FindFirstEnd({Started(0), Started(1), Told(0, 5), Ended(0, 6, 15), Ended(1, 900, kExit3)}, 2);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->instance, 1);
  EXPECT_FALSE(FindFirstEnd({Started(0), Started(1), Told(0, 5), Told(1, 5), Ended(0, 6, 15)}, 2));
}

TEST(FirstEndTest, HasThePidNamespaceOfItsReport) {
  InstanceReport end = Ended(0, 5, kKilled);
  end.pid_namespace = "pid:[7]";
  EXPECT_EQ(FindFirstEnd({Started(0), end}, 1)->pid_namespace, "pid:[7]");
  InstanceReport started = Started(1);
  started.pid_namespace = "pid:[7]";
  EXPECT_EQ(FindFirstEnd({Started(0), started, Told(0, 5)}, 2)->pid_namespace, "pid:[7]");
}

// As of another version, or of a process that cannot read its namespace.
TEST(InstanceReportTest, MayHaveNoPidNamespace) {
  const auto report = ParseReport("0123 1 E 12 9 5 boot host", "0123");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->pid, 12);
  EXPECT_EQ(report->pid_namespace, "");
}

TEST(FirstEndTest, AnOrderlyEndIsNotTheCause) {
  const auto first =
      FindFirstEnd({Started(0), Started(1), Ended(0, 5, 0), Ended(1, 90, kExit3)}, 2);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->instance, 1);
}

TEST(FirstEndTest, TheOneThatSaysNothingIsTheCause) {
  const auto killed_with_its_supervisor =
      FindFirstEnd({Started(0), Started(1), Started(2), Told(0, 5), Told(2, 5)}, 3);
  ASSERT_TRUE(killed_with_its_supervisor.has_value());
  EXPECT_EQ(killed_with_its_supervisor->instance, 1);
  EXPECT_EQ(killed_with_its_supervisor->pid, 4712);
  EXPECT_FALSE(killed_with_its_supervisor->status.has_value());
  const auto never_ran = FindFirstEnd({Started(0), Started(1), Told(0, 5), Told(1, 5)}, 3);
  ASSERT_TRUE(never_ran.has_value());
  EXPECT_EQ(never_ran->instance, 2);
  EXPECT_EQ(never_ran->pid, 0);
}

TEST(FirstEndTest, NobodyIsNamedByGuessing) {
  EXPECT_FALSE(FindFirstEnd({}, 4).has_value());
  EXPECT_FALSE(FindFirstEnd({Started(0), Started(1), Told(0, 5)}, 3).has_value());
}

TEST(FindPlaceToFreeTest, TheOldestStrangerOfTheAddressWithMostGoes) {
  constexpr uint32_t kHost = 0x0a050001, kStranger = 0x0a0500ff, kLoopback = 0x7f000001;
  const std::nullopt_t kSupervisor = std::nullopt;
  // An honest host that was there first, and a fast stranger.
  EXPECT_EQ(FindPlaceToFree({kHost, kSupervisor, kStranger, kHost, kStranger, kStranger}), 2u);
  EXPECT_EQ(FindPlaceToFree({kSupervisor, kHost, kSupervisor}), 1u);
  EXPECT_EQ(FindPlaceToFree({kSupervisor, kSupervisor}), std::nullopt);
  EXPECT_EQ(FindPlaceToFree({}), std::nullopt);
  // Connections that have shown the token are not counted.
  EXPECT_EQ(FindPlaceToFree({kSupervisor, kSupervisor, kHost, kStranger, kStranger}), 3u);
  // All of the loopback network is one address.
  EXPECT_EQ(FindPlaceToFree({kHost, kHost, kLoopback, kLoopback + 1, kLoopback + 2}), 2u);
}

// A supervisor's end of a connection to `where`.
class Line {
 public:
  explicit Line(const std::string& where) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    std::vector<std::string> addresses;
    Split(where, token, addresses);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string& last = addresses.back();
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(last.substr(last.rfind(':') + 1))));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  void Send(const std::string& text) {
    EXPECT_EQ(send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  std::string token;

 private:
  base::UniqueFd fd_;
};

TEST(InstanceReportsTest, WhatWasSaidBeforeTheEndIsHeard) {
  auto reports = InstanceReports::Listen({.instances = 2});
  ASSERT_TRUE(reports.ok()) << reports.status();
  {
    Line first((*reports)->where()), second((*reports)->where());
    const std::string text = FormatReport(first.token, 1, ReportKind::kEnded, 12, kKilled);
    first.Send(text.substr(0, 10));
    second.Send(FormatReport(second.token, 0, ReportKind::kStarted, 11, 0));
    first.Send(text.substr(10));
  }
  const auto heard = (*reports)->Finish();
  EXPECT_EQ(heard.size(), 2u);
  EXPECT_EQ(FindFirstEnd(heard, 2)->pid, 12);
  EXPECT_EQ(FindFirstEnd(heard, 2)->pid_namespace, base::PidNamespace());
}

TEST(InstanceReportsTest, AnEndWithoutAnErrorIsToldAtOnce) {
  std::vector<int> ended;
  {
    std::promise<void> told;
    auto reports = InstanceReports::Listen({.instances = 4, .on_success = [&](const auto& report) {
                                              ended.push_back(report.instance);
                                              if (ended.size() == 1) told.set_value();
                                            }});
    ASSERT_TRUE(reports.ok()) << reports.status();
    Line line((*reports)->where());
    const auto say = [&](int instance, ReportKind kind, int status) {
      line.Send(FormatReport(line.token, instance, kind, 11, status));
    };
    say(0, ReportKind::kStarted, 0);
    say(1, ReportKind::kEnded, kExit3);
    say(2, ReportKind::kEnded, 0);
    told.get_future().wait();
    say(3, ReportKind::kToldToEnd, 0);
    say(3, ReportKind::kEnded, 0);
  }
  EXPECT_EQ(ended, std::vector<int>{2});
}

TEST(InstanceReportsTest, ReportsWithoutTheTokenAreDropped) {
  auto reports = InstanceReports::Listen({.instances = 2});
  ASSERT_TRUE(reports.ok()) << reports.status();
  {
    Line unknown((*reports)->where()), other((*reports)->where()), chatter((*reports)->where());
    unknown.Send(FormatReport("00", 1, ReportKind::kEnded, 12, kKilled));
    other.Send(FormatReport(other.token, 7, ReportKind::kEnded, 12, kKilled));
    chatter.Send(std::string(2000, 'x'));
  }
  EXPECT_TRUE((*reports)->Finish().empty());
}

// Processes that connect and say nothing, or not enough, keep no supervisor out.
TEST(InstanceReportsTest, StrangersHoldNoPlaces) {
  auto reports = InstanceReports::Listen({.instances = 2});
  ASSERT_TRUE(reports.ok()) << reports.status();
  std::vector<std::unique_ptr<Line>> lines;
  const auto strangers = [&] {
    for (int i = 0; i < 60; ++i) {
      lines.push_back(std::make_unique<Line>((*reports)->where()));
      if (i % 2 == 0) lines.back()->Send("x");
    }
  };
  strangers();
  Line early((*reports)->where());
  early.Send(FormatReport(early.token, 0, ReportKind::kStarted, 11, 0));
  strangers();
  Line late((*reports)->where());
  late.Send(FormatReport(late.token, 1, ReportKind::kEnded, 12, kKilled));
  strangers();
  early.Send(FormatReport(early.token, 0, ReportKind::kToldToEnd, 11, 0));
  const auto heard = (*reports)->Finish();
  EXPECT_EQ(heard.size(), 3u);
  EXPECT_EQ(FindFirstEnd(heard, 2)->pid, 12);
}

}  // namespace
}  // namespace vpod::launch
