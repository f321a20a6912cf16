"""A small model with random weights and random data, trained by Hugging Face's Trainer on the CPU.

Beside the Trainer's own files it keeps steps.jsonl: which attempt began and finished which step,
and which saves it finished. `judge.py` reads both.
"""

import argparse
import json
import os
import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
            torch.nn.ReLU(), torch.nn.Linear(1024, 4),
        )

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Diary(TrainerCallback):
    def __init__(self, path, pause):
        self.file, self.pause = open(path, "a", buffering=1), pause

    def note(self, word, step):
        line = {"attempt": os.environ.get("SPOTKEEPER_ATTEMPT", "none"), word: step}
        self.file.write(json.dumps(line) + "\n")

    def on_step_begin(self, args, state, control, **more):
        self.note("began", state.global_step + 1)
        time.sleep(self.pause)

    def on_step_end(self, args, state, control, **more):
        self.note("finished", state.global_step)

    def on_save(self, args, state, control, **more):
        self.note("saved", state.global_step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save_every", type=int, required=True)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--resume_from_checkpoint")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(7)
    rows = [{"x": torch.randn(32), "labels": torch.randint(0, 4, ()).item()} for _ in range(512)]
    trainer = Trainer(
        model=Tiny(),
        args=TrainingArguments(
            output_dir=asked.output_dir, max_steps=asked.steps, save_steps=asked.save_every,
            per_device_train_batch_size=8, learning_rate=1e-3, use_cpu=True, report_to="none",
            disable_tqdm=True, logging_steps=10, seed=7, save_total_limit=4,
        ),
        train_dataset=rows,
        callbacks=[Diary(os.path.join(asked.output_dir, "..", "steps.jsonl"), asked.pause)],
    )
    trainer.train(resume_from_checkpoint=asked.resume_from_checkpoint)
    trainer.save_model(os.path.join(asked.output_dir, "..", "final"))


main()
