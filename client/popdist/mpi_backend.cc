#include "client/popdist/mpi_backend.h"

#include <mpi.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "client/popdist/context.hpp"

namespace popdist {
namespace {

void Check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw popdist_error(absl::StrCat(what, ": ", std::string(text, static_cast<size_t>(length))));
}

class OpenMpi : public Backend {
 public:
  void initialize() override {
    int provided = 0;
    Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  void finalize() override { Check(MPI_Finalize(), "MPI_Finalize"); }

  uint32_t numInstances() override {
    int size = 0;
    Check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    return static_cast<uint32_t>(size);
  }
  uint32_t instanceIndex() override {
    int rank = 0;
    Check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    return static_cast<uint32_t>(rank);
  }

  void send(const void* data, size_t bytes, uint32_t to, uint32_t tag) override {
    Check(MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to),
                   static_cast<int>(tag), MPI_COMM_WORLD),
          "MPI_Send");
  }
  void receive(void* data, size_t bytes, uint32_t from, uint32_t tag) override {
    Check(MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(from),
                   static_cast<int>(tag), MPI_COMM_WORLD, MPI_STATUS_IGNORE),
          "MPI_Recv");
  }
};

}  // namespace

Backend* MpiBackend() {
  static OpenMpi backend;
  return &backend;
}

}  // namespace popdist
