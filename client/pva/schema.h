// Tables of profile.pop (docs/profiles.md).
#pragma once

#include <cstdint>

namespace vpod::pva {

inline constexpr int kProfileFormat = 3;
inline constexpr int64_t kMostRows = int64_t{1} << 23;  // of a table, for readers
inline constexpr char kProfileFile[] = "profile.pop";
// Keys of `meta`.
inline constexpr char kFirstRunLost[] = "firstRunLost";
inline constexpr char kMemoryOptions[] = "memoryOptions";
inline constexpr char kWeightsFromHost[] = "cyclesOfWeightsFromHost";
inline constexpr char kWeightsToHost[] = "cyclesOfWeightsToHost";

inline constexpr char kSchema[] = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE option(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE target(type TEXT, architecture TEXT, clockFrequency REAL, tilesPerIpu INTEGER,
  numIPUs INTEGER, numReplicas INTEGER, ipusPerReplica INTEGER, bytesPerTile INTEGER);
CREATE TABLE graph(numComputeSets INTEGER, numEdges INTEGER, numVars INTEGER, numVertices INTEGER);
CREATE TABLE operation(id INTEGER PRIMARY KEY, ipu INTEGER, name TEXT, scope TEXT, op TEXT,
  instruction TEXT, phase TEXT, stage INTEGER, executions INTEGER, compute INTEGER,
  exchange INTEGER, sync INTEGER, fromHost INTEGER, toHost INTEGER,
  fromStreamingMemory INTEGER, toStreamingMemory INTEGER, remoteBuffer INTEGER, flops REAL);
CREATE TABLE program(id INTEGER PRIMARY KEY, parent INTEGER, position INTEGER, ipu INTEGER,
  type TEXT, name TEXT, operation INTEGER, callee INTEGER, times INTEGER, compute INTEGER,
  exchange INTEGER, sync INTEGER, vertices INTEGER, tileBalance REAL, cyclesByTile BLOB);
CREATE TABLE variable(id INTEGER PRIMARY KEY, ipu INTEGER, name TEXT, type TEXT, bytes INTEGER,
  firstTile INTEGER, tiles INTEGER, bytesPerTile INTEGER, alwaysLive INTEGER, operation INTEGER,
  firstStep INTEGER, lastStep INTEGER, contents TEXT);
CREATE TABLE memory(ipu INTEGER, category TEXT, bytesByTile BLOB);
CREATE TABLE liveness_step(ipu INTEGER, step INTEGER, operation INTEGER, notAlwaysLive INTEGER,
  temporaryPerTile INTEGER);
CREATE TABLE stream(name TEXT, ipu INTEGER, direction TEXT, bytes INTEGER);
CREATE TABLE remote_buffer(id INTEGER PRIMARY KEY, ipu INTEGER, name TEXT, rows INTEGER,
  bytes INTEGER, scratch INTEGER);
CREATE TABLE step(ipu INTEGER, position INTEGER, operation INTEGER, cyclesFrom INTEGER,
  waiting INTEGER, cyclesTo INTEGER);
CREATE TABLE run(id INTEGER PRIMARY KEY, cycles INTEGER);
)";

}  // namespace vpod::pva
