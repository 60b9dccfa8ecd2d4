"""What a teacher reads, kind by kind. The critic is a server process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from pydantic import TypeAdapter, ValidationError

from potstill.contracts.context import TeacherContext
from potstill.contracts.problem import Message, Problem
from potstill.local.stack import free_ports
from services.rollout.contexts import CONTEXTS, context_of
from services.rollout.contexts.context import Context
from services.rollout.errors import Reason, TicketError
from tests.services.rollout.critic import KEY

PROBLEM = Problem(
    id="row-7", prompt=(Message("system", "Be brief."), Message("user", "2+3?")), reference="5", solution="2+3=5"
)


def context(kind: str, **fields: Any) -> Context:
    spec: TeacherContext = TypeAdapter(TeacherContext).validate_python({"kind": kind, **fields})
    return context_of(spec)


async def last(made: Context, problem: Problem = PROBLEM, response: str = "6") -> str:
    """The text of the last message; the others are the row's own."""
    messages = await made.messages(problem, response)
    assert messages[0] == PROBLEM.prompt[0]
    assert messages[-1].role == "user"
    return messages[-1].content


def refused(kind: str, **fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        context(kind, **fields)
    return str(caught.value)


def test_every_kind_of_a_job_has_a_builder() -> None:
    kinds = {model.model_fields["kind"].annotation.__args__[0] for model in TeacherContext.__args__[0].__args__}
    assert set(CONTEXTS) == kinds


class TestSolution:
    async def test_the_solution_is_in_the_prompt(self) -> None:
        assert await last(context("solution", template="{prompt} ({solution})")) == "2+3? (2+3=5)"
        assert "2+3=5" in await last(context("solution"))

    async def test_what_a_row_contains_is_no_placeholder(self) -> None:
        row = msgspec.structs.replace(PROBLEM, solution="{prompt} {solution}")
        assert await last(context("solution", template="{prompt}|{solution}"), row) == "2+3?|{prompt} {solution}"
        shown = context("demonstrations", solution_template="{prompt}|{solution}")
        assert await last(shown, row) == "2+3?|{prompt} {solution}"

    @pytest.mark.parametrize("kind", ["solution", "demonstrations"])
    async def test_a_row_without_one_is_dropped(self, kind: str) -> None:
        with pytest.raises(TicketError, match="row-7 has no solution") as caught:
            await last(context(kind), msgspec.structs.replace(PROBLEM, solution=None))
        assert caught.value.reason is Reason.NO_SOLUTION

    def test_a_template_that_does_not_show_it_is_refused(self) -> None:
        assert "lacks {solution}" in refused("solution", template="{prompt}")
        assert "lacks {prompt}" in refused("demonstrations", solution_template="{solution}")


class TestTemplate:
    async def test_it_reads_the_row(self) -> None:
        template = "{% if data_source is defined %}{{ prompt }}{% endif %}={{ solution }}{{ messages | length }}"
        assert await last(context("template", template=template)) == "2+3?=2+3=52"

    async def test_a_name_that_the_row_lacks_drops_it(self) -> None:
        made = context("template", template="{{ prompt }} {{ solution }}")
        with pytest.raises(TicketError, match=r"row-7.*'solution' is undefined") as caught:
            await last(made, msgspec.structs.replace(PROBLEM, solution=None))
        assert caught.value.reason is Reason.TEMPLATE

    @pytest.mark.parametrize(
        ("template", "says"),
        [
            ("{{ prompt", "no Jinja template"),
            ("{{ promt }}", "there is no promt"),
            ("{% include 'other' %}{{ prompt }}", None),
        ],
    )
    async def test_one_that_cannot_work_is_refused(self, template: str, says: str | None) -> None:
        if says is not None:
            assert says in refused("template", template=template)
        else:
            with pytest.raises(TicketError):
                await last(context("template", template=template))

    @pytest.mark.parametrize(
        "template",
        [
            "{{ ''.__class__.__mro__ }}",
            "{{ messages.append(1) }}",
            "{{ prompt * 1000000000 }}",
            "{{ '%1000000000d' % 1 }}",
            "{{ 9 ** 9 ** 9 }}",
            "{% for a in prompt * 99 %}x{% endfor %}",
        ],
    )
    async def test_it_cannot_leave_its_sandbox_or_fill_the_memory(self, template: str) -> None:
        with pytest.raises(TicketError):
            await last(context("template", template=template))

    def test_it_has_no_globals(self) -> None:
        assert "there is no lipsum" in refused("template", template="{{ lipsum(1000) }}")


@pytest.fixture(scope="module")
def critic() -> Iterator[httpx.Client]:
    port = free_ports(["critic"])["critic"]
    process = subprocess.Popen([sys.executable, "-m", "tests.services.rollout.critic", str(port)])
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client:
        for _ in range(200):
            try:
                client.get("/stats")
                break
            except httpx.ConnectError:
                time.sleep(0.05)
        yield client
    process.terminate()
    process.wait()


class TestCritique:
    """Rows are told apart by their prompts: what was asked once is not asked again."""

    def context(self, critic: httpx.Client, **fields: Any) -> Context:
        given = {"model": "critic-1", "base_url": str(critic.base_url), "attempts": 2}
        texts = {"request": "judge {response} for {prompt}", "template": "{prompt} [{critique}]"}
        return context("critique", **(given | texts | fields))

    def row(self, prompt: str) -> Problem:
        return msgspec.structs.replace(PROBLEM, prompt=(PROBLEM.prompt[0], Message("user", prompt)))

    async def test_the_teacher_reads_what_the_server_says_of_the_very_response(self, critic: httpx.Client) -> None:
        made = self.context(critic)
        assert await last(made, self.row("a"), "6") == "a [critique of <judge 6 for a>]"
        assert await last(made, self.row("a"), "7") == "a [critique of <judge 7 for a>]"
        body = critic.get("/stats").json()["bodies"][-1]
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("critic-1", 0.0, 512)
        await made.close()

    async def test_the_same_content_is_asked_once_even_at_the_same_time(self, critic: httpx.Client) -> None:
        made, before = self.context(critic), critic.get("/stats").json()["requests"]
        answers = await asyncio.gather(*(last(made, self.row("once")) for _ in range(5)))
        assert len(set(answers)) == 1
        await last(made, self.row("once"))
        assert critic.get("/stats").json()["requests"] - before == 1
        await made.close()

    async def test_no_more_are_asked_at_once_than_the_job_says(self, critic: httpx.Client) -> None:
        made = self.context(critic, concurrency=2)
        await asyncio.gather(*(last(made, self.row(f"many {index}")) for index in range(8)))
        assert critic.get("/stats").json()["most_at_once"] == 2
        await made.close()

    async def test_trouble_that_passes_is_waited_out(self, critic: httpx.Client) -> None:
        made = self.context(critic)
        assert "critique of" in await last(made, self.row("shaky"))
        await made.close()

    @pytest.mark.parametrize(
        ("prompt", "fields", "says"),
        [
            ("broken", {}, "500"),
            ("silent", {}, "empty"),
            ("slow", {"timeout_seconds": 0.2, "attempts": 1}, "no answer within 0.2 s"),
            ("locked", {}, "401"),
            ("x", {"base_url": "http://127.0.0.1:9/v1", "attempts": 1}, "127.0.0.1:9"),
            ("x", {"api_key_env": "NOT_SET_API_KEY"}, "set NOT_SET_API_KEY in the environment"),
        ],
    )
    async def test_a_row_without_a_critique_is_dropped_with_the_reason(
        self, critic: httpx.Client, prompt: str, fields: dict[str, Any], says: str
    ) -> None:
        made = self.context(critic, **fields)
        with pytest.raises(TicketError, match="no critique of row row-7") as caught:
            await last(made, self.row(prompt))
        assert says in str(caught.value)
        assert caught.value.reason is Reason.CRITIQUE
        await made.close()

    async def test_a_failure_is_not_remembered(self, critic: httpx.Client) -> None:
        made = self.context(critic, attempts=1)
        with pytest.raises(TicketError):
            await last(made, self.row("shaky again"))
        assert "critique of" in await last(made, self.row("shaky again"))
        await made.close()

    async def test_the_key_comes_from_the_environment(
        self, critic: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CRITIC_API_KEY", KEY)
        made = self.context(critic, api_key_env="CRITIC_API_KEY")
        assert "critique of" in await last(made, self.row("locked"))
        await made.close()

    def test_a_job_cannot_have_another_variable_sent_out(self, critic: httpx.Client) -> None:
        assert "api_key_env" in refused(
            "critique", model="m", base_url=str(critic.base_url), api_key_env="POTSTILL_TOKEN"
        )
