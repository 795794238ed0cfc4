#!/usr/bin/env python3
"""Checks the documents: links and reachability, citations of files, sections and symbols in both directions, wording, and the
commands that they show.

    tests/docs/docs_test.py [--root DIR]                     what can be read
    tests/docs/docs_test.py --run --bin DIR [--page FILE]    also the commands of `console` blocks, on PODs of their own

Conventions (docs/README.md): a fenced block marked `console` has commands after "$ " (continued after "> ") and what they print.
A command ends with status 0, or with N where the comment "# exit N" ends its line. Blocks of a page run in order in one shell,
on a fresh POD16; the comment <!-- pod: WORDS --> on the page gives other words for `vpod up`, <!-- pod: none --> no POD. In what
is printed numbers, widths and the names in NAMES may differ; "…" stands for any text, alone on its line for any lines.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

SOURCES = (".cc", ".h", ".hpp", ".proto", ".py", ".sh", ".bzl", ".yml", ".tsv", ".cfg")
TOP = ("client", "deploy", "device", "docs", "proto", "server", "tests", "tools")
SKIPPED = ("bazel-", ".git", "dist", "testdata")
HARDWARE = "spec/hardware.md"
OWN = "tests/docs/"  # names what does not exist


class Tree:
    """The files of the repository."""

    def __init__(self, root):
        self.root = root
        self.files = {}  # relative path -> text, of what can be text
        for folder, names, files in os.walk(root):
            names[:] = [n for n in names if not n.startswith(SKIPPED) and n != "__pycache__"]
            for name in files:
                path = pathlib.Path(folder, name)
                relative = path.relative_to(root).as_posix()
                try:
                    self.files[relative] = path.read_text()
                except (UnicodeDecodeError, OSError):
                    self.files[relative] = ""
        self.code = {p: t for p, t in self.files.items() if not p.endswith(".md") and not p.startswith(OWN)}
        self.pages = {p: t for p, t in self.files.items() if p.endswith(".md")}
        self.all_code = "\n".join(self.code.values())
        self.words = set(re.findall(r"\w+", self.all_code))
        self.options = set(re.findall(r"[\w-]+", self.all_code))

    def exists(self, path):
        if any(c in path for c in "*{<"):
            return bool(self.glob(path))
        return (self.root / path).exists()

    def glob(self, path):
        options = re.search(r"\{([^}]*)\}", path)
        if options:
            return [hit for word in options.group(1).split(",")
                    for hit in self.glob(path.replace(options.group(0), word, 1))]
        return list(self.root.glob(re.sub(r"<[^>]*>", "*", path)))


def without_blocks(text):
    """The page without fenced and indented blocks, its lines kept."""
    out, fenced, before = [], False, ""
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        elif fenced or (line.startswith("    ") and (before == "" or before == "indented")
                        and not re.match(r"\s*([-*]|\d+\.) ", line)):
            line, before = "", "indented"
            out.append(line)
            continue
        before = line.strip() if not fenced else ""
        out.append(line)
    return "\n".join(out)


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def headings(text):
    return re.findall(r"^#+ +(.*?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), flags=re.M)


def sections(text):
    """Numbers of headings: '3', '8.3'; and, of spec/hardware.md, the labels F1 …"""
    numbers = set()
    for heading in headings(text):
        match = re.match(r"(\d+(?:\.\d+)*)(?:[–-](\d+))?\.? ", heading + " ")
        if match:
            numbers.add(match.group(1))
        ranged = re.match(r"(\d+)\.(\d+) Rules (\d+)[–-](\d+)", heading)
        if ranged:
            numbers.add(f"{ranged.group(1)}.{ranged.group(2)}")
    return numbers


def line_of(text, position):
    return text.count("\n", 0, position) + 1


# --- What can be read ---

def check_links(tree):
    """Every relative link leads to a file and a heading; every page is reachable from README.md."""
    targets = {}
    for page, text in tree.pages.items():
        found = targets.setdefault(page, set())
        for match in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", without_blocks(text)):
            link = match.group(1)
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            where = f"{page}:{line_of(without_blocks(text), match.start())}"
            if not (tree.root / target).exists():
                yield f"{where}: link to {link}, which does not exist"
                continue
            found.add(target)
            if anchor and target in tree.pages and anchor not in map(slug, headings(tree.pages[target])):
                yield f"{where}: {target} has no heading #{anchor}"
    reached, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        if page not in reached:
            reached.add(page)
            todo += [t for t in targets.get(page, ()) if t in tree.pages]
    for page in sorted(set(tree.pages) - reached):
        yield f"{page}: not reachable from README.md by links"


def check_citations_of_pages(tree):
    """Comments cite pages and sections that exist."""
    known = {page.removeprefix("docs/"): sections(text) for page, text in tree.pages.items() if page.startswith("docs/")}
    labels = set(re.findall(r"^\| (F\d+) \|", tree.pages.get("docs/" + HARDWARE, ""), flags=re.M))
    for path, raw in tree.files.items():
        if path.startswith(("docs/spec/", OWN)):
            continue
        text = re.sub(r"\n\s*(//|#)?(?: |$)", " ", raw) if not path.endswith(".md") else raw
        for match in re.finditer(r"\b(?:docs/)?(spec/[\w-]+\.md|[\w-]+\.md(?=,? section))"
                                 r"((?:,? (?:section |§ ?)?\d+(?:\.\d+)*(?:(?:,| to| and) \d+(?:\.\d+)*)*)?)(?:,? F(\d+))?", text):
            page, numbers, label = match.groups()
            page = page if "/" in page else f"spec/{page}"
            if not (path.endswith(".md") and "](" in text[match.start() - 2:match.start()]) and page not in known:
                yield f"{path}: cites {match.group(0).strip()!r}; docs/{page} does not exist"
                continue
            for number in re.findall(r"\d+(?:\.\d+)*", numbers or ""):
                if number not in known[page]:
                    yield f"{path}: cites {match.group(0).strip()!r}; docs/{page} has no section {number}"
            if label and f"F{label}" not in labels:
                yield f"{path}: cites {match.group(0).strip()!r}; docs/{page} has no default F{label}"
        for match in re.finditer(r"docs/([\w/-]+\.md)(?:, \"([^\"]+)\")?", text):
            page, heading = match.groups()
            if "docs/" + page not in tree.pages:
                yield f"{path}: cites docs/{page}, which does not exist"
            elif heading and heading not in headings(tree.pages["docs/" + page]):
                yield f"{path}: docs/{page} has no heading {heading!r}"
        if re.match(r"device/(arch|model|ipu)/|tools/", path) and path.endswith((".cc", ".h")):
            for comment in re.findall(r"//.*", raw):
                for label in re.findall(r"\bF\d{1,2}\b(?!16|32|64)", comment):
                    if label not in labels:
                        yield f"{path}: cites {label}; docs/{HARDWARE} has no such default"
        for match in re.finditer(r"\bDESIGN(?:\.md| §?\d)[^ ]*|shared/spec|issue \d+", raw):
            if not path.startswith(".") and path != "LICENSE":
                yield f"{path}:{line_of(raw, match.start())}: cites {match.group(0)!r}, which is not in the repository"


def spans(text):
    body = without_blocks(text)
    for match in re.finditer(r"`([^`\n]+)`", body):
        yield match.group(1), line_of(body, match.start())


def check_citations_of_code(tree):
    """Pages name files, targets, symbols, options and variables that exist."""
    for page, text in tree.pages.items():
        spec = page.startswith("docs/spec/")
        for span, line in spans(text):
            where = f"{page}:{line}"
            word = span.split()[0] if span.split() else ""
            if span.startswith("//") or word.startswith("//"):
                if not label_exists(tree, word):
                    yield f"{where}: target {word} does not exist"
                continue
            if re.match(rf"({'|'.join(TOP)})/[\w./*{{}}<>,@-]*$", word) and not (spec and word.startswith("docs/")):
                if not tree.exists(word.rstrip("/")):
                    yield f"{where}: {word} does not exist"
                continue
            if re.fullmatch(r"k[A-Z]\w+", span) and span not in tree.words:
                yield f"{where}: symbol {span} does not exist"
            if spec:
                continue
            if re.fullmatch(r"[A-Z]\w*(::~?\w+)+", span):
                owner, name = span.split("::")[-2:]
                if name not in tree.words or owner not in tree.words:
                    yield f"{where}: symbol {span} does not exist"
            elif re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z0-9]*)+", span) and span not in tree.words:
                yield f"{where}: symbol {span} does not exist"
            elif re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+(=.*)?", span):
                name = span.split("=")[0]
                if name not in tree.words and not composed(tree, name):
                    yield f"{where}: variable {name} does not occur in the code"
            for flag in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", span):
                if not {flag, "--" + flag} & tree.options:
                    yield f"{where}: option --{flag} does not occur in the code"
    faults = tree.pages.get("tests/system/FAULTS.md", "")
    for row in faults.split("\n"):
        cells = row.split("|")
        if len(cells) < 6:
            continue
        for name in re.findall(r"\b[A-Z][a-z]*(?:[A-Z][a-z]*){2,}\b", cells[-2]):
            if not re.search(rf"\w*{name}\b", " ".join(tree.words & {name})) and not any(w.endswith(name) for w in tree.words):
                yield f"tests/system/FAULTS.md: test {name} does not exist"


def composed(tree, name):
    """Names that the code puts together, as VIPU_CLI_ and a flag."""
    for prefix in ("VIPU_CLI_", "IPUOF_VIPU_API_", "OMPI_MCA_"):
        if name.startswith(prefix) and prefix in tree.all_code:
            return True
    return False


def label_exists(tree, label):
    if label.endswith("/...") or label == "//:BUILD":
        return True
    label = label.rstrip(".,")
    package, _, name = label[2:].partition(":")
    name = name or package.rsplit("/", 1)[-1]
    build = tree.files.get(f"{package}/BUILD" if package else "BUILD", "")
    return f'"{name}"' in build or bool(re.search(rf'"{re.escape(name)}"\s*:', build)) or \
        (package and (tree.root / package / name).exists())


BAD_STARTS = r"(?:^|(?<=[.!?] ))(Of|Those|Who|What)\s(?!is\b|are\b|changed\b|if\b)"
BAD_WORDS = r"\b(anew|whoever|is no (?!longer|more)\w+|are no (?!longer|more)\w+|stands (?!for\b))"


def check_wording(tree):
    """Plain English in pages for users (row 26): no dangling first words, no 'is no X', 'anew', 'stands'."""
    for page, text in tree.pages.items():
        if not (page.startswith("docs/") and not page.startswith("docs/spec/") or page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")):
            continue
        body = re.sub(r"`[^`\n]*`", "`code`", without_blocks(text))
        for number, line in enumerate(body.split("\n"), 1):
            if line.startswith("|") or line.startswith("#"):
                pieces = [c.strip() for c in line.strip("|").split("|")]
            else:
                pieces = [re.sub(r"^\s*(?:[-*]|\d+\.)\s+(?:\*\*[^*]*\*\*:?\s*)?", "", line)]
            for piece in pieces:
                # A line may begin in the middle of a sentence.
                start = BAD_STARTS if line.startswith(("-", "#")) else BAD_STARTS.replace("^|", "")
                for pattern in (start, BAD_WORDS):
                    if not line.startswith("|") or pattern is BAD_WORDS:
                        for match in re.finditer(pattern, piece):
                            yield f"{page}:{number}: wording: {match.group(0)!r} in {piece.strip()[:60]!r}"


BAD_MESSAGES = r"\b(anew|whoever|(?:is|are) none of|(?<!there )(?:is|are) no (?!longer|more)\w+)\b"


def check_messages(tree):
    """The same in what programs print: string literals of the sources, without tests."""
    for path, text in tree.code.items():
        if not path.startswith(("client/", "device/", "server/", "tools/")) or not path.endswith((".cc", ".h")) or path.endswith("_test.cc"):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', line.split("//")[0]):
                for match in re.finditer(BAD_MESSAGES, literal, re.IGNORECASE):
                    yield f"{path}:{number}: wording: {match.group(0)!r} in {literal[:60]!r}"


def check_glossary(tree):
    """Words stand below the head of their table, in alphabetical order."""
    page = "docs/glossary.md"
    rows = [(n, line.split("|")[1].strip()) for n, line in enumerate(tree.pages[page].split("\n"), 1) if line.startswith("|")]
    words = [(number, word.lower()) for number, word in rows[2:]]
    if [word for _, word in rows[:2]] != ["word", "---"]:
        yield f"{page}: the table does not begin with its head"
    for (_, before), (number, word) in zip(words, words[1:]):
        if word < before:
            yield f"{page}:{number}: '{word}' is not in alphabetical order"


CHECKS = (check_links, check_citations_of_pages, check_citations_of_code, check_wording, check_messages, check_glossary)


# --- What can be run ---

class Block:
    def __init__(self, line):
        self.line, self.commands = line, []  # (line, command, status, expected lines)


def blocks_of(text):
    block = None
    for number, line in enumerate(text.split("\n"), 1):
        if block is None:
            if line.strip() == "```console":
                block = Block(number)
        elif line.strip() == "```":
            yield block
            block = None
        elif line.startswith("$ "):
            status = re.search(r"#.*\bexit (\d+)\s*$", line)
            block.commands.append([number, line[2:], int(status.group(1)) if status else 0, []])
        elif line.startswith("> ") and block.commands and not block.commands[-1][3]:
            block.commands[-1][1] += "\n" + line[2:]
        elif block.commands:
            block.commands[-1][3].append(line)


class Shell:
    """One bash for all commands of a page."""

    MARK = "@docs_test@"

    def __init__(self, environment, directory):
        self.process = subprocess.Popen(["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=environment, cwd=directory, text=True,
                                        start_new_session=True, errors="replace")

    def run(self, command, limit):
        timer = threading.Timer(limit, lambda: os.killpg(self.process.pid, signal.SIGKILL))
        timer.start()
        try:
            # Braces: what a command reads is not the next command.
            self.process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n{self.MARK} %s\\n' $?\n")
            self.process.stdin.flush()
            lines = []
            for line in self.process.stdout:
                line = line.rstrip("\n")
                if line.startswith(self.MARK):
                    if lines and lines[-1] == "":
                        lines.pop()
                    return int(line.split()[1]), lines
                lines.append(line)
            return None, lines
        except BrokenPipeError:
            return None, []
        finally:
            timer.cancel()

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def normal(line, names):
    for name, value in names.items():
        line = line.replace(value, name)
    line = re.sub(r"\d+(?:\.\d+)*", "0", line)
    line = re.sub(r"-{2,}", "--", re.sub(r"={2,}", "==", line))
    return re.sub(r"\s+", " ", line).strip()


def matches(expected, actual, names):
    """The first difference, or nothing."""
    pattern = []
    for line in expected:
        if line.strip() == "…":
            pattern.append(r"(?:[^\n]*\n)*?")
        else:
            text = re.escape(normal(line, names)).replace("…", "[^\n]*")
            pattern.append(text + r"\n")
    text = "".join(normal(line, names) + "\n" for line in actual)
    if re.fullmatch("".join(pattern), text):
        return None
    return "expected:\n" + "\n".join("      " + e for e in expected) + "\n    printed:\n" + "\n".join("      " + a for a in actual)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_page(page, text, bin_directory, python_directory, limit):
    blocks = list(blocks_of(text))
    if not blocks:
        return []
    pod = re.search(r"<!-- pod: (.*?) -->", text)
    words = pod.group(1) if pod else "--pod 16"
    failures = []
    directory = tempfile.mkdtemp(prefix="docs_test.")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    environment = {"PATH": f"{bin_directory}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": directory,
                   "VPOD_HOME": directory + "/.vpod", "LC_ALL": "C.UTF-8", "TERM": "dumb", "USER": user,
                   "PYTHONPATH": python_directory, "TMPDIR": directory,
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    shell = Shell(environment, directory)
    names = {"/home/you": directory, "you": user}
    try:
        # A page may say `vpod up`: on a port that is free here.
        port = free_port()
        shell.run(f'vpod() {{ if [ "$1" = up ]; then command vpod "$@" --api-port {port}; else command vpod "$@"; fi; }}', limit)
        if words != "none":
            status, lines = shell.run(f'vpod up {words} && eval "$(vpod env)"', limit)
            if status != 0:
                return [f"{page}: no POD: {lines}"]
        for block in blocks:
            for line, command, expected_status, expected in block.commands:
                status, lines = shell.run(command, limit)
                if status is None:
                    return failures + [f"{page}:{line}: did not end within {limit} s: {command}"]
                if status != expected_status:
                    failures.append(f"{page}:{line}: ended with {status}, not {expected_status}: {command}\n    "
                                    + "\n    ".join(lines))
                    continue
                difference = matches(expected, lines, names)
                if difference:
                    failures.append(f"{page}:{line}: {command}\n    {difference}")
    finally:
        shell.close()
        subprocess.run(["vpod", "down"], env=environment, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(os.path.realpath(__file__)).parents[2])
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--only-run", action="store_true")
    parser.add_argument("--bin", default="")
    parser.add_argument("--python", default="")
    parser.add_argument("--page")
    parser.add_argument("--limit", type=float, default=300)
    options = parser.parse_args()
    tree = Tree(options.root.resolve())
    failures = []
    if not options.only_run:
        for check in CHECKS:
            failures += check(tree)
    commands = 0
    if options.run or options.only_run:
        for page, text in sorted(tree.pages.items()):
            if options.page in (None, page):
                commands += sum(len(block.commands) for block in blocks_of(text))
                failures += run_page(page, text, os.path.abspath(options.bin), os.path.abspath(options.python), options.limit)
    for failure in failures:
        print(failure)
    print(f"docs_test: {len(tree.pages)} pages, {commands} commands run, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
