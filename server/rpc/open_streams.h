// Streams of HTTP/2 that clients have begun at the servers of this process. Each is a call, of
// which gRPC tells nobody before its only message is complete: who bounds what calls take has to
// look for itself.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "device/base/mutex.h"

namespace vpod::rpc {

// Thread-safe. header_limit.cc calls Begin and End; a program that does not link that hears
// nothing.
class OpenStreams {
 public:
  // A stream begins (1) or ends (-1) on the connection of a peer, as gRPC names it. False: it must
  // not begin. Called under a lock; must not call back.
  using Observer = std::function<bool(const std::string& peer, int change)>;

  static OpenStreams& Get() {
    static OpenStreams* const streams = new OpenStreams;  // gRPC's threads may outlast main
    return *streams;
  }

  void Add(const void* owner, Observer observer) {
    base::MutexLock lock(mutex_);
    observers_[owner] = std::move(observer);
  }
  // The observer of that owner is not called any more.
  void Remove(const void* owner) {
    base::MutexLock lock(mutex_);
    observers_.erase(owner);
  }
  bool Begin(const std::string& peer) { return Tell(peer, 1); }
  void End(const std::string& peer) { Tell(peer, -1); }

 private:
  bool Tell(const std::string& peer, int change) {
    base::MutexLock lock(mutex_);
    bool goes_on = true;
    for (const auto& [owner, observer] : observers_) goes_on = observer(peer, change) && goes_on;
    return goes_on;
  }

  base::Mutex mutex_;
  std::map<const void*, Observer> observers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::rpc
