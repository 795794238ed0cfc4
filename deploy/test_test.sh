#!/usr/bin/env bash
# test_test TEST COUNT-CASES: deploy/test reads all of its words before it does anything; the logs of a run that never was are counted,
# and say at the end what was skipped and what failed.
set -euo pipefail
test=$1 count=$2
fail() { echo "error: $*"; exit 1; }

code=0
said=$("$test" --package --nonsense 2>&1) || code=$?
[ "$code" = 2 ] && [[ $said == *"unknown argument '--nonsense'"* ]] || fail "exit status $code: $said"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/gtest.xml" <<'END'
<testsuites><testsuite name="A">
<testcase name="Passes" classname="A" status="run" result="completed" />
<testcase name="Fails" classname="A" status="run" result="completed"><failure message="a.cc:7&#x0A;Expected: 1" /></testcase>
<testcase name="Skips" classname="A" status="run" result="skipped"><skipped message="a.cc:7&#x0A;zsh is not installed" /></testcase>
</testsuite></testsuites>
END
# Bazel's own, of tests that write none.
shell_log() { echo "<testsuites><testsuite><testcase name='s' /><system-out>$1</system-out></testsuite></testsuites>"; }
shell_log $'a line\nSKIPPED: no man\n' >"$work/skips.xml"
shell_log $'it SKIPPED: nothing\n' >"$work/passes.xml"
echo "<testsuites><testsuite><testcase name='s'><error message='exited with error code 1'/></testcase><system-out>its last
words</system-out></testsuite></testsuites>" >"$work/fails.xml"
echo "<testsuites>" >"$work/killed.xml"
echo "not in this run" >"$work/other.xml"
for name in gtest skips passes fails killed; do
  echo "{\"id\":{\"testResult\":{\"label\":\"//x:$name\"}},\"testResult\":{\"testActionOutput\":[{\"name\":\"test.log\",\"uri\":\"file:///none\"},{\"name\":\"test.xml\",\"uri\":\"file://$work/$name.xml\"}]}}"
done >"$work/events"
echo '{"id":{"progress":{}},"progress":{}}' >>"$work/events"

expected="2 3 2
skipped: //x:gtest A.Skips: zsh is not installed
skipped: //x:skips: no man
failed: //x:fails: exited with error code 1: ...its last words
failed: //x:gtest A.Fails: a.cc:7 Expected: 1
failed: //x:killed: it was killed"
got=$("$count" "$work/events")
[ "$got" = "$expected" ] || fail "counted $got"$'\n'"instead of $expected"
