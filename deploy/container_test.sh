#!/usr/bin/env bash
# container_test RUN_POD HEALTHY: the program of the container with a whole POD ends when it is told to, and when a daemon has ended,
# where a stand-in for vpod keeps the state of the POD in files; and the health check tells a daemon that is well from others.
set -euo pipefail
run_pod=$(realpath "$1") healthy=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

mkdir "$work/bin"
cat >"$work/bin/vpod" <<END
#!/bin/sh
case "\$1" in
  up) touch "$work/runs" "$work/vipu-server.log" "$work/vipu-agent.log" ;;
  status) [ -e "$work/runs" ] && exit; echo "State: in part: vipu-agent"; exit 1 ;;
  down) touch "$work/down" ;;
esac
END
chmod +x "$work/bin/vpod"
export PATH=$work/bin:$PATH VPOD_HOME=$work VPOD_IPUS=4 VPOD_CHECK_SECONDS=0.1

start() {
  rm -f "$work/down" "$work/runs"
  "$run_pod" >"$work/out" 2>"$work/err" &
  pod=$!
  for _ in $(seq 600); do [ ! -e "$work/runs" ] || return 0; sleep 0.1; done
  fail "run-pod starts no POD"
}
# Fails if run-pod still runs after a minute.
ended_with() {
  for _ in $(seq 600); do kill -0 $pod 2>/dev/null || break; sleep 0.1; done
  ! kill -0 $pod 2>/dev/null || { kill -KILL $pod; fail "$2: run-pod goes on"; }
  local code=0
  wait $pod || code=$?
  [ $code = "$1" ] || fail "$2: run-pod ends with $code: $(cat "$work/err")"
  [ -e "$work/down" ] || fail "$2: the POD was not brought down"
}

start
rm "$work/runs"
ended_with 1 "after the end of a daemon"
grep -q "run-pod: error: a daemon of the POD has ended: State: in part: vipu-agent" "$work/err" || fail "nobody says why: $(cat "$work/err")"
start
kill -TERM $pod
ended_with 0 "after SIGTERM"

# A server that answers with the statuses of its arguments, one after the other.
cat >"$work/server.py" <<'END'
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[self.server.answered + 1]) if self.path == "/healthz" else 404)
        self.end_headers()
        self.server.answered += 1
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
server.answered = 0
print(server.server_port, flush=True)
while server.answered < len(sys.argv) - 1: server.handle_request()
END
exec 4< <(/usr/bin/python3 "$work/server.py" 200 503)
read -r port <&4
"$healthy" "$port" || fail "a daemon that is well"
! "$healthy" "$port" 2>"$work/err" || fail "a daemon that is not well"
grep -q "port $port says .* 503" "$work/err" || fail "nobody says why: $(cat "$work/err")"
while read -r rest <&4; do :; done # the server has ended
! "$healthy" "$port" 2>/dev/null || fail "a port without a daemon"
echo "run-pod ends with its POD, and the health check tells a daemon that is well"
