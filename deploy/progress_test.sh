#!/usr/bin/env bash
# progress_test PROGRESS BUILD TEST BAZELRC: what takes minutes shows that it goes on, on a terminal and elsewhere.
set -euo pipefail
progress=$(realpath "$1") build=$(realpath "$2") test=$(realpath "$3") bazelrc=$(realpath "$4")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }
on_terminal() { script -qec "$*" /dev/null </dev/null; }

# Elsewhere: lines of its own, without the command's output.
said=$(VPOD_PROGRESS_SECONDS=1 "$progress" "Work" sh -c 'for i in 1 2 3; do echo "step $i"; sleep 1; done' 2>&1)
[[ $said =~ ^Work:\ [0-9]+:[0-9]{2}\ step\ [1-3] ]] || fail "said: $said"
[ "$(grep -vc '^Work: ' <<<"$said")" = 0 ] || fail "more than lines of its own: $said"
# A quick command shows nothing.
[ -z "$("$progress" "Work" true 2>&1)" ] || fail "a line about nothing"
# A failure: the end of the output, and the status.
code=0
said=$("$progress" "Work" sh -c 'seq 100; exit 7' 2>&1) || code=$?
[ "$code" = 7 ] && [ "$(tail -n 1 <<<"$said")" = 100 ] && [ "$(wc -l <<<"$said")" = 20 ] || fail "status $code, said: $said"
# Interrupted: so is the command.
"$progress" "Work" sh -c 'echo $$ >"$0"; exec sleep 600' "$work/pid" &
until [ -s "$work/pid" ]; do sleep 0.05; done
kill -TERM $!
code=0
wait $! || code=$?
[ "$code" = 143 ] || fail "status $code of an interrupted command"
while kill -0 "$(cat "$work/pid")" 2>/dev/null; do sleep 0.05; done
# On a terminal: one line that changes.
if command -v script >/dev/null; then
  said=$(TERM=xterm on_terminal "'$progress' Work sh -c 'echo step 1; sleep 2'")
  [[ $said == *$'\r'*"Work 0:0"*" step 1"* ]] || fail "on a terminal: $(cat -v <<<"$said")"
fi

said=$(TERM=dumb VPOD_PROGRESS_SECONDS=1 "$progress" "Work" sh -c 'echo step 1; sleep 2' 2>&1)
[[ $said != *$'\033'* ]] || fail "escape codes without a terminal: $(cat -v <<<"$said")"

# Bazel gets the options of its configurations.
grep -q '^build:terminal --show_progress$' "$bazelrc" || fail "no configuration for terminals"
grep -q '^build:lines --show_progress --curses=no --show_progress_rate_limit=60$' "$bazelrc" || fail "no configuration of lines"
mkdir -p "$work/top/deploy" "$work/bin"
cp "$build" "$test" "$work/top/deploy/"
printf '#!/bin/sh\necho "$*" >>"%s/asked"\n' "$work" >"$work/bin/bazel"
for name in clang-format python3; do printf '#!/bin/sh\n' >"$work/bin/$name"; done
printf '#!/bin/sh\n' >"$work/top/deploy/install-packages"
printf '#!/bin/sh\necho 1 0 0\n' >"$work/top/deploy/count-cases"
chmod +x "$work"/bin/* "$work"/top/deploy/*
git -C "$work/top" init -q
export PATH=$work/bin:$PATH
asked() { grep -qE "^(build|test) --config=$1 " "$work/asked" || fail "$2: $(cat "$work/asked" "$work/said")"; }
for name in build test; do
  : >"$work/asked"
  "$work/top/deploy/$name" >"$work/said" 2>&1 || true
  asked lines "deploy/$name builds without a word"
  command -v script >/dev/null || continue
  : >"$work/asked"
  on_terminal "$work/top/deploy/$name" >"$work/said" || true
  asked terminal "deploy/$name on a terminal"
done
echo "progress is shown"
