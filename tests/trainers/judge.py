"""Judges a trainer that was released again and again by what others wrote down: the emulator's
ledger, the trainer's own state in its files, and its diary.

Usage: judge.py hf|lightning NAME LEDGER RUN UNDISTURBED. RUN and UNDISTURBED are folders with
steps.jsonl and out/.
"""

import json
import pathlib
import sys

import torch

RELEASES = 5


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def attempts(name, ledger):
    """How many CreateJob and releases there were; fails if two attempts were there at once."""
    ours = [line for line in ledger if line["display_name"].startswith(name + ".sk")]
    waiting = None
    for line in ours:
        if line["event"] == "create":
            assert waiting is None, f"{line['job_id']} was created while {waiting} had not ended"
            waiting = line["job_id"]
        elif line["event"] == "end":
            waiting = None
    assert waiting is None, f"{waiting} has not ended"
    count = lambda event: sum(line["event"] == event for line in ours)
    assert ours[-1]["status"] == "Succeeded", ours[-1]
    return count("create"), count("release")


def steps(diary):
    """Checks each attempt's beginning; the last finished step, steps done more than once, and saves
    in whose middle a release came."""
    saves = {line["saved"] for line in diary if "saved" in line}
    saved = finished = again = cut = 0
    before = None
    for line in diary:
        if "began" in line and line["attempt"] != before:
            before, step = line["attempt"], line["began"]
            assert step > saved, f"attempt {before} began at {step}, though {saved} was saved"
            assert step <= finished + 1, f"attempt {before} skips to {step} from {finished}"
            again += finished + 1 - step
            cut += finished > saved and finished in saves
        saved = max(saved, line.get("saved", 0))
        finished = max(finished, line.get("finished", 0))
    return finished, again, cut, len(saves)


def state(kind, folder):
    """Last step by the trainer's own files, and the weights that it saved at the end."""
    if kind == "hf":
        from safetensors.torch import load_file

        number = lambda path: int(path.name.split("-")[1])
        newest = max((folder / "out").glob("checkpoint-*"), key=number)
        step = json.loads((newest / "trainer_state.json").read_text())["global_step"]
        return step, load_file(folder / "final" / "model.safetensors")
    # Not last.ckpt: each attempt writes one of its own, last-v1.ckpt and so on.
    number = lambda path: int(path.stem.split("step=")[1])
    newest = max((folder / "out").glob("*step=*.ckpt"), key=number)
    state = torch.load(newest, weights_only=True)
    return state["global_step"], state["state_dict"]


kind, name, ledger, run, calm = sys.argv[1:]
run, calm = pathlib.Path(run), pathlib.Path(calm)
creates, releases = attempts(name, lines(pathlib.Path(ledger)))
assert releases >= RELEASES, f"{releases} releases, {RELEASES} are wanted"
finished, again, cut, saves = steps(lines(run / "steps.jsonl"))
(step, weights), (calm_step, calm_weights) = state(kind, run), state(kind, calm)
assert step == finished == calm_step, (step, finished, calm_step)
apart = max((weights[key] - calm_weights[key]).abs().max().item() for key in calm_weights)
print(
    f"{name}: {creates} attempts, {releases} releases ({cut} in the middle of a save), never two at "
    f"once; last step {step}, as undisturbed; {saves} saves, no saved step was run again; {again} "
    f"other steps were; largest difference of a weight to the undisturbed run: {apart:.3g}"
)
