#!/usr/bin/env python3
"""collect_headers.py @ARGUMENTS, a file of lines: a directory, the names of headers, "--", and names and paths of all there are.
Copies these headers to the directory, and those that they include."""
import os
import re
import shutil
import sys

with open(sys.argv[1].removeprefix("@"), encoding="utf-8") as file:
    directory, *words = file.read().splitlines()
todo, rest = words[:words.index("--")], words[words.index("--") + 1:]
paths = dict(zip(rest[::2], rest[1::2]))
while todo:
    name = todo.pop()
    target = os.path.join(directory, name)
    if name not in paths or os.path.exists(target):  # another library's, or copied
        continue
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(paths[name], target)
    with open(target, encoding="utf-8") as file:
        todo += re.findall(r'^#include "([^"]+)"', file.read(), re.MULTILINE)
