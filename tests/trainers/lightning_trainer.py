"""A small model with random weights and random data, trained by Lightning on the CPU.

Beside Lightning's own files it keeps steps.jsonl: which attempt began and finished which step, and
which saves it finished. `judge.py` reads both.
"""

import argparse
import json
import os
import time

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO


class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
            torch.nn.ReLU(), torch.nn.Linear(1024, 4),
        )

    def training_step(self, batch, index):
        x, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(x), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Diary:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def note(self, word, step):
        line = {"attempt": os.environ.get("SPOTKEEPER_ATTEMPT", "none"), word: step}
        self.file.write(json.dumps(line) + "\n")


class Steps(Callback):
    def __init__(self, diary, pause):
        self.diary, self.pause = diary, pause

    def on_train_batch_start(self, trainer, module, batch, index):
        self.diary.note("began", trainer.global_step + 1)
        time.sleep(self.pause)

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.diary.note("finished", trainer.global_step)


class Saves(TorchCheckpointIO):
    def __init__(self, diary):
        super().__init__()
        self.diary = diary

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        super().save_checkpoint(checkpoint, path, storage_options)
        self.diary.note("saved", checkpoint["global_step"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save_every", type=int, required=True)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--ckpt_path")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    lightning.seed_everything(7)
    rows = torch.utils.data.TensorDataset(torch.randn(512, 32), torch.randint(0, 4, (512,)))
    diary = Diary(os.path.join(asked.output_dir, "..", "steps.jsonl"))
    saves = ModelCheckpoint(
        dirpath=asked.output_dir, filename="{epoch}-{step}", every_n_train_steps=asked.save_every,
        save_top_k=-1, save_last=True,
    )
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=asked.steps, logger=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[saves, Steps(diary, asked.pause)], plugins=[Saves(diary)],
    )
    loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
    trainer.fit(Tiny(), loader, ckpt_path=asked.ckpt_path)


main()
