#!/usr/bin/env bash
# httpx2 2.16.2.
# One would guess: `response.iter_bytes(chunk_size=..)` gives every byte that came before a connection broke, so that a
#   download can go on behind them.
# Seen: bytes of a chunk that is not full are dropped with the error: of 600,000 that came with chunks of 2^20 there are
#   none. Without `chunk_size` all are given, in the sizes in which they came.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "httpx2==2.16.2"
"$folder/venv/bin/python" - <<'PY'
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2

CAME = 600_000


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(2 * CAME))
        self.end_headers()
        self.wfile.write(bytes(CAME))  # and the connection ends

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
seen = {}
for chunk_size in (1 << 20, None):
    seen[chunk_size] = 0
    try:
        with httpx2.stream("GET", f"http://127.0.0.1:{server.server_port}") as response:
            for data in response.iter_bytes(chunk_size):
                seen[chunk_size] += len(data)
    except httpx2.RemoteProtocolError as error:
        print(f"chunk_size={chunk_size}: {seen[chunk_size]:,} of {CAME:,} bytes that came, then {error}")
raise SystemExit(0 if seen == {1 << 20: 0, None: CAME} else 1)
PY
