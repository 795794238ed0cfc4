// Bounds the headers of a call that a daemon is asked for. gRPC 1.51 keeps a header block until it
// is complete, however long it is, and copies all of it for each frame that continues it: three
// connections that sent megabytes of such frames kept all threads of a daemon busy for minutes
// (CVE-2023-33953, deploy/known-holes.txt). No option of gRPC bounds that. So functions
// of its HTTP/2 transport that are defined here take the place of the library's own, which they
// call: the dynamic linker prefers what a program defines. Programs that serve link this library;
// tests/security/http2_headers_test.cc shows that the bound holds. In the same way it tells
// OpenStreams of the streams of all servers.
#include <dlfcn.h>
#include <grpc/slice.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"
#include "server/rpc/open_streams.h"

class grpc_metadata_batch;
struct grpc_chttp2_transport;
struct grpc_chttp2_stream;
struct grpc_chttp2_stream_map;
struct grpc_endpoint;
struct grpc_transport;

grpc_endpoint* grpc_transport_get_endpoint(grpc_transport* transport);
absl::string_view grpc_endpoint_get_peer(grpc_endpoint* endpoint);

namespace grpc_core {

// What gRPC 1.51 declares in src/core/ext/transport/chttp2/transport/hpack_parser.h, as far as it
// is needed.
class HPackParser {
 public:
  enum class Boundary : uint8_t { kNone, kEndOfHeaders, kEndOfStream };
  enum class Priority : uint8_t {};
  struct LogInfo {
    uint32_t stream_id;
    uint8_t type;
    bool is_client;
  };
  void BeginFrame(grpc_metadata_batch* batch, uint32_t size_limit, Boundary boundary,
                  Priority priority, LogInfo info);
};

}  // namespace grpc_core

namespace vpod::rpc {
namespace {

// gRPC refuses calls with headers of more than 16 KiB, when it has them all.
constexpr size_t kMostBytes = 64 << 10;

// The library's own function of that name.
template <class Function>
Function* Original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Header blocks that are not complete, by the parser of their connection. Thread-safe.
class HeaderBlocks {
 public:
  // A frame of headers begins; `is_first` of its block.
  void Begin(const void* parser, bool is_first, bool is_last) ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(mutex_);
    Block& block = blocks_[parser];
    if (is_first) block.bytes = 0;
    block.in_last_frame = is_last;
  }
  // Bytes of the frame have come, and perhaps its end. False if its block is too long.
  bool Add(const void* parser, size_t bytes, bool ends_frame) ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(mutex_);
    const auto it = blocks_.find(parser);
    if (it == blocks_.end()) return true;  // an answer, in a client
    it->second.bytes += bytes;
    const bool fits = it->second.bytes <= kMostBytes;
    if (!fits || (ends_frame && it->second.in_last_frame)) blocks_.erase(it);
    return fits;
  }

 private:
  struct Block {
    size_t bytes = 0;
    bool in_last_frame = false;
  };

  base::Mutex mutex_;
  // A connection that ends within a block leaves its entry to the next parser at that address.
  std::map<const void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

HeaderBlocks& Blocks() {
  static HeaderBlocks* const blocks = new HeaderBlocks;  // gRPC's threads may outlast main
  return *blocks;
}

// Streams of servers, by the table in which gRPC has those of a connection. Thread-safe.
class StreamTables {
 public:
  void Begin(const void* table, std::string peer) ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(mutex_);
    peers_[table] = std::move(peer);
  }
  void End(const void* table) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::string peer;
    {
      base::MutexLock lock(mutex_);
      const auto it = peers_.find(table);
      if (it == peers_.end()) return;  // of a client
      peer = it->second;
    }
    OpenStreams::Get().End(peer);
  }
  void Forget(const void* table) ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(mutex_);
    peers_.erase(table);
  }

 private:
  base::Mutex mutex_;
  std::map<const void*, std::string> peers_ ABSL_GUARDED_BY(mutex_);
};

StreamTables& Tables() {
  static StreamTables* const tables = new StreamTables;  // gRPC's threads may outlast main
  return *tables;
}

// The frame that this thread is about to parse begins a stream, and with it a block.
thread_local bool begins_stream = false;
// The peer of which this thread accepts a stream.
thread_local const std::string* accepting = nullptr;

}  // namespace
}  // namespace vpod::rpc

grpc_chttp2_stream* grpc_chttp2_parsing_accept_stream(grpc_chttp2_transport* transport,
                                                      uint32_t id) {
  using Function = grpc_chttp2_stream*(grpc_chttp2_transport*, uint32_t);
  static Function* const original = vpod::rpc::Original<Function>(
      "_Z33grpc_chttp2_parsing_accept_streamP21grpc_chttp2_transportj");
  vpod::rpc::begins_stream = true;
  // gRPC's transport begins with a grpc_transport.
  const std::string peer(grpc_endpoint_get_peer(
      grpc_transport_get_endpoint(reinterpret_cast<grpc_transport*>(transport))));
  // gRPC passes over the frames of a stream that is none.
  if (!vpod::rpc::OpenStreams::Get().Begin(peer)) return nullptr;
  vpod::rpc::accepting = &peer;
  grpc_chttp2_stream* const stream = original(transport, id);
  vpod::rpc::accepting = nullptr;
  if (stream == nullptr) vpod::rpc::OpenStreams::Get().End(peer);
  return stream;
}

void grpc_chttp2_stream_map_add(grpc_chttp2_stream_map* table, uint32_t id, void* stream) {
  using Function = void(grpc_chttp2_stream_map*, uint32_t, void*);
  static Function* const original =
      vpod::rpc::Original<Function>("_Z26grpc_chttp2_stream_map_addP22grpc_chttp2_stream_mapjPv");
  original(table, id, stream);
  if (vpod::rpc::accepting != nullptr) vpod::rpc::Tables().Begin(table, *vpod::rpc::accepting);
}

void* grpc_chttp2_stream_map_delete(grpc_chttp2_stream_map* table, uint32_t id) {
  using Function = void*(grpc_chttp2_stream_map*, uint32_t);
  static Function* const original =
      vpod::rpc::Original<Function>("_Z29grpc_chttp2_stream_map_deleteP22grpc_chttp2_stream_mapj");
  void* const stream = original(table, id);
  if (stream != nullptr) vpod::rpc::Tables().End(table);
  return stream;
}

void grpc_chttp2_stream_map_destroy(grpc_chttp2_stream_map* table) {
  using Function = void(grpc_chttp2_stream_map*);
  static Function* const original =
      vpod::rpc::Original<Function>("_Z30grpc_chttp2_stream_map_destroyP22grpc_chttp2_stream_map");
  vpod::rpc::Tables().Forget(table);
  original(table);
}

void grpc_core::HPackParser::BeginFrame(grpc_metadata_batch* batch, uint32_t size_limit,
                                        Boundary boundary, Priority priority, LogInfo info) {
  using Function = void(HPackParser*, grpc_metadata_batch*, uint32_t, Boundary, Priority, LogInfo);
  static Function* const original = vpod::rpc::Original<Function>(
      "_ZN9grpc_core11HPackParser10BeginFrameEP19grpc_metadata_batchjNS0_8BoundaryENS0_"
      "8PriorityENS0_"
      "7LogInfoE");
  const bool is_first = std::exchange(vpod::rpc::begins_stream, false);
  if (!info.is_client) vpod::rpc::Blocks().Begin(this, is_first, boundary != Boundary::kNone);
  original(this, batch, size_limit, boundary, priority, info);
}

absl::Status grpc_chttp2_header_parser_parse(void* parser, grpc_chttp2_transport* transport,
                                             grpc_chttp2_stream* stream, const grpc_slice& slice,
                                             int is_last) {
  using Function =
      absl::Status(void*, grpc_chttp2_transport*, grpc_chttp2_stream*, const grpc_slice&, int);
  static Function* const original = vpod::rpc::Original<Function>(
      "_Z31grpc_chttp2_header_parser_parsePvP21grpc_chttp2_transportP18grpc_chttp2_streamRK10grpc_"
      "slicei");
  // gRPC ends the connection.
  if (!vpod::rpc::Blocks().Add(parser, GRPC_SLICE_LENGTH(slice), is_last != 0))
    return absl::ResourceExhaustedError("the headers of a call are too long");
  return original(parser, transport, stream, slice, is_last);
}
