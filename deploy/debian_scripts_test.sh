#!/usr/bin/env bash
# debian_scripts_test FOLDER: the maintainer scripts of deploy/debian end well, whatever systemd says. Stand-ins take the place of
# the programs that would change this machine.
set -euo pipefail
scripts=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

mkdir -p "$work/bin" "$work/run/systemd/system"
export DPKG_ROOT=$work
# systemctl: notes what it is asked; the words in the file failing make it fail.
cat >"$work/bin/systemctl" <<END
#!/bin/sh
echo "\$*" >>"$work/asked"
for word in \$(cat "$work/failing"); do case " \$* " in *" \$word "*) echo "Job failed. See journalctl -xe." >&2; exit 1 ;; esac; done
END
printf '#!/bin/sh\necho version: 1.18.0\n' >"$work/bin/vipu"
for program in adduser install rm; do printf '#!/bin/sh\n' >"$work/bin/$program"; done
chmod +x "$work"/bin/*

# run SCRIPT ARGUMENT… with what fails in $failing
run() {
  : >"$work/asked"
  echo "${failing:-}" >"$work/failing"
  PATH=$work/bin:$PATH sh "$scripts/$1" "${@:2}" >"$work/said" 2>&1 || fail "$* ends with $? when systemctl fails at '${failing:-}': $(cat "$work/said")"
}
asked() { grep -qxF -- "$1" "$work/asked" || fail "systemctl was not asked: $1; but: $(cat "$work/asked")"; }
said() { grep -qF -- "$1" "$work/said" || fail "nobody said: $1; but: $(cat "$work/said")"; }

run postinst configure
run postinst configure 1.18.0
asked "try-restart vipu-server.service"
said "vipu-agent goes on with version 1.18.0"
failing=try-restart run postinst configure 1.18.0
said "vipu-server did not start again; see 'systemctl status vipu-server'"
said "vipu-agent goes on with version 1.18.0"
run postinst configure 1.17.9
said "vipu-server and vipu-agent go on with version 1.17.9"
! grep -q restart "$work/asked" || fail "a controller of another minor version was started"
failing=is-active run postinst configure 1.18.0
! grep -q restart "$work/asked" || fail "a service that did not run was started"
failing=daemon-reload run postinst configure 1.18.0
asked "try-restart vipu-server.service"
for arguments in "prerm remove" "prerm upgrade 1.18.0" "postrm remove" "postrm purge"; do
  failing="daemon-reload disable stop" run $arguments
done
# Without systemd nobody is asked.
rmdir "$work/run/systemd/system"
failing="" run postinst configure 1.18.0
[ ! -s "$work/asked" ] || fail "without systemd: $(cat "$work/asked")"
echo "the scripts end well"
