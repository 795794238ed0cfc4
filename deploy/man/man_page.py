#!/usr/bin/env python3
"""Makes a manual page of what a program says about itself.

man_page.py VERSION PROGRAM OUT.SECTION SUMMARY PAGE...: runs PROGRAM --help, and the --help of each command that it lists, and writes them as
a manual page. PAGE are the other pages. Helps of CLI11, of Boost.Program_options and of our own have the same anatomy: a usage line,
texts, and titles ending in a colon with indented two-column rows below.
"""
import os
import re
import subprocess
import sys
from collections import Counter

COMMAND_TITLES = ("Commands", "Subcommands")


def help_of(program, words=()):
    return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    # Alternatives that are wider than a page may break after each bar.
    text = text.replace("|", "|\\:") if len(text) > 80 else text
    return "\\&" + text if text[:1] in (".", "'") else text


def rows_of(lines):
    """Splits indented lines into (left, right) at the column where most right texts begin."""
    starts = [match.end() for line in lines if (match := re.match(r" +\S.*?\s{2,}(?=\S)", line))]
    column = Counter(starts).most_common(1)[0][0] if starts else sys.maxsize
    rows = []
    for line in lines:
        left, right = line[:column].strip(), line[column:].strip()
        if len(line) > column and not line[column - 1].isspace():  # too long for its column
            left, right = line.strip(), ""
        if left or not rows:
            rows.append([left, right])
        else:
            rows[-1][1] = (rows[-1][1] + " " + right).strip()
    return rows


def sections_of(text):
    """Usage, introduction, and (title, lines) in order; lines without a title have title None."""
    usage, introduction, sections = "", [], []
    for line in text.splitlines():
        if line.startswith("Flags of ") and "--help" in line:
            continue  # a hint for those who read the help; the page has it all
        title = re.fullmatch(r"(\S[^:]*):", line)
        if line.startswith("Usage: "):
            usage = line[len("Usage: "):]
        elif title:
            sections.append((title[1], []))
        elif line.startswith(" ") and sections and sections[-1][0] is not None:
            sections[-1][1].append(line)
        elif line.strip():
            if not sections:
                introduction.append(line)
                continue
            if sections[-1][0] is not None:
                sections.append((None, []))
            sections[-1][1].append(line)
    return usage, introduction, sections


def render_rows(lines):
    page = []
    for left, right in rows_of(lines):
        page += [".TP", "\\fB" + escape(left) + "\\fP", escape(right) if right else "\\&"]
    return page


def render_texts(lines):
    return [".PP"] + [escape(line) for line in lines] if lines else []


def render_command(program, words):
    usage, introduction, sections = sections_of(help_of(program, words))
    page = [f'.SS "{escape(" ".join(words))}"', "\\fB" + escape(usage) + "\\fP"] + render_texts(introduction)
    for title, lines in sections:
        if title is None:
            page += render_texts(lines)
        else:
            page += ([] if title in ("Flags", "Options") else [".PP", escape(title) + ":"]) + render_rows(lines)
    return page


def render(version, program, name, section, summary, others):
    usage, introduction, sections = sections_of(help_of(program))
    page = [
        f'.TH {escape(name.upper())} {section} "" "Virtual IPU\\-POD {version}"',
        ".ad l",  # a line without spaces cannot be adjusted
        ".SH NAME", escape(f"{name} - {summary}"),
        ".SH SYNOPSIS", "\\fB" + escape(usage) + "\\fP",
    ]
    if introduction:
        page += [".SH DESCRIPTION"] + [escape(line) for line in introduction]
    for title, lines in sections:
        if title is None:
            page += render_texts(lines)
        elif title in COMMAND_TITLES:
            page += [".SH COMMANDS"]
            for left, _ in rows_of(lines):
                page += render_command(program, [word for word in left.split() if re.fullmatch("[a-z][a-z-]*", word)])
        else:
            page += [f'.SH "{escape(title.upper())}"'] + render_rows(lines)
    page += [".SH SEE ALSO", ",\n".join(f"\\fB{escape(other[:-2])}\\fP({other[-1]})" for other in others)]
    return "\n".join(page) + "\n"


def main():
    version, program, out, summary, *pages = sys.argv[1:]
    name, section = os.path.basename(out).rsplit(".", 1)
    others = sorted(page for page in pages if page != f"{name}.{section}")
    with open(out, "w", encoding="utf-8") as file:
        file.write(render(version, program, name, section, summary, others))


main()
