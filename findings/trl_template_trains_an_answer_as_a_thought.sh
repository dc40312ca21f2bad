#!/usr/bin/env bash
# trl 1.16.0 (its packaged file qwen3_training.jinja) with transformers 5.24.0 and jinja2 3.1.6.
# One would guess: the training twin of Qwen3's template asks for both tags before it splits an answer, as the README
#   beside it in the same wheel says of it, so an answer that only quotes the closing tag stays an answer.
# Seen: the file splits at the closing tag alone: what stands before it is written as the thought, what follows as the
#   answer, the tag itself is gone, and all of it is in the assistant mask; nothing is raised or warned of.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "transformers==5.24.0" "jinja2==3.1.6"
"$folder/venv/bin/pip" --quiet download --no-deps -d "$folder" "trl==1.16.0"
"$folder/venv/bin/python" - "$folder" <<'PY' 2>/dev/null
import re
import sys
import zipfile
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

wheel = zipfile.ZipFile(next(Path(sys.argv[1]).glob("trl-*.whl")))
template = wheel.read("trl/chat_templates/qwen3_training.jinja").decode()
readme = wheel.read("trl/chat_templates/README.md").decode()
section = readme.partition("qwen3_training")[2].partition("\n### ")[0]
promised = "Require both" in section
messages = [{"role": "user", "content": "Which tag?"}, {"role": "assistant", "content": "The tag </think> closes it."}]
(text,), (spans,) = render_jinja_template(
    conversations=[messages], chat_template=template, return_assistant_tokens_mask=True
)
masked = "".join(text[start:end] for start, end in spans)
print(f"README asks for both tags: {promised}; trained: {masked!r}")
thought = re.search(r"<think>\n(.*?)\n</think>", masked, re.DOTALL)
seen = thought is not None and thought[1].strip() == "The tag" and "closes it." in masked and "The tag </think> closes" not in masked
raise SystemExit(0 if promised and seen else 1)
PY
