"""Prints a market that releases a job at random moments, decided by a seed.

Usage: market.py SEED PATTERN STEPS EVERY SECONDS HITS. PATTERN is what a save leaves, relative to
the script, with {step}; saves come EVERY steps, about SECONDS apart. From a random moment after
each of HITS saves, drawn without the last two, the price is over the bid for a while.
"""

import json
import random
import sys

seed, pattern, steps, every, seconds, hits = sys.argv[1:]
dice = random.Random(int(seed))
saves = range(int(every), int(steps) - int(every), int(every))
print(json.dumps({"t": 0, "discount": 0.3, "stock": True}))
for step in sorted(dice.sample(saves, int(hits))):
    print(json.dumps({
        "when": {"exists": pattern.format(step=step)},
        "after": round(dice.uniform(0, 1.2 * float(seconds)), 2),
        "discount": 0.9,
        "for": round(dice.uniform(0.5, 2.5), 2),
    }))
