"""Jinja templates of prompts: sandboxed, without globals, and strict about what is not there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 2**20  # of a rendered prompt


class PromptTemplateError(ValueError):
    """The template cannot be used, or not for this row; the text says why."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Nothing that makes much of little: one row's prompt must not take a worker's memory."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or not all(isinstance(side, int | float) for side in (left, right)):
            raise SecurityError(f"{operator!r} is for plain numbers only, and powers are not allowed")
        return super().call_binop(context, operator, left, right)


def _environment() -> _Sandbox:
    environment = _Sandbox(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.globals.clear()
    return environment


class PromptTemplate:
    """A template over named variables. Raises PromptTemplateError where it is no Jinja or knows none of the names."""

    def __init__(self, source: str, variables: tuple[str, ...]) -> None:
        self._environment = _environment()
        try:
            self._parsed = self._environment.parse(source)
            self._template = self._environment.from_string(source)
        except TemplateError as error:
            raise PromptTemplateError(f"is no Jinja template: {error}") from error
        unknown = sorted(self.names - set(variables))
        if unknown:
            raise PromptTemplateError(f"there is no {', '.join(unknown)}: a row has {', '.join(variables)}")

    @cached_property
    def names(self) -> frozenset[str]:
        """Variables it reads."""
        return frozenset(meta.find_undeclared_variables(self._parsed))

    def requires(self, name: str) -> bool:
        """Whether a row without this variable cannot be rendered: it is read, and nowhere asked if it `is defined`."""
        asked = {
            test.node.name
            for test in self._parsed.find_all(nodes.Test)
            if test.name == "defined" and isinstance(test.node, nodes.Name)
        }
        return name in self.names and name not in asked

    def render(self, values: Mapping[str, Any]) -> str:
        """The prompt of one row; what is None is undefined. Raises PromptTemplateError."""
        known = {name: value for name, value in values.items() if value is not None}
        parts: list[str] = []
        length = 0
        try:
            for part in self._template.generate(known):
                parts.append(part)
                length += len(part)
                if length > MAX_CHARACTERS:
                    raise PromptTemplateError(f"gives more than {MAX_CHARACTERS} characters")
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise PromptTemplateError(f"cannot be rendered: {error}") from error
        return "".join(parts)
