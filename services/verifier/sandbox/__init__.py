"""Running programs that nobody trusts. docs/sandbox.md has the picture.

Trusted: `runner`, `probing`, `cases`, `comparison`. Inside, standard library alone: `fork_server`, `program`, `checker`, `values`
and the layers.
"""
