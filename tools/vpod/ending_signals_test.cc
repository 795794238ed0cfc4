#include "tools/vpod/ending_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace vpod::tools {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

// The signal goes to the process, not to this thread. Nobody else ends the process.
void Await(int signal) {
  kill(getpid(), signal);
  while (true) pause();
}

TEST(EndingSignalsTest, SayWhatIsInterruptedAndWhatRemains) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          EndingSignals signals("vpod up", [] { return "nothing has changed"; });
          Await(signal);
        },
        KilledBySignal(signal), "^vpod: error: 'vpod up' was interrupted; nothing has changed\n$");
  }
}

TEST(EndingSignalsTest, CleanUpBeforeTheLastActOfThatMoment) {
  EXPECT_EXIT(
      {
        std::string cleaned;
        EndingSignals signals("vpod up", [] { return "nothing has changed"; });
        signals.AddCleanUp([&] { cleaned += "one "; });
        signals.AddCleanUp([&] { cleaned += "two "; });
        signals.SetLastAct([&] { return cleaned + "are removed"; });
        Await(SIGINT);
      },
      KilledBySignal(SIGINT), "; one two are removed\n");
}

TEST(EndingSignalsTest, WaitForWorkThatIsNotToBeDisturbed) {
  EXPECT_EXIT(
      {
        EndingSignals signals("vpod backup", [] { return "nothing is written"; });
        const absl::Status failed = signals.Undisturbed(
            [] { return absl::UnavailableError("full"); }, [] { return "it is not written"; });
        if (failed.ok()) std::_Exit(1);
        const absl::Status written = signals.Undisturbed(
            [] {
              kill(getpid(), SIGINT);
              std::fputs("written\n", stderr);
              return absl::OkStatus();
            },
            [] { return "it is written"; });
        while (true) pause();
      },
      KilledBySignal(SIGINT), "^written\n.* was interrupted; it is written\n$");
}

// As of a terminal, which interrupts a program that we wait for at the same moment.
TEST(EndingSignalsTest, ASignalAtTheEndIsNotForgotten) {
  EXPECT_EXIT(
      {
        {
          EndingSignals signals("vpod up", [] { return "the POD is up"; });
          kill(getpid(), SIGINT);
        }
        std::_Exit(1);
      },
      KilledBySignal(SIGINT), "was interrupted; the POD is up\n");
}

TEST(EndingSignalsTest, IgnoredSignalsStayIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        {
          EndingSignals signals("vpod up", [] { return "nothing has changed"; });
          kill(getpid(), SIGHUP);
        }
        std::_Exit(0);
      },
      ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace vpod::tools
