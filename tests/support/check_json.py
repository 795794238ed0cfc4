#!/usr/bin/env python3
"""Checks JSON against docs/schema.

check_json.py SCHEMA DEFINITION <document: ends with 1 and a line for each violation.
check_json.py --lines SCHEMA DEFINITION <documents: one document a line, at least one.
"""
import json
import sys

import jsonschema


def main():
    by_line = sys.argv[1] == "--lines"
    path, definition = sys.argv[1 + by_line:]
    with open(path, encoding="utf-8") as file:
        schema = json.load(file)
    if definition not in schema["$defs"]:
        sys.exit(f"{path} has no definition {definition}")
    validator = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})
    text = sys.stdin.read()
    violations = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
                  for document in (text.splitlines() if by_line else [text])
                  for error in validator.iter_errors(json.loads(document))]
    if not text.strip():
        violations.append("no document")
    print("\n".join(violations), end="")
    sys.exit(bool(violations))


main()
