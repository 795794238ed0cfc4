#include <mpi.h>

#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/popdist/collectives.hpp"
#include "client/popdist/context.hpp"

namespace popdist {
namespace {

enum class State { kNone, kRegistered, kInitialized, kFinalized };
State state = State::kNone;

void Check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw popdist_error(absl::StrCat(what, ": ", std::string(text, static_cast<size_t>(length))));
}

size_t SizeOf(Type type) {
  switch (type) {
    case Type::BOOL:
    case Type::UNSIGNED_CHAR:
      return 1;
    case Type::HALF:
      return 2;
    case Type::INT:
    case Type::UNSIGNED_INT:
    case Type::FLOAT:
      return 4;
    default:
      return 8;
  }
}

// What every instance says of the collective it takes part in; the root compares.
struct Header {
  char operation;  // 'B', 'S', 'G'
  uint32_t type;
  uint64_t count;
  uint32_t root;
  char id[64];
};

struct Exchange {
  Header header{};
  int rank = 0, size = 1, tag = 0;

  Exchange(char operation, size_t count, Type type, unsigned root, const std::string& id) {
    if (state != State::kInitialized)
      throw popdist_error("the communication backend is not initialised");
    if (count > static_cast<size_t>(std::numeric_limits<int>::max()) / SizeOf(type)) {
      throw popdist_error(absl::StrCat("collective '", id, "' is larger than 2 GiB"));
    }
    header.operation = operation;
    header.type = static_cast<uint32_t>(type);
    header.count = count;
    header.root = root;
    std::strncpy(header.id, id.c_str(), sizeof(header.id) - 1);
    Check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "rank");
    Check(MPI_Comm_size(MPI_COMM_WORLD, &size), "size");
    // Collectives of different ids travel under different tags, so that their order may differ.
    uint32_t hash = 2166136261u;
    for (char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    tag = static_cast<int>(hash % 30000);
  }

  bool IsRoot() const { return rank == 0; }

  // Every instance's header and `bytes` come to instance 0, which throws on all of them when they
  // differ.
  std::vector<std::vector<char>> GatherAtRoot(const void* data, size_t bytes) {
    std::vector<std::vector<char>> all(static_cast<size_t>(size));
    char good = 1;
    if (IsRoot()) {
      all[0].assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
      for (int other = 1; other < size; ++other) {
        Header theirs{};
        Check(MPI_Recv(&theirs, sizeof(theirs), MPI_BYTE, other, tag, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE),
              "receive");
        if (std::memcmp(&theirs, &header, sizeof(header)) != 0) good = 0;
      }
      for (int other = 1; other < size; ++other) {
        Check(MPI_Send(&good, 1, MPI_BYTE, other, tag, MPI_COMM_WORLD), "send");
      }
    } else {
      Check(MPI_Send(&header, sizeof(header), MPI_BYTE, 0, tag, MPI_COMM_WORLD), "send");
      Check(MPI_Recv(&good, 1, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "receive");
    }
    if (good == 0) {
      throw popdist_error(
          absl::StrCat("Tensor layouts did not match on all instances (", header.id, ")"));
    }
    if (IsRoot()) {
      for (int other = 1; other < size; ++other) {
        all[static_cast<size_t>(other)].resize(bytes);
        Check(MPI_Recv(all[static_cast<size_t>(other)].data(), static_cast<int>(bytes), MPI_BYTE,
                       other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
              "receive");
      }
    } else {
      Check(MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, 0, tag, MPI_COMM_WORLD), "send");
    }
    return all;
  }

  // Instance 0's `bytes` go to all.
  void Spread(void* data, size_t bytes) {
    if (IsRoot()) {
      for (int other = 1; other < size; ++other) {
        Check(MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, other, tag, MPI_COMM_WORLD),
              "send");
      }
    } else {
      Check(MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, 0, tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE),
            "receive");
    }
  }
};

template <class T, class Sum>
void AddUp(const std::vector<std::vector<char>>& all, size_t count, void* result) {
  for (size_t i = 0; i < count; ++i) {
    Sum sum{};
    for (const auto& bytes : all) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      sum += static_cast<Sum>(value);
    }
    const T rounded = static_cast<T>(sum);
    std::memcpy(static_cast<char*>(result) + i * sizeof(T), &rounded, sizeof(T));
  }
}

}  // namespace

void registerDefaultBackend() {
  if (state != State::kNone) throw popdist_error("the communication backend is registered already");
  state = State::kRegistered;
}

void initializeBackend() {
  if (state != State::kRegistered)
    throw popdist_error("register the communication backend once before initialising it");
  int provided = 0;
  Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  state = State::kInitialized;
}

bool isBackendInitialized() { return state == State::kInitialized; }

void finalizeBackend() {
  if (state != State::kInitialized)
    throw popdist_error("the communication backend is not initialised");
  state = State::kFinalized;
  Check(MPI_Finalize(), "MPI_Finalize");
}

namespace collectives {

void broadcast(void* data, size_t count, Type type, unsigned root, const std::string& id) {
  Exchange exchange('B', count, type, root, id);
  if (root >= static_cast<unsigned>(exchange.size)) {
    throw popdist_error(absl::StrCat("broadcast from instance ", root, " of ", exchange.size));
  }
  const size_t bytes = count * SizeOf(type);
  const auto all = exchange.GatherAtRoot(data, bytes);
  if (exchange.IsRoot()) std::memcpy(data, all[root].data(), bytes);
  exchange.Spread(data, bytes);
}

void allReduceSum(void* inout, size_t count, Type type, const std::string& id) {
  Exchange exchange('S', count, type, 0, id);
  const size_t bytes = count * SizeOf(type);
  const auto all = exchange.GatherAtRoot(inout, bytes);
  if (exchange.IsRoot()) {
    switch (type) {
      case Type::BOOL:
      case Type::UNSIGNED_CHAR:
        AddUp<unsigned char, uint32_t>(all, count, inout);
        break;
      case Type::INT:
      case Type::UNSIGNED_INT:
        AddUp<uint32_t, uint32_t>(all, count, inout);
        break;
      case Type::LONGLONG:
        AddUp<uint64_t, uint64_t>(all, count, inout);
        break;
      case Type::HALF:
        AddUp<_Float16, float>(all, count, inout);
        break;
      case Type::FLOAT:
        AddUp<float, float>(all, count, inout);
        break;
      case Type::DOUBLE:
        AddUp<double, double>(all, count, inout);
        break;
    }
  }
  exchange.Spread(inout, bytes);
}

void allGather(const void* in, void* out, size_t count_per_instance, Type type,
               const std::string& id, bool inplace) {
  Exchange exchange('G', count_per_instance, type, 0, id);
  const size_t bytes = count_per_instance * SizeOf(type);
  auto* target = static_cast<char*>(out);
  const void* ours = inplace ? target + static_cast<size_t>(exchange.rank) * bytes : in;
  const auto all = exchange.GatherAtRoot(ours, bytes);
  for (size_t instance = 0; exchange.IsRoot() && instance < all.size(); ++instance) {
    std::memcpy(target + instance * bytes, all[instance].data(), bytes);
  }
  exchange.Spread(out, bytes * static_cast<size_t>(exchange.size));
}

}  // namespace collectives
}  // namespace popdist
