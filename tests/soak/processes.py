"""Processes of this host: commands with their output and a limit, what a process holds, and what a
POD has left behind."""

import os
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass


@dataclass
class Outcome:
    code: int  # exit code, or minus the signal; None: it did not end within its limit
    out: str
    err: str


class Command:
    """A process in a session of its own. Its output goes to files, so that a child which outlives
    it does not keep us waiting."""

    def __init__(self, words, environment, directory):
        self.words = words
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        self.process = subprocess.Popen(
            words, env=environment, cwd=directory, stdin=subprocess.DEVNULL,
            stdout=self.files[0], stderr=self.files[1], start_new_session=True)

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.running():
            self.process.send_signal(number)

    def end(self, number, limit=20):
        self.signal(number)
        return self.wait(limit)

    def wait(self, limit):
        code = None
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        texts = []
        for file in self.files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        return Outcome(code, *texts)


def wait_for_end(pid, limit):
    """Waits for a process that need not be our child; False if it goes on."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(limit * 1000))
    finally:
        os.close(descriptor)


def within(limit, holds, pause=0.1):
    """Asks again and again; False when the limit passed without a yes. For what happens in
    processes that offer no event."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


@dataclass
class Holdings:
    """The resources that a process holds at a quiet moment."""

    resident: int  # bytes, all pages
    private: int  # bytes, of these the anonymous ones: what a leak of the heap makes grow
    shared: int  # bytes of memory segments and files of /dev/shm, open or mapped
    files: int  # descriptors
    threads: int


def holdings(pid):
    status = {}
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            key, _, value = line.partition(":")
            status[key] = value.split()
    segments = {}  # bytes by inode
    files = os.listdir(f"/proc/{pid}/fd")
    for name in files:
        try:
            path = f"/proc/{pid}/fd/{name}"
            if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                info = os.stat(path)
                segments[info.st_ino] = info.st_blocks * 512
        except OSError:
            pass  # closed meanwhile
    mapped = int(status["RssShmem"][0]) * 1024
    return Holdings(int(status["VmRSS"][0]) * 1024, int(status["RssAnon"][0]) * 1024,
                    max(mapped, sum(segments.values())), len(files), int(status["Threads"][0]))


def processes_of(home):
    """Command lines by pid of all processes that were started for the POD in `home`."""
    found = {}
    mark = f"VPOD_HOME={home}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # gone, or of another user
        if words:  # empty: a zombie, which waits for its parent
            found[int(name)] = words
    return found
