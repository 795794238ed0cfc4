// Judges the write-ahead log (the -wal file) beside a database before SQLite opens it. SQLite reads
// a log up to the first frame that is not intact and passes over the rest without a word; that is
// right after a power cut, which can only tear the last transaction, and wrong when a disk or a
// person has damaged the log: acknowledged changes would be gone.
//
// Format: https://sqlite.org/fileformat2.html#walformat. A header (32 bytes, synced before the
// first frame) has two salts and a checksum; a frame is 24 bytes and a page. The checksum in a
// frame covers everything from the header to its own page, so it is also a fingerprint of its
// predecessors: if frame n + 1 continues the checksum of frame n, it was written behind exactly
// that frame n.
//
//   - Frames with other salts are older: the log is begun again, with new salts, once a checkpoint
//     has brought all of it into the database.
//   - A transaction is written and synced before the next one begins. So a frame that continues a
//     commit frame proves that the commit was complete. If that commit frame lies at or beyond the
//     first frame that is not intact, the log is damaged. A power cut never leaves such a pair, nor
//     do several power cuts one upon the other. Salts alone prove nothing: remains of torn
//     transactions keep them, commit frames included.
//   - Nor does a power cut leave frames that are newer than the header.
//   - A header that is not intact is harmless if the database holds all that the frames behind it
//     say: then the power failed while the log was begun again.
//
// The files alone cannot show that a log was cut short or deleted, nor damage without such a pair
// behind it, which means damage in the last transaction or the last two. The caller therefore says
// what it knows to have been acknowledged (running.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vpod::controller {

// The place in a log behind a commit.
struct WalPosition {
  uint32_t salt1 = 0, salt2 = 0;
  uint32_t frame = 0;  // from 1; 0: no commit
  uint32_t checksum1 = 0, checksum2 = 0;
  bool operator==(const WalPosition&) const = default;
};

enum class WalEnd {
  kMissing,          // no log, or an empty one
  kClean,            // the last commit is the end; what follows is older
  kTornTransaction,  // remains of transactions follow that were never acknowledged, or rolled back
  kTornHeader,       // not intact, and not needed: the database holds all of it
  kDamaged,  // acknowledged changes are in it and cannot be read; `why` says how it is known
};

struct WalReport {
  WalEnd end = WalEnd::kMissing;
  uint32_t page_size = 0;
  uint32_t frames = 0;          // complete ones in the file, older ones too
  uint32_t intact = 0;          // frames from the first on
  WalPosition last_commit;      // the last intact one; what SQLite reads ends here
  uint32_t transactions = 0;    // up to there
  uint32_t database_pages = 0;  // size of the database there
  uint32_t torn_frames = 0;     // of the present log, beyond the last commit
  uint32_t later_commit = 0;    // frame of a complete commit beyond the damage; 0: none is proven
  std::string why;  // for people, of kDamaged: "frame 7 of its -wal file is damaged, …"
  bool operator==(const WalReport&) const = default;
};

// A frame of the present log.
struct WalFrame {
  uint32_t number = 0;            // from 1
  uint32_t page = 0, commit = 0;  // commit: size of the database in pages, if it is a commit frame
  absl::string_view content;
};

// Judges the bytes of both files. `acknowledged`: a commit that the log, or the one begun after it,
// must have.
WalReport JudgeWal(absl::string_view database, absl::string_view log,
                   const std::optional<WalPosition>& acknowledged = std::nullopt);

// The frames of the log that are as they were written: each fits itself, or the frame before it.
// Not damaged ones, nor older ones. They point into `log`.
std::vector<WalFrame> IntactFrames(absl::string_view database, absl::string_view log);

// JudgeWal of the files `database` and `database`-wal, which are only read. Unavailable when they
// cannot be. Not while this process has the database open: closing a file ends the process's locks
// on it.
absl::StatusOr<WalReport> InspectWal(const std::string& database,
                                     const std::optional<WalPosition>& acknowledged = std::nullopt);

// The position of a commit frame of the log that `fd` is open on, as its writer knows it.
absl::StatusOr<WalPosition> ReadWalPosition(int fd, uint32_t page_size, uint32_t frame);

}  // namespace vpod::controller
