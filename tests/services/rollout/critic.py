"""A small server that speaks OpenAI's chat completions, as a process: `python -m tests.services.rollout.critic PORT`.

What it does is decided by words in what it is asked; `GET /stats` tells what it was asked.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "critic-key"
SLOW_SECONDS = 2.0
lock = threading.Lock()
stats = {"requests": 0, "at_once": 0, "most_at_once": 0, "bodies": []}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200, stats)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = body["messages"][-1]["content"]
        with lock:
            stats["requests"] += 1
            stats["at_once"] += 1
            stats["most_at_once"] = max(stats["most_at_once"], stats["at_once"])
            stats["bodies"].append(body)
            seen = sum(earlier["messages"] == body["messages"] for earlier in stats["bodies"])
        time.sleep(SLOW_SECONDS if "slow" in asked else 0.05)
        with lock:
            stats["at_once"] -= 1
        if self.path != "/v1/chat/completions":
            self.answer(404, {"error": {"message": "no such path"}})
        elif "locked" in asked and self.headers.get("authorization") != f"Bearer {KEY}":
            self.answer(401, {"error": {"message": "no such key"}})
        elif "broken" in asked or ("shaky" in asked and seen == 1):
            self.answer(500, {"error": {"message": "out of order"}})
        else:
            text = "" if "silent" in asked else f"critique of <{asked}>"
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self.answer(200, {"id": "1", "object": "chat.completion", "model": body["model"], "choices": [choice]})

    def answer(self, status: int, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
