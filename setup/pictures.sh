#!/usr/bin/env bash
# The pictures of Dagster's pages in docs/, from the lake that `make demo` leaves; needs chromium. Look at them afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
port=3791
.venv/bin/headrace ui --port "$port" > /dev/null 2>&1 &
trap 'kill $!' EXIT
until curl --silent --output /dev/null "http://127.0.0.1:$port/server_info"; do sleep 1; done
sleep 10 # until the project is loaded

# PATH FILE WIDTH,HEIGHT
picture() {
  chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size="$3" --virtual-time-budget=40000 \
    --screenshot="docs/$2" "http://127.0.0.1:$port$1" 2> /dev/null
}
picture /assets/python_docs/verdicts asset_page.png 1400,1500
