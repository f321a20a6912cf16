"""Looks for negative ages in what a world of tests/faketime/run.sh was shown: ages.py FOLDER"""

import json
import re
import sys
from pathlib import Path

# `-3m`, `in -2h`, `-1 s ago`: a minus right before a number with a unit of time, not inside a word
# or a date.
NEGATIVE = re.compile(r"(?<![\w.:-])-\d+(\.\d+)?\s*(ms|s|sec|m|min|h|d|days?|hours?)\b")


def numbers(value, path):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from numbers(inner, f"{path}[{at}]")
    elif isinstance(value, str):
        assert not NEGATIVE.search(value), f"{path}: {value}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


def main():
    folder, seen = Path(sys.argv[1]), 0
    for name in ("ps.json", "why.json", "describe.json"):
        for path, value in numbers(json.loads((folder / name).read_text()), name):
            seen += 1
            assert value >= 0, f"{path} is {value}"
    for name in ("ps.txt", "why.txt"):
        text = (folder / name).read_text()
        assert text.strip() and not NEGATIVE.search(text), f"{name}: {text}"
    assert seen > 5, "nothing was shown"


main()
