#!/usr/bin/env bash
# litellm 1.108.7.
# One would guess: an answer that a server cut (`model_length` of Mistral's API: the context is full), or gave up
#   (`insufficient_system_resource` of DeepSeek's), is no answer that ended with `stop`, which means a whole one.
# Seen: every word that litellm's table does not have is `stop`, with a warning in its log alone; the true word is in
#   choices[0].provider_specific_fields.native_finish_reason. A null is `stop` too, and leaves no trace.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "litellm==1.108.7"
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" - <<'PY' 2>/dev/null
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        word = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"]
        message = {"role": "assistant", "content": "The first half of"}
        choice = {"index": 0, "message": message, "finish_reason": None if word == "null" else word}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": word, "choices": [choice]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
where = {"api_base": f"http://127.0.0.1:{server.server_port}/v1", "api_key": "x"}
seen = {}
for word in ("length", "model_length", "insufficient_system_resource", "null"):
    asked = [{"role": "user", "content": "x"}]
    choice = litellm.completion(model=f"openai/{word}", messages=asked, **where).choices[0]
    native = (getattr(choice, "provider_specific_fields", None) or {}).get("native_finish_reason")
    seen[word] = (choice.finish_reason, native)
    print(word, "->", *seen[word])
odd = ("model_length", "insufficient_system_resource")
raise SystemExit(0 if all(seen[word] == ("stop", word) for word in odd) and seen["null"] == ("stop", None) else 1)
PY
