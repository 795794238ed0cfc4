// poprun_supervisor PROGRAM…: runs an instance and tells poprun how it ended. Started by mpirun.
#include "client/launch/supervisor.h"

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: poprun_supervisor PROGRAM [ARGUMENT…]\n", stderr);
    return 2;
  }
  vpod::launch::Supervise(argv + 1);
}
