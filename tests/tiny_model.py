"""A random Llama with a byte-level tokenizer, small enough to load and run in milliseconds."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PAD_ID, START_ID, EOS_ID = 0, 1, 2
VOCAB_SIZE = 264  # 3 special tokens, 256 bytes, and 5 rows of padding as real models have
MAX_LENGTH = 512

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(folder: Path, *, seed: int = 0, hidden: int = 64, layers: int = 2, tied: bool = True) -> Path:
    """Write a Hugging Face folder (config, safetensors, tokenizer with a chat template) and return it.

    The weights are float32 and decided by `seed`, and the embedding is tied to the head unless asked otherwise.
    `<|im_end|>` (id 2) ends a sequence. One token is one byte of text, so lengths are easy to predict.
    """
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.2,  # wide enough that next-token distributions are far from uniform
        tie_word_embeddings=tied,
        pad_token_id=PAD_ID,
        bos_token_id=START_ID,
        eos_token_id=EOS_ID,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    tokens = [PAD, START, END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    backend.add_special_tokens([AddedToken(token, special=True) for token in (PAD, START, END)])
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
