#!/usr/bin/env bash
# The units load without a remark from systemd, are sandboxed, and keep what they promise: users of their own, a watchdog,
# limits.
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo "SKIPPED: no systemd-analyze (package systemd)"; exit 0; }

units=$(dirname "$0")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# A root with the units, what they start, and the targets and slices that any unit needs.
mkdir -p "$root/usr/bin" "$root/bin" "$root/usr/lib/systemd/system"
cp -RL "$units"/*.service "$units"/*.service.d /usr/lib/systemd/system/*.target /usr/lib/systemd/system/*.slice "$root/usr/lib/systemd/system"
! ls "$units"/*.slice >/dev/null 2>&1 || cp -L "$units"/*.slice "$root/usr/lib/systemd/system"
for daemon in usr/bin/vipu-server usr/bin/vipu-agent bin/kill; do
  install -m 755 /dev/null "$root/$daemon"
done

names=(vipu-server.service vipu-agent.service vipu-agent@.service vipu-agent@127.10.0.1.service)
remarks=$(systemd-analyze verify --root="$root" --man=no "${names[@]}" 2>&1) || remarks+=$'\nfailed'
[ -z "$remarks" ] || { echo "systemd-analyze verify: $remarks"; exit 1; }

for name in vipu-server vipu-agent vipu-agent@127.10.0.1; do
  # Exposure in tenths, 0 to 100; a service without a sandbox has 96.
  systemd-analyze security --offline=yes --root="$root" --threshold=25 --no-pager "$name.service" >"$root/report" ||
    { cat "$root/report"; exit 1; }
done

# The value of a setting in a unit with its drop-ins: the last one counts.
value() { cat "$root/usr/lib/systemd/system/vipu-.service.d"/*.conf "$root/usr/lib/systemd/system/$1" | sed -n "s/^$2=//p" | tail -n 1; }
bad=0
fail() { echo "error: $*"; bad=1; }
for unit in vipu-server.service vipu-agent.service vipu-agent@.service; do
  [ "$(value $unit Type)" = notify ] || fail "$unit does not tell when it serves"
  [ -n "$(value $unit WatchdogSec)" ] || fail "$unit has no watchdog"
  [ "$(value $unit StartLimitIntervalSec)" = 0 ] || fail "$unit stays down after some failures in a row"
  [ "$(value $unit Restart)" = on-failure ] || fail "$unit is not started again after a crash"
  [ "$(value $unit RestartPreventExitStatus)" = 2 ] || fail "$unit is started again and again with wrong options"
  [ -n "$(value $unit TasksMax)" ] || fail "$unit may have any number of threads"
  slice=$(value $unit Slice)
  [ -n "$(value $unit MemoryMax)" ] || { [ -n "$slice" ] && grep -q '^MemoryMax=' "$units/$slice"; } || fail "$unit may take all memory"
done
for unit in vipu-agent.service vipu-agent@.service; do
  [ "$(value $unit LimitNICE)" = -10 ] || fail "heartbeats of $unit wait with all other threads"
done
[ "$(value vipu-agent.service User)" = "$(value vipu-agent@.service User)" ] || fail "the agents' units have different users"
[ "$(value vipu-server.service User)" != "$(value vipu-agent.service User)" ] || fail "an agent can read the controller's database: both run as $(value vipu-agent.service User)"
[ "$(value vipu-server.service StateDirectory)" != "$(value vipu-agent.service StateDirectory)" ] || fail "agent and controller share a directory"
[ "$bad" = 0 ] || exit 1
echo "${#names[@]} units verified"
