"""Running programs that nobody trusts. docs/sandbox.md has the picture.

Trusted: `runner`, `probing`, `judging`, `cases`, `comparison`, `gvisor`. Inside, with the standard library
alone: `fork_server`, `program`, `checker`, `values`, the layers, and `inside` where gVisor is between.
"""
