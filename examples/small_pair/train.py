"""Train the pair: `python -m examples.small_pair.train`. Safe to run again; the same seed gives the same models.

Both are Llamas of under a million parameters, taught by supervision. The student is a snapshot taken early.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from examples.folders import is_complete, replaced_when_done
from examples.small_pair.problems import END_ID, MAX_LENGTH, PAD_ID, VOCAB_SIZE, problems, tokenizer, write_rows

FOLDER = Path("artifacts/models/small-pair")
FILES = ("teacher/model.safetensors", "student/model.safetensors", "train.jsonl", "heldout.jsonl", "pair.json")
BATCH = 256
PEAK_LR = 3e-3
STUDENT_AT = 0.35  # the student is the first snapshot at least this accurate on held-out problems
SNAPSHOT_EVERY = 25
STEPS = 400


@dataclass(frozen=True)
class Accuracy:
    """Greedy accuracy on held-out problems with its 95% interval (normal approximation)."""

    n: int
    accuracy: float
    interval: tuple[float, float]


def build_pair(folder: Path = FOLDER, *, steps: int = STEPS, seed: int = 0) -> Path:
    """Make sure that `folder` holds both models and the data, and return it."""
    if is_complete(folder, FILES):
        return folder
    with replaced_when_done(folder) as draft:
        train, heldout = problems(seed)
        write_rows(draft / "train.jsonl", train)
        write_rows(draft / "heldout.jsonl", heldout)
        facts = _train(draft, train, heldout, steps, seed)
        (draft / "pair.json").write_text(json.dumps(facts, indent=2) + "\n")
    return folder


def teach(
    model: LlamaForCausalLM,
    rows: list[tuple[str, str]],
    *,
    steps: int,
    peak_lr: float = PEAK_LR,
    after: Callable[[int], bool] = lambda step: False,
) -> None:
    """Supervise `model` on (prompt, answer) rows with a cosine rate; end early where `after(step)` is true."""
    begun = time.monotonic()
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, betas=(0.9, 0.98), weight_decay=0.01)
    inputs, labels = _tensors(rows)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = peak_lr * min(1.0, step / 50) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        chosen = torch.randint(len(inputs), (BATCH,))
        logits = model(input_ids=inputs[chosen]).logits
        loss = functional.cross_entropy(logits[:, :-1].reshape(-1, VOCAB_SIZE), labels[chosen, 1:].reshape(-1))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"step {step}/{steps}  loss {loss.item():.3f}  {time.monotonic() - begun:.0f} s", flush=True)
        if after(step):
            return


def _train(folder: Path, train: list[tuple[str, str]], heldout: list[tuple[str, str]], steps: int, seed: int) -> object:
    begun = time.monotonic()
    torch.manual_seed(seed)
    model = untaught()
    snapshots: list[Accuracy] = []

    def keep_student(step: int) -> bool:
        if not snapshots and step % SNAPSHOT_EVERY == 0 and (now := accuracy(model, heldout)).accuracy >= STUDENT_AT:
            snapshots.append(now)
            save(model, folder / "student")
        return False

    teach(model, train, steps=steps, after=keep_student)
    teacher = accuracy(model, heldout)
    if not snapshots:
        raise SystemExit(f"potstill: the small pair did not learn (held-out accuracy {teacher.accuracy:.2f})")
    save(model, folder / "teacher")
    student = snapshots[0]
    print(
        f"teacher {teacher.accuracy:.3f}, student {student.accuracy:.3f} on {teacher.n} held-out problems", flush=True
    )
    seconds = time.monotonic() - begun
    return {"teacher": asdict(teacher), "student": asdict(student), "seconds": seconds, "steps": steps, "seed": seed}


def untaught() -> LlamaForCausalLM:
    """A model of the pair's size with fresh weights."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=None,
        eos_token_id=END_ID,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


def _tensors(rows: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Token ids [N, L] padded on the right, and labels [N, L] that count the answer and the end only."""
    reader = tokenizer()
    prompts = [reader(prompt)["input_ids"] for prompt, _ in rows]
    answers = [[*reader(answer)["input_ids"], END_ID] for _, answer in rows]
    length = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    inputs = torch.full((len(rows), length), PAD_ID)
    labels = torch.full((len(rows), length), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        stop = len(prompt) + len(answer)
        inputs[row, :stop] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : stop] = torch.tensor(answer)
    return inputs, labels


@torch.inference_mode()
def accuracy(model: LlamaForCausalLM, rows: list[tuple[str, str]]) -> Accuracy:
    """Greedy accuracy: every token of the answer and the end are the model's first choice."""
    inputs, labels = _tensors(rows)
    counted = labels[:, 1:] != -100
    right = (model(input_ids=inputs).logits[:, :-1].argmax(-1) == labels[:, 1:]) | ~counted
    share = right.all(dim=1).float().mean().item()
    margin = 1.96 * math.sqrt(max(share * (1 - share), 1 / len(rows)) / len(rows))
    return Accuracy(len(rows), share, (max(0.0, share - margin), min(1.0, share + margin)))


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Weights and tokenizer in Hugging Face format."""
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(2)
    print(f"small pair: {build_pair(given.folder, steps=given.steps, seed=given.seed)}")


if __name__ == "__main__":
    main()
