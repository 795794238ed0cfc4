// Jobs for the tests of collectives: processes as objects of one, each with a transport and threads
// that compute, and tensors in memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/mutex.h"
#include "device/fabric/collectives.h"
#include "device/fabric/memory_transport.h"

namespace vpod::fabric {

// Two threads that compute.
class Pool {
 public:
  Pool() {
    for (std::thread& thread : threads_) thread = std::thread([this] { Work(); });
  }
  ~Pool() { Stop(); }
  void Stop() {
    {
      base::MutexLock lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  void Post(std::function<void()> task) {
    {
      base::MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Work() {
    for (;;) {
      std::function<void()> task;
      {
        base::MutexLock lock(mutex_);
        lock.Wait(changed_, [this] { return stopped_ || !tasks_.empty(); });
        if (stopped_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread threads_[2];
};

// One tensor in memory, element by element.
struct View {
  std::byte* data;
  Element element;

  double Float(size_t i) const {
    if (element == Element::kFloat16) return static_cast<double>(At<_Float16>(i));
    return element == Element::kFloat32 ? static_cast<double>(At<float>(i)) : At<double>(i);
  }
  template <class T>
  T At(size_t i) const {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void Set(size_t i, T value) {
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
  void SetFloat(size_t i, double value) {
    if (element == Element::kFloat16) return Set(i, static_cast<_Float16>(value));
    if (element == Element::kFloat32) return Set(i, static_cast<float>(value));
    Set(i, value);
  }
};

struct Case {
  Kind kind = Kind::kAllReduce;
  Operator op = Operator::kSum;
  double scale = 1;
  size_t root = 0;
  uint32_t replicas = 8;
  uint32_t stride = 1, size = 8;  // of the groups
  bool in_place = false;
  std::vector<CollectiveTensor> tensors;  // elements and types; offsets are set by Layout
};

inline size_t OutElements(const Case& c, const CollectiveTensor& tensor) {
  if (c.kind == Kind::kReduceScatter) return tensor.elements / c.size;
  return c.kind == Kind::kAllGather ? tensor.elements * c.size : tensor.elements;
}

// Sets the offsets; returns the bytes of an arena.
inline size_t Layout(Case& c) {
  size_t at = 0;
  const auto place = [&](size_t bytes) {
    const size_t offset = at;
    at = (at + bytes + 63) / 64 * 64;
    return offset;
  };
  for (CollectiveTensor& tensor : c.tensors) {
    tensor.in_offset = place(tensor.elements * ElementBytes(tensor.in));
    tensor.out_offset =
        c.in_place ? tensor.in_offset : place(OutElements(c, tensor) * ElementBytes(tensor.out));
  }
  return at;
}

using Arenas = std::vector<std::vector<std::byte>>;

inline Arenas RandomArenas(const Case& c, size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  Arenas arenas(c.replicas, std::vector<std::byte>(bytes));
  for (auto& arena : arenas) {
    for (const CollectiveTensor& tensor : c.tensors) {
      View view{arena.data() + tensor.in_offset, tensor.in};
      std::uniform_real_distribution<double> uniform(-4, 4);
      for (size_t i = 0; i < tensor.elements; ++i) {
        if (tensor.in == Element::kInt32) {
          view.Set(i, static_cast<uint32_t>(random()));
        } else {
          view.SetFloat(i, uniform(random) * (random() % 5 == 0 ? 1e-5 : 1));
        }
      }
    }
  }
  return arenas;
}

// A job of several processes, each with a transport and compute threads of its own.
class Processes {
 public:
  // `domain_of` are the IPU-Link domains of the processes; empty: all are in one.
  Processes(const std::vector<uint32_t>& process_of, bool shared, Arenas& arenas,
            const std::vector<uint32_t>& domain_of = {})
      : process_of_(process_of), arenas_(arenas) {
    const size_t count = *std::max_element(process_of.begin(), process_of.end()) + 1;
    std::map<std::string, MemoryTransport*> peers;
    std::vector<Site> sites(count);
    std::map<std::string, std::string> address_of;
    for (uint32_t p = 0; p < count; ++p) {
      transports_.push_back(std::make_unique<MemoryTransport>(p + 17));
      pools_.push_back(std::make_unique<Pool>());
      sites[p].endpoint = absl::StrCat("process ", p);
      sites[p].name = absl::StrCat("the agent at process ", p);
      address_of[sites[p].endpoint] = sites[p].endpoint;
      if (!domain_of.empty()) sites[p].domain = domain_of[p];
      peers[sites[p].endpoint] = transports_[p].get();
    }
    for (uint32_t r = 0; r < process_of.size(); ++r) sites[process_of[r]].units.push_back(r);
    failures_.resize(count);
    for (uint32_t p = 0; p < count; ++p) {
      CollectivesOptions options;
      options.token = std::string(kTokenBytes, 't');
      options.total_replicas = static_cast<uint32_t>(process_of.size());
      options.sites = sites;
      options.here = p;
      for (uint32_t r = 0; shared && r < process_of.size(); ++r) {
        if (process_of[r] != p) options.arenas[r] = absl::MakeSpan(arenas[r]);
      }
      options.transport = transports_[p].get();
      options.compute = [pool = pools_[p].get()](std::function<void()> task) {
        pool->Post(std::move(task));
      };
      options.fail = [this, p](const absl::Status& status) {
        {
          base::MutexLock lock(mutex_);
          if (failures_[p].ok()) failures_[p] = status;
        }
        // A job ends everywhere: a process that sees the error first may not have told the others
        // that it has come.
        for (auto& collectives : collectives_) collectives->Fail(status);
      };
      collectives_.push_back(std::make_shared<Collectives>(std::move(options)));
      collectives_.back()->Begin(address_of);
    }
    for (uint32_t p = 0; p < count; ++p) {
      transports_[p]->Connect(peers, [this, p](absl::string_view header, size_t bytes) {
        return collectives_[p]->OnMessage(header, bytes);
      });
    }
  }
  ~Processes() {
    for (auto& transport : transports_) transport->Stop();
    for (auto& pool : pools_) pool->Stop();
  }

  size_t count() const { return collectives_.size(); }
  Collectives& at(size_t process) { return *collectives_[process]; }
  MemoryTransport& transport(size_t process) { return *transports_[process]; }
  absl::Status failure(size_t process) {
    base::MutexLock lock(mutex_);
    return failures_[process];
  }

  // The part of `process` in a collective of `group`; false when it has none.
  bool Arrive(size_t process, const Case& c, const ReplicaGroup& group, uint64_t sequence = 0,
              const std::string& what = "test", const absl::Status& failure = {}) {
    Collective collective{.kind = c.kind, .op = c.op, .scale = c.scale, .root = c.root};
    for (uint32_t r = 0; r < process_of_.size(); ++r) {
      if (process_of_[r] != process || !group.Contains(r)) continue;
      collective.replicas.push_back(r);
      collective.arenas.push_back(arenas_[r].data());
      collective.clock = 100 + r;
    }
    if (collective.replicas.empty()) return false;
    collective.tensors = c.tensors;
    collective.what = what;
    collective.failure = failure;
    {
      base::MutexLock lock(mutex_);
      ++awaited_;
    }
    collectives_[process]->Run({0, 0, sequence, group}, std::move(collective),
                               [this](absl::StatusOr<Outcome> outcome) {
                                 base::MutexLock lock(mutex_);
                                 results_.push_back(std::move(outcome));
                                 changed_.notify_all();
                               });
    return true;
  }
  // The results of all that arrived.
  std::vector<absl::StatusOr<Outcome>> Results() {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [this] { return results_.size() == awaited_; });
    return results_;
  }

 private:
  const std::vector<uint32_t> process_of_;
  Arenas& arenas_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  size_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::StatusOr<Outcome>> results_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> failures_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<MemoryTransport>> transports_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<std::shared_ptr<Collectives>> collectives_;
};

}  // namespace vpod::fabric
