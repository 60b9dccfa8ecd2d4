"""Sums of four digits, and the tokenizer that reads them: one token a character."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, END = "<pad>", "<end>"
PAD_ID, END_ID = 0, 1
CHARACTERS = "0123456789+="
VOCAB_SIZE = 16  # 2 special tokens, 12 characters, 2 rows of padding
MAX_LENGTH = 64
NUM_HELDOUT = 400


def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of both models."""
    vocab = {token: index for index, token in enumerate([PAD, END, *CHARACTERS])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token=PAD))
    backend.add_special_tokens([AddedToken(PAD, special=True), AddedToken(END, special=True)])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=PAD,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def problems(seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All 10,000 (prompt, answer) pairs, shuffled and split: training and held-out."""
    every = [("+".join(map(str, digits)) + "=", str(sum(digits))) for digits in itertools.product(range(10), repeat=4)]
    random.Random(f"small pair/{seed}").shuffle(every)
    return every[NUM_HELDOUT:], every[:NUM_HELDOUT]


def write_rows(path: Path, rows: list[tuple[str, str]]) -> None:
    """JSON lines {prompt, answer}."""
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in rows))
