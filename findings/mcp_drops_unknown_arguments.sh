#!/usr/bin/env bash
# mcp 2.3.0 (the Python SDK of the Model Context Protocol).
# One would guess: a call of a tool with an argument that its schema does not have is an error, as a call of the function
#   behind it is, so that a model that misspells `limit` hears of it.
# Seen: the argument is dropped without a word, and the tool answers as if its default had been asked for.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "mcp==2.3.0"
"$folder/venv/bin/python" - <<'PY'
import asyncio
import json

try:
    from mcp.server.fastmcp import FastMCP as Server
except ImportError:
    from mcp.server.mcpserver import MCPServer as Server

server = Server("t")


@server.tool()
def rows(limit: int = 3) -> str:
    """So many rows."""
    return f"{limit} rows"


async def main() -> None:
    (tool,) = await server.list_tools()
    schema = getattr(tool, "inputSchema", None) or getattr(tool, "input_schema", {})
    answer = str(await server.call_tool("rows", {"limt": 1}))
    print("additionalProperties:", json.dumps(schema.get("additionalProperties")), "; answer:", answer[:200])
    raise SystemExit(0 if "3 rows" in answer else 1)


asyncio.run(main())
PY
