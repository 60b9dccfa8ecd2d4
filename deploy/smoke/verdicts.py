"""Verdicts of a running verifier, asked for in a container beside it: answers and programs, right and wrong."""

import os
import sys
from typing import Any

import httpx

ITEMS: list[dict[str, Any]] = [
    {"kind": "math", "response": "so it is \\boxed{1/2}", "reference": "0.5"},
    {"kind": "math", "response": "so it is \\boxed{1/3}", "reference": "0.5"},
    {
        "kind": "code",
        "response": "```python\nprint(int(input()) + 1)\n```",
        "tests": [{"stdin": "1\n", "stdout": "2\n"}],
    },
    {"kind": "code", "response": "```python\nopen('/etc/passwd')\n```", "tests": [{"stdin": "1\n", "stdout": "2\n"}]},
]
WANTED = ["accepted", "wrong_answer", "accepted", "runtime_error"]

items = [{"id": str(number), **item} for number, item in enumerate(ITEMS)]
token = {"Authorization": f"Bearer {os.environ['POTSTILL_TOKEN']}"}
url = os.environ["POTSTILL_VERIFIER_URL"]
ready = httpx.HTTPTransport(retries=10)
with httpx.Client(base_url=url, headers=token, transport=ready, timeout=60) as client:
    answer = client.post("/v1/verify", json={"items": items}).raise_for_status().json()
found = [result["verdict"] for result in answer["results"]]
print(found, "in force:", *answer["isolation"])
sys.exit(None if found == WANTED else f"wanted {WANTED}")
