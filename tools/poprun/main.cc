// poprun: launches the instances of a job on the IPUs of a partition.
#include "client/launch/launch.h"
#include "device/base/stdout.h"

int main(int argc, char** argv) {
  vpod::base::CheckStdoutAtExit();
  return vpod::launch::Poprun(std::vector<std::string>(argv + 1, argv + argc));
}
