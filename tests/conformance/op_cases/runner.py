"""Runs cases on the device, and compares."""

import json
import pathlib
import subprocess
import tempfile

import numpy

from .case import TYPES


def build():
    top = pathlib.Path(__file__).resolve().parents[3]
    subprocess.run(["bazel", "build", "//tests/conformance:run_cases"], cwd=top, check=True)
    return top / "bazel-bin/tests/conformance/run_cases"


def run(program, cases):
    """Runs the cases; gives for each its results as arrays, or an error."""
    data = bytearray()
    texts = []
    for case in cases:
        for step, array in case.data:
            step["at"] = len(data)
            data += array.tobytes()
        text = {"steps": case.steps, "results": [number for _, number, _, _ in case.wanted if number is not None]}
        if case.train:
            text["train"] = case.train
        texts.append(text)
    with tempfile.TemporaryDirectory() as directory:
        paths = [f"{directory}/{name}" for name in ("cases.json", "cases.data", "results.json", "results.data")]
        pathlib.Path(paths[0]).write_text(json.dumps(texts))
        pathlib.Path(paths[1]).write_bytes(data)
        subprocess.run([program, *paths], check=True)
        report = json.loads(pathlib.Path(paths[2]).read_text())
        data = pathlib.Path(paths[3]).read_bytes()
    for result in report["cases"]:
        for entry in result.get("results", []):
            dtype = TYPES[entry["type"]]
            count = int(numpy.prod(entry["dims"]))
            entry["array"] = numpy.frombuffer(data, dtype, count, entry["at"]).reshape(entry["dims"])
    return report


def mistake(case, result):
    """Says what is wrong with a case's results; None if nothing is."""
    if "error" in result:
        if case.error and case.error in result["error"]:
            return None
        return f"error: {result['error']}"
    if case.error:
        return f"is accepted, should be refused with '{case.error}'"
    for (label, _, type_name, check), entry in zip(case.wanted, result["results"]):
        wrong = check(entry["array"])
        if wrong:
            return f"{label} {type_name}{entry['dims']}: {wrong}"
    return None
