#!/usr/bin/env bash
# huggingface_hub 2.4.0.
# One would guess: `hf_hub_download` of a file that a killed process had half of goes on with that half, as it did up
#   to 1.x (`resume_download`, then always), and that a file whose SHA-256 is not the one of its ETag is refused.
# Seen: each process downloads to a name of its own and deletes it when it ends, so the second process asks for all
#   bytes, without a Range; and what comes is kept under the SHA-256 that the server stated, whatever its bytes are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "huggingface_hub==2.4.0"
HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_PROGRESS_BARS=1 "$folder/venv/bin/python" - "$folder" <<'PY' 2>/dev/null
import hashlib
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WHOLE = bytes(range(256)) * 4096
STATED = hashlib.sha256(b"other bytes").hexdigest()
asked = []


class Server(BaseHTTPRequestHandler):
    def answer(self, has_body):
        self.send_response(200)
        for name, value in {"ETag": f'"{STATED}"', "X-Repo-Commit": "a" * 40, "Content-Length": str(len(WHOLE))}.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            asked.append(self.headers.get("Range"))
            self.wfile.write(WHOLE[: len(WHOLE) // 2])
            self.wfile.flush()
            time.sleep(3 if len(asked) == 1 else 0)  # the first process is killed here
            self.wfile.write(WHOLE[len(WHOLE) // 2 :])

    def do_GET(self):
        self.answer(True)

    def do_HEAD(self):
        self.answer(False)


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
program = f"""
from huggingface_hub import hf_hub_download
print(hf_hub_download("a/b", "c", repo_type="dataset", endpoint="http://127.0.0.1:{server.server_port}",
                      cache_dir={sys.argv[1]!r}, token=False))
"""
first = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
while not asked:
    time.sleep(0.1)
time.sleep(1)
first.kill()
second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
kept = hashlib.sha256(open(second.stdout.strip(), "rb").read()).hexdigest()
print("asked for", asked, "stated", STATED[:12], "kept", kept[:12])
raise SystemExit(0 if asked == [None, None] and kept != STATED else 1)
PY
