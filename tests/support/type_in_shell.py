"""Types into an interactive shell on a terminal of its own, as a person would.

type_in_shell.py SHELL SETUP KEYS: starts bash or zsh without anybody's configuration, runs the line SETUP, types KEYS (\\t is the
tabulator), and prints the command line that the shell then holds, without running it and without blanks at its end.
"""
import os
import pty
import re
import select
import sys
import time

LIMIT_S = 60


def main():
    shell, setup, keys = sys.argv[1:]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PS1="READY> ", PROMPT="READY> ", TERM="xterm", HISTFILE="/dev/null")
        os.execvp(shell, {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell])
    deadline = time.monotonic() + LIMIT_S
    seen = ""

    def wait_for(pattern):
        nonlocal seen
        while not (match := re.search(pattern, seen)):
            ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                sys.exit(f"{shell} did not show {pattern!r}; it showed {seen!r}")
            try:
                seen += os.read(terminal, 4096).decode(errors="replace")
                seen = re.sub("\x1b\\[[?0-9;]*[A-Za-z@]", "", seen)  # the terminal's control sequences
            except OSError:
                sys.exit(f"{shell} ended; it showed {seen!r}")
        seen = seen[match.end():]
        return match

    def send(text):
        os.write(terminal, text.encode())

    wait_for("READY> ")
    send(setup + "\n")
    send("echo SET''UP\n")
    wait_for(r"SETUP\r?\n")
    wait_for("READY> ")
    send(keys.replace("\\t", "\t"))
    # To the beginning of the line; what is there becomes the text of an echo.
    send("\x01echo 'LINE: \x05'\n")
    print(wait_for(r"[\r\n]LINE: (.*?) *\r?\n")[1])
    send("exit\n")
    os.waitpid(pid, 0)


main()
