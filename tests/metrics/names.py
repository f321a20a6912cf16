"""Every figure that the rules and the board ask for is documented, and every one on the page too."""

import json
import re
import sys

root, page = sys.argv[1:]
documented = set(re.findall(r"^\| `(\w+)` \|", open(f"{root}/docs/metrics.md").read(), re.M))
shown = set(re.findall(r"^# TYPE (\w+) ", open(page).read(), re.M))
assert shown and shown <= documented, shown - documented
board = json.load(open(f"{root}/docs/monitoring/grafana.json"))
asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
asked.append(open(f"{root}/docs/monitoring/rules.yml").read())
for text in asked:
    for name in re.findall(r"\b(?:spotkeeper|process)_\w+", text):
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in documented or plain in documented, f"{name} is no figure"
ids = [panel["id"] for panel in board["panels"]]
assert len(ids) == len(set(ids)), "two panels with one id"
print(f"{len(shown)} figures on the page, {len(documented)} documented")
