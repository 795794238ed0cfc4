#!/usr/bin/env bash
# The units load without a remark from systemd, and are sandboxed.
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo "SKIPPED: no systemd-analyze (package systemd)"; exit 0; }

units=$(dirname "$0")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# A root with the units, what they start, and the targets that any unit needs.
mkdir -p "$root/usr/bin" "$root/usr/lib/systemd/system"
cp -RL "$units"/*.service "$units"/*.service.d /usr/lib/systemd/system/*.target "$root/usr/lib/systemd/system"
for daemon in vipu-server vipu-agent; do
  install -m 755 /dev/null "$root/usr/bin/$daemon"
done

names=(vipu-server.service vipu-agent.service vipu-agent@.service vipu-agent@127.10.0.1.service)
remarks=$(systemd-analyze verify --root="$root" --man=no "${names[@]}" 2>&1) || remarks+=$'\nfailed'
[ -z "$remarks" ] || { echo "systemd-analyze verify: $remarks"; exit 1; }

for name in vipu-server vipu-agent vipu-agent@127.10.0.1; do
  # Exposure in tenths, 0 to 100; a service without a sandbox has 96.
  systemd-analyze security --offline=yes --root="$root" --threshold=25 --no-pager "$name.service" >"$root/report" ||
    { cat "$root/report"; exit 1; }
done
echo "${#names[@]} units verified"
