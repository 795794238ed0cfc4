#!/usr/bin/python3
"""Checks the IPUs of the active partition. Exit status: 0 all is well, 1 something is not, 2 nothing could be checked."""
import json
import sys

import gcipuinfo

health = json.loads(gcipuinfo.gcipuinfo().checkHealthOfDevices())
if "error" in health:
    print(f"gc_health_check: error: {health['error']}", file=sys.stderr)
    sys.exit(2)
for host, devices in health.get("hosts", {}).items():
    for device in devices:
        what = "does not answer" if device["error"] == "connection" else "reports an error"
        print(f"IPU {device['id']} of partition {device['partition']} ({host}, IPU# {device['board ipu index']}) {what}")
if not health:
    print("All IPUs are healthy.")
sys.exit(1 if health else 0)
