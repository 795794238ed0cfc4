#!/usr/bin/env bash
# debian_mirror_test DEBIAN_MIRROR: the mirror is that of apt's sources, in both of their forms.
set -euo pipefail
debian_mirror=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

mkdir -p "$work"/{parts,lists/partial}
printf 'Dir::Etc::sourcelist "%s/sources.list";\nDir::Etc::sourceparts "%s/parts";\nDir::State::lists "%s/lists";\n' "$work" "$work" "$work" >"$work/apt.conf"
export APT_CONFIG=$work/apt.conf
expect() { # MIRROR SUITE
  [ "$("$debian_mirror" "$2")" = "$1" ] || fail "$2 comes from $("$debian_mirror" "$2"), not $1"
}

cat >"$work/sources.list" <<END
deb https://tools.example/node nodistro main
deb http://security.example/debian-security bookworm-security main
deb http://extra.example/debian bookworm contrib
deb [arch=amd64] http://mirror.example/debian/ bookworm main contrib
deb http://second.example/debian bookworm main
END
expect http://mirror.example/debian bookworm
code=0
"$debian_mirror" trixie 2>"$work/err" || code=$?
[ $code = 1 ] && grep -qx "debian-mirror: error: the apt sources of this machine have no suite trixie with component main" "$work/err" ||
  fail "trixie ends with $code: $(cat "$work/err")"
rm "$work/sources.list"
cat >"$work/parts/debian.sources" <<END
Types: deb
URIs: http://local.example/debian
Suites: bookworm bookworm-updates
Components: main
END
expect http://local.example/debian bookworm
expect http://local.example/debian bookworm-updates
echo "the mirror is that of apt's sources"
