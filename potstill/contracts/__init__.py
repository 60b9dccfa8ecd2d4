"""The messages every process speaks. Imports without torch, vllm or transformers.

`wire` says how they are encoded; one module a conversation: `generation` (student), `scoring` (teacher),
`verification` (verifier), `ticket` and `trajectory` (broker), `job` (REST), `capabilities` (every service).
"""
