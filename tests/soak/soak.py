#!/usr/bin/env python3
"""A day of operation in a minute; see README.md beside this file."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from actors import (LAYOUTS_OF_4, LAYOUTS_OF_8, MAX_RUNS, Administrator, Jobs, Monitors,
                    OwnPartitionJobs, RoughJobs, job)
from records import Records, losses_of
from disturber import SHIFTS, Disturber
from flatness import report
from inspector import Inspector
from pod import Pod

HOURS = 24  # of a day


def parse():
    parser = argparse.ArgumentParser(description="A day of operation in a minute.")
    parser.add_argument("--minutes", type=float, default=1, help="days; one takes about a minute")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32),
                        help="repeats the operations of a run")
    parser.add_argument("--ipus", type=int, default=32, choices=[32, 64], help="size of the POD")
    parser.add_argument("--keep", action="store_true", help="keep the logs also when all is well")
    parser.add_argument("--own-shm", action="store_true", help="/dev/shm is nobody else's")
    parser.add_argument("--programs", nargs="+", required=True, help="folders with the programs")
    return parser.parse_args()


def make_cast(pod, records):
    """Partition "steady" lies on agents 0 and 1, which are never touched; "rough" on 2 and 3. The
    other agents belong to the administrators."""
    server = pod.server.name
    agents = [agent.name for agent in pod.agents]
    everything = [server, *agents]
    half = (len(agents) - 4) // 2
    return [
        Jobs("steady1", pod, records, [server], "steady", LAYOUTS_OF_4, 2),
        Jobs("steady2", pod, records, [server], "steady", LAYOUTS_OF_4, 2),
        RoughJobs("rough", pod, records, [server, *agents[2:4]], "rough", LAYOUTS_OF_8, 2),
        OwnPartitionJobs("own", pod, records, [server, *agents[4:]], None, LAYOUTS_OF_4, 1),
        Administrator("admin1", pod, records, everything,
                      [f"ag{n}" for n in range(4, 4 + half)], 6),
        Administrator("admin2", pod, records, everything,
                      [f"ag{n}" for n in range(4 + half, len(agents))], 6),
        Monitors("monitors", pod, records, everything, 5),
    ]


def prepare(pod, records):
    """The lasting partitions, and the losses of jobs that nothing disturbs."""
    for index, name in enumerate(("steady", "rough")):
        outcome = pod.run(["vipu-admin", "create", "partition", name, "--size", "8", "--index",
                           str(index), "--reconfigurable"])
        if outcome.code != 0:
            raise SystemExit(f"soak: error: {outcome.err}")
        records.partitions[name] = 8
    for _, replicas, ipus in LAYOUTS_OF_4 + LAYOUTS_OF_8:
        if (replicas, ipus) in records.losses:
            continue
        outcome = pod.run(job((1, replicas, ipus), MAX_RUNS, partition="steady"))
        records.losses[replicas, ipus] = losses_of(outcome.out)
        if outcome.code != 0 or len(records.losses[replicas, ipus]) != MAX_RUNS:
            raise SystemExit(f"soak: error: {outcome}")


def work(cast, disturber, hour, shift, seed):
    disturbed = disturber.prepare(hour, shift, seed)
    threads = [threading.Thread(target=actor.work, args=(hour, seed, disturbed))
               for actor in [*cast, disturber]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def shift_of(hour, hours):
    return SHIFTS[hour * len(SHIFTS) // hours]


def soak(pod, records, hours, seed, folders):
    pod.up()
    prepare(pod, records)
    cast = make_cast(pod, records)
    monitors = cast[-1]
    disturber = Disturber(pod, records, spared=2, faulty=[2, 3])
    inspector = Inspector(pod, records, folders)
    for hour in range(hours):
        start = time.monotonic()
        work(cast, disturber, hour, shift_of(hour, hours), seed)
        inspector.inspect(hour, monitors.running())
        print(f"hour {hour:3}  {shift_of(hour, hours):6}  {records.operations:5} operations  "
              f"{time.monotonic() - start:5.1f} s", flush=True)
        if len(records.wrong) >= 10:
            break
    monitors.end()
    return inspector.samples


def main():
    options = parse()
    # An interrupted run takes its POD down too. A shell that runs us in the background ignores
    # SIGINT, which our children must not inherit.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hours = max(len(SHIFTS) * 2, round(HOURS * options.minutes))
    directory = tempfile.mkdtemp(prefix="vpod-soak-")
    print(f"seed {options.seed}, {hours} hours on a POD{options.ipus}, logs in {directory}",
          flush=True)
    with open(f"{directory}/operations.log", "w") as log:
        records = Records(log)
        pod = Pod(options.programs, directory, options.ipus)
        try:
            folders = [pod.temporary] + (["/dev/shm"] if options.own_shm else [])
            samples = soak(pod, records, hours, options.seed, folders)
        finally:
            wrong = pod.down()
        for what in wrong:
            records.fail("end", what)
        text, grown = report(samples, lambda hour: shift_of(hour, hours) == "calm")
        print(text)
        for what in grown:
            records.fail("end", what)
    print(f"{records.operations} operations, {len(records.wrong)} wrong; seed {options.seed}")
    if not records.wrong and not options.keep:
        shutil.rmtree(directory)
    return 1 if records.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
