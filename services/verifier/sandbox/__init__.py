"""Running programs that nobody trusts. docs/sandbox.md has the picture.

Trusted: `runner`, `probing`, `judging`, `cases`, `comparison`. Inside, with the standard library alone: `fork_server`,
`program`, `checker`, `values` and the layers.
"""
