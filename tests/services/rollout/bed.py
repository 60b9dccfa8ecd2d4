"""A student, teachers and a verifier that really run, on models of four letters.

The tokenizer joins two letters to one token wherever it can, and the student, being random, does not: what it writes
comes back as other ids when its text is read again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from potstill.contracts.generation import PolicyRef, Sampling
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Message, Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.service.peers import Peer
from services.rollout.rendering import Renderer
from services.rollout.rollout import Peers
from tests.services.student.students import running_student, student_settings
from tests.services.teacher.conftest import TeacherClient, teacher
from tests.services.verifier.running import TOKEN, running_verifier

PAD, END = "<pad>", "<end>"
LETTERS = "abcd"
TOKENS = [PAD, END, *LETTERS, *("".join(pair) for pair in itertools.product(LETTERS, repeat=2))]
NUM_IDS = len(TOKENS)
END_ID = 1
VOCAB_SIZE, PADDED_VOCAB_SIZE = NUM_IDS + 2, NUM_IDS + 10
MAX_LENGTH = 128
NUM_SAMPLES = 3


def write_model(folder: Path, *, seed: int, vocab_size: int = VOCAB_SIZE) -> Path:
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=MAX_LENGTH, initializer_range=0.2,
        tie_word_embeddings=True, pad_token_id=0, bos_token_id=0, eos_token_id=END_ID, dtype="float32",
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    vocab = {token: index for index, token in enumerate(TOKENS)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=list(itertools.product(LETTERS, repeat=2))))
    backend.add_special_tokens([AddedToken(token, special=True) for token in (PAD, END)])
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )


@dataclass(frozen=True)
class Bed:
    """Teachers: `one` and `two` have other weights than the student, `start` has its own; `two` has more padding."""

    folder: Path
    student_url: str
    teachers: dict[str, TeacherClient]
    verifier_url: str
    policy: PolicyRef

    def spec(self, **changes: Any) -> JobSpec:
        document = {
            "name": "bed",
            "student": {"model": str(self.folder / "start")},
            "teachers": {"one": {"model": str(self.folder / "one")}},
            "data": {"train": "unused.jsonl", "kind": "exact"},
        }
        return JobSpec.model_validate(document | changes)

    def teacher(self, name: str, **changes: Any) -> dict[str, Any]:
        return {"model": str(self.folder / name)} | changes

    def ticket(self, slot: int, teacher: str | None, **problem: Any) -> Ticket:
        prompt = "".join(itertools.islice(itertools.cycle(LETTERS), slot % 4, slot % 4 + 5))
        row = {"id": str(slot), "prompt": (Message("user", prompt),), "kind": "exact", "reference": "a"} | problem
        sampling = Sampling(max_tokens=24, stop_token_ids=(END_ID,))
        name = TicketId("job_bed", Phase.EVAL if teacher is None else Phase.TRAIN, 1, slot)
        return Ticket(name, Problem(**row), NUM_SAMPLES, slot, self.policy, sampling, teacher, 0.0)

    def requests(self) -> Counter[str]:
        """Answered so far, by teacher."""
        return Counter({name: client.count_requests() for name, client in self.teachers.items()})

    @asynccontextmanager
    async def peers(self) -> Any:
        teachers = {name: Peer(str(client.http.base_url), None) for name, client in self.teachers.items()}
        peers = Peers(Peer(self.student_url, None), teachers, Peer(self.verifier_url, TOKEN))
        yield peers
        for peer in (peers.student, *teachers.values(), peers.verifier):
            await peer.close()

    def renderer(self, **changes: Any) -> Renderer:
        return Renderer(self.spec(**changes))


@contextmanager
def running_bed(folder: Path) -> Iterator[Bed]:
    for seed, name in enumerate(("start", "one", "two")):
        write_model(folder / name, seed=seed, vocab_size=PADDED_VOCAB_SIZE if name == "two" else VOCAB_SIZE)
    artifacts = folder / "artifacts"
    policy = write_model(artifacts / "jobs" / "job_bed" / "policies" / "000000", seed=0)
    settings = student_settings(folder / "start", artifacts, student_max_length=MAX_LENGTH)
    with ExitStack() as running:
        student = running.enter_context(running_student(settings))
        teachers = {name: running.enter_context(teacher(folder / name)) for name in ("one", "two", "start")}
        verifier = running.enter_context(running_verifier(verifier_workers=1, verifier_deadline_seconds=20))
        url = str(verifier.http.base_url)
        yield Bed(folder, student.url, teachers, url, PolicyRef(0, policy.as_uri()))
