#!/usr/bin/python3
"""Prints the power of the active partition's IPUs once a second: gc_power_consumption.py [SAMPLES].

Power is known of IPUs that no program holds, and of those whose program runs with GCDA_MONITOR=1.
"""
import sys
import time

import gcipuinfo

samples = int(sys.argv[1]) if len(sys.argv) > 1 else 10
info = gcipuinfo.gcipuinfo()
if not info.getDevices():
    print(f"gc_power_consumption: error: no devices: {info.checkHealthOfDevices()}", file=sys.stderr)
    sys.exit(1)
for sample in range(samples):
    if sample > 0:
        time.sleep(1)
    if not info.updateData():
        print("gc_power_consumption: warning: an agent does not answer, the values are old", file=sys.stderr)
    values = info.getNamedAttributeForAll(gcipuinfo.IpuPower)
    watts = [float(value.removesuffix(" W")) for value in values if value != "N/A"]
    total = f"{sum(watts):.1f} W" if watts else "N/A"
    print(f"{total} ({len(watts)} of {len(values)} IPUs measured)", flush=True)
