#!/usr/bin/env python3
"""Compares the CreateJob bodies of the SDK with those of spotkeeper, pair by pair.

Usage: compare.py FOLDER_OF_THE_EMULATOR. Its ledger has them in turn: the SDK's, then spotkeeper's.
Every difference that is meant has a name here; any other one fails.
"""

import json
import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
bodies = [json.loads((folder / line["request"]).read_text())
          for line in lines if line["event"] == "create"]
assert len(bodies) == 4, len(bodies)


def empty_lists(sdk, ours):
    def drop(value):
        if isinstance(value, dict):
            return {k: drop(v) for k, v in value.items() if v != []}
        return [drop(v) for v in value] if isinstance(value, list) else value
    kept = drop(sdk)
    sdk.clear()
    sdk.update(kept)


def mark(sdk, ours):
    name, found = re.subn(r"\.sk[a-z0-9]{6}-[a-z2-7]{10}$", "", ours["DisplayName"])
    assert found == 1, ours["DisplayName"]
    ours["DisplayName"] = name


def tag(sdk, ours):
    settings = ours.pop("Settings")
    assert list(settings) == ["Tags"] and list(settings["Tags"]) == ["spotkeeper"], settings


def variables(sdk, ours):
    envs = ours.pop("Envs")
    assert all(name.startswith("SPOTKEEPER_") for name in envs), envs


def launcher(sdk, ours):
    quoted = sdk["UserCommand"].replace("'", "'\\''")
    assert f"eval '{quoted}')&" in ours["UserCommand"], ours["UserCommand"]
    ours["UserCommand"] = sdk["UserCommand"]


DIFFERENCES = [
    ("empty lists of the SDK", empty_lists),
    ("the mark at the end of DisplayName", mark),
    ("the tag spotkeeper", tag),
    ("the variables SPOTKEEPER_*", variables),
    ("the launcher around UserCommand; without [checkpoint] there is no resume argument", launcher),
]

for sdk, ours in zip(bodies[0::2], bodies[1::2]):
    for name, undo in DIFFERENCES:
        undo(sdk, ours)
        print(f"difference: {name}")
    assert sdk == ours, f"\nSDK:        {json.dumps(sdk)}\nspotkeeper: {json.dumps(ours)}"
    print(f"equal otherwise: {json.dumps(sdk, ensure_ascii=False)}")
