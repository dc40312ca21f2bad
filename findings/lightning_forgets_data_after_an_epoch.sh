#!/usr/bin/env bash
# lightning 2.6.6 with torch 2.13.0.
# One would guess: a checkpoint holds the state of a loader that has state_dict, and fit(ckpt_path=..) loads it, as it
#   loads the model's and the optimizer's.
# Seen: it does so for a checkpoint of the middle of an epoch, or where max_steps is set. One of the end of an epoch has
#   the state too, and it is not loaded: training goes on with the trained model, from the first row of the data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "lightning==2.6.6" "torch==2.13.0"
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys
import warnings

import lightning.pytorch as lightning
import torch

warnings.simplefilter("ignore")


class Rows:
    """Numbers, with a state: which comes next."""

    at = 0

    def __iter__(self):
        while True:
            self.at += 1
            yield torch.tensor([self.at - 1.0])

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight, self.seen = torch.nn.Parameter(torch.zeros(1)), []

    def training_step(self, batch, index):
        self.seen.append(int(batch))
        return (self.weight * batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(resume_from=None, **how):
    names = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = lightning.Trainer(accelerator="cpu", limit_train_batches=3, **how, **dict.fromkeys(names, False))
    module = Module()
    trainer.fit(module, Rows(), ckpt_path=resume_from, weights_only=False)
    return trainer, module.seen


trainer, first = fit(max_epochs=1)
saved = f"{sys.argv[1]}/end.ckpt"
trainer.save_checkpoint(saved)
print("in the checkpoint:", torch.load(saved, weights_only=False)["loops"]["fit_loop"]["state_dict"])
by_epochs, by_steps = fit(saved, max_epochs=2)[1], fit(saved, max_epochs=-1, max_steps=6)[1]
print("first", first, "; then by max_epochs", by_epochs, "; by max_steps", by_steps)
raise SystemExit(0 if by_epochs == [0, 1, 2] and by_steps == [3, 4, 5] else 1)
PY
