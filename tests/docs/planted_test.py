#!/usr/bin/env python3
"""Shows that docs_test finds what it should: plants violations in a copy of the repository, and expects each to be named. With --bin DIR also violations in commands, which need a POD."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(os.path.realpath(__file__)).parent

# File, text to add at its end, words of the failure.
READ = [
    ("device/arch/hardware.h", "// spec/vipu.md 99\n", "has no section 99"),
    ("device/arch/hardware.h", "// Two lines (spec/vipu.md 4,\n// 77).\n", "has no section 77"),
    ("device/arch/hardware.h", "// spec/nothing.md 1\n", "docs/spec/nothing.md does not exist"),
    ("device/arch/hardware.h", "// F77 of the model\n", "no such default"),
    ("device/arch/hardware.h", "// (DESIGN 3.4)\n", "which is not in the repository"),
    ("device/arch/hardware.h", "// docs/nothing.md says why.\n", "cites docs/nothing.md"),
    ("device/arch/hardware.h", '// docs/architecture.md, "No such heading".\n', "has no heading 'No such heading'"),
    ("deploy/test", "# spec/gc-tools.md 12.3\n", "has no section 12.3"),
    ("docs/security.md", "See `server/nothing.cc`.\n", "server/nothing.cc does not exist"),
    ("docs/security.md", "See `kNoSuchConstant`.\n", "kNoSuchConstant does not exist"),
    ("docs/security.md", "See `Agent::NoSuchCallAtAll`.\n", "Agent::NoSuchCallAtAll does not exist"),
    ("docs/security.md", "See `NoSuchFunction`.\n", "NoSuchFunction does not exist"),
    ("docs/security.md", "Give `--no-such-option-at-all`.\n", "--no-such-option-at-all does not occur"),
    ("docs/security.md", "Set `VPOD_NO_SUCH`.\n", "VPOD_NO_SUCH does not occur"),
    ("docs/security.md", "Run `//tools/nothing:nothing`.\n", "//tools/nothing:nothing does not exist"),
    ("docs/security.md", "Run `//server/http:nothing`.\n", "//server/http:nothing does not exist"),
    ("docs/security.md", "[there](nothing.md)\n", "link to nothing.md"),
    ("docs/security.md", "[there](formats.md#nothing)\n", "no heading #nothing"),
    ("docs/spec/hardware.md", "See `kGone`.\n", "kGone does not exist"),
    ("docs/glossary.md", "| abacus | A word that comes too late. |\n", "'abacus' is not in alphabetical order"),
    ("docs/island.md", "# Nobody links here\n", "docs/island.md: not reachable"),
    ("docs/security.md", "- Of these there are two.\n", "wording: 'Of '"),
    ("docs/security.md", "The agent starts anew.\n", "wording: 'anew'"),
    ("docs/security.md", "This is no file.\n", "wording: 'is no file'"),
    ("device/arch/hardware.h", 'inline constexpr char kText[] = "this is none of a, b";\n', "wording: 'is none of'"),
    ("tests/system/FAULTS.md", "| a | b | at once | jobs: NoSuchTestOfJobs |\n", "test NoSuchTestOfJobs does not exist"),
]

# Blocks to run, and words of the failure.
RUN = [
    ("$ echo one two\none three\n", "expected:"),
    ("$ echo one\n", "expected:"),
    ("$ false\n", "ended with 1, not 0"),
    ("$ true     # exit 1\n", "ended with 0, not 1"),
    ("$ sleep 60\n", "did not end within"),
    ("$ vipu list partitions\n Partition   | Kluster\n…\n", "expected:"),
]


def run(root, *words):
    return subprocess.run([sys.executable, HERE / "docs_test.py", "--root", root, *words], capture_output=True, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=str(HERE.parents[1]))
    parser.add_argument("--bin")
    options = parser.parse_args()
    found = missed = 0
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory, "tree")
        shutil.copytree(options.root, root, ignore=shutil.ignore_patterns("bazel-*", ".git", "dist"))
        clean = run(root)
        if clean.returncode != 0:
            print("the unchanged documents fail:\n" + clean.stdout)
            return 1
        before = {path: (root / path).read_text() if (root / path).exists() else None for path, _, _ in READ}
        for path, text, _ in READ:
            with open(root / path, "a") as file:
                file.write("\n" + text)
        result = run(root)
        for path, text in before.items():
            if text is None:
                (root / path).unlink()
            else:
                (root / path).write_text(text)
        for path, text, words in READ:
            good = result.returncode == 1 and words in result.stdout
            found, missed = found + good, missed + (not good)
            print("found " if good else "MISSED", path, text.strip().replace("\n", " / "))
        for block, words in RUN if options.bin else []:
            page = root / "docs/security.md"
            before = page.read_text()
            page.write_text(before + ("" if "vipu" in block else "\n<!-- pod: none -->\n") + "\n```console\n" + block + "```\n")
            result = run(root, "--only-run", "--bin", options.bin, "--page", "docs/security.md", "--limit",
                         "60" if "vipu" in block else "5")
            page.write_text(before)
            good = result.returncode == 1 and words in result.stdout
            found, missed = found + good, missed + (not good)
            print("found " if good else "MISSED", block.strip().replace("\n", " / "))
    print(f"planted_test: {found} violations found, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
