#!/usr/bin/env bash
# transformers 5.24.0 with jinja2 3.1.6.
# One would guess: the assistant mask of a chat template marks what stands inside of its {% generation %} blocks, wherever
#   the block is written.
# Seen: a block inside of a macro, or of a value captured by {% set %}, is counted from where the caller has come: with a
#   header in the same macro the mask begins at the header and leaves the end of the answer out, without a warning. The
#   text is the same in all three forms.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "transformers==5.24.0" "jinja2==3.1.6"
"$folder/venv/bin/python" - <<'PY' 2>/dev/null
from transformers.utils.chat_template_utils import render_jinja_template

TURN = "<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
FORMS = {
    "in the loop": "{% for m in messages %}" + TURN + "{% endfor %}",
    "in a macro": "{% macro turn(m) %}" + TURN + "{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}",
    "captured": "{% for m in messages %}{% set turn %}" + TURN + "{% endset %}{{ turn }}{% endfor %}",
}
messages = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
seen = {}
for form, template in FORMS.items():
    (text,), (spans,) = render_jinja_template(
        conversations=[messages], chat_template=template, return_assistant_tokens_mask=True
    )
    seen[form] = text, [text[start:end] for start, end in spans]
    print(f"{form}: {seen[form][1]} of {text!r}")
same = len({text for text, _ in seen.values()}) == 1
right, *wrong = (masked for _, masked in seen.values())
raise SystemExit(0 if same and right == ["Because."] and all(masked == ["<|assist"] for masked in wrong) else 1)
PY
