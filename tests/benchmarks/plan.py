"""Time and memory of `vpod plan`, start of the program included: `vpod` is that of the path."""

import os
import subprocess
import sys
import time

MIB = 1 << 20
# The arguments, and what is aimed at: seconds, MiB.
PLANS = (
    ("bert-large --pod 65536 --ipus-per-replica 16 --accumulation 64", 1, 1024),
    ("resnet50 --pod 16 --search", 30, None),
)


def measure(arguments):
    """Returns seconds of wall time, seconds of all cores together, and peak resident bytes."""
    start = time.monotonic()
    process = subprocess.Popen(["vpod", "plan", *arguments.split()], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"plan.py: error: 'vpod plan {arguments}' ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main():
    for arguments, seconds_aim, memory_aim in PLANS:
        seconds, busy, peak = measure(arguments)
        memory = f", the aim is {memory_aim} MiB" if memory_aim else ""
        print(
            f"vpod plan {arguments}: {seconds:.2f} s, the aim is {seconds_aim} s ({busy:.2f} s of all cores together); "
            f"at most {peak / MIB:.0f} MiB{memory}",
            flush=True,
        )


if __name__ == "__main__":
    main()
