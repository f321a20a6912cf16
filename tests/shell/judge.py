"""Judges a world of tests/shell/world.sh: judge.py FOLDER JOB:STEPS:CREATES...

The emulator's ledger: never two attempts of a job at one time, no mark twice, every attempt ended,
nothing was stopped, each job was created so often. The trainers' own logs: each start goes on from
the newest save that was finished before it, the last step was reached. With `-` for STEPS the job is
not done yet.
"""

import json
import sys
from pathlib import Path


def lines(path):
    # What is being written has no end of line yet.
    whole = path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def judge_ledger(ledger, creates, going):
    open_jobs, made, marks = {}, {}, set()
    for line in ledger:
        job = line["display_name"].split(".sk")[0]
        if line["event"] == "create":
            assert job not in open_jobs, f"{line['job_id']} beside {open_jobs[job]} of {job}"
            assert line["mark"] not in marks, f"the mark of {line['job_id']} was used before"
            open_jobs[job] = line["job_id"]
            marks.add(line["mark"])
            made[job] = made.get(job, 0) + 1
        elif line["event"] == "end":
            del open_jobs[job]
        elif line["event"] == "stop_asked":
            raise AssertionError(f"{line['job_id']} of {job} was stopped")
    assert set(open_jobs) <= going, f"not ended: {open_jobs}"
    assert made == creates, f"created {made}, not {creates}"


def judge_trainer(log, steps):
    saved = reached = dones = 0
    for line in log:
        if line["event"] == "start":
            assert line["from"] >= saved, f"from {line['from']}, {saved} was saved"
            # It may have been killed between the save and its line.
            saved = line["from"]
        elif line["event"] == "saved":
            saved = line["step"]
        elif line["event"] == "step":
            reached = line["step"]
        elif line["event"] == "done":
            dones += 1
    assert saved > 0, "nothing was saved"
    if steps != "-":
        asked = int(steps)
        found = (saved, reached)
        assert found == (asked, asked) and dones, f"saved, reached: {found}, done {dones} times"


def main():
    folder, jobs = Path(sys.argv[1]), [word.split(":") for word in sys.argv[2:]]
    ledger = lines(folder / "cloud/ledger.jsonl")
    going = {name for name, steps, _ in jobs if steps == "-"}
    judge_ledger(ledger, {name: int(creates) for name, _, creates in jobs}, going)
    for name, steps, _ in jobs:
        judge_trainer(lines(folder / f"{name}.jsonl"), steps)


main()
