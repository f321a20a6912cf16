#!/usr/bin/env python3
"""Writes what the program is made of as CycloneDX 1.5 JSON, from Cargo.lock: sbom.py > sbom.cdx.json

Needs the crates' sources, as they are after a build, and no network."""

import json
import os
import re
import subprocess
import sys


def host():
    text = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return next(line.split()[1] for line in text.splitlines() if line.startswith("host:"))


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    command += ["--filter-platform", host()]
    asked = subprocess.run(command, capture_output=True, text=True)
    if asked.returncode != 0:
        sys.exit(asked.stderr)
    found = json.loads(asked.stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}

    # What stands in the program: everything but what only builds or tests it.
    def runtime(node):
        for dependency in node["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                yield dependency["pkg"]

    root = found["resolve"]["root"]
    reached, todo = {root}, [root]
    while todo:
        for dependency in runtime(nodes[todo.pop()]):
            if dependency not in reached:
                reached.add(dependency)
                todo.append(dependency)

    def purl(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package, kind):
        return {
            "type": kind,
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
            "licenses": [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"] or "NOASSERTION")}],
        }

    inside = sorted((packages[id] for id in reached if id != root), key=purl)
    top = component(packages[root], "application")
    commit = os.environ.get("SPOTKEEPER_COMMIT")
    if commit:
        top["properties"] = [{"name": "commit", "value": commit}]
    json.dump(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": top},
            "components": [component(package, "library") for package in inside],
            "dependencies": [
                {
                    "ref": purl(packages[id]),
                    "dependsOn": sorted({purl(packages[d]) for d in runtime(nodes[id])}),
                }
                for id in sorted(reached, key=lambda id: purl(packages[id]))
            ],
        },
        sys.stdout,
        indent=1,
    )
    sys.stdout.write("\n")


main()
