"""A stand-in for an endpoint with every fault that endpoints have been seen to make."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from headrace_features.synthetic import stand_in

ANSWERS = {
    "unavailable": (500, {"error": "starting"}),
    "rejected": (400, {"error": {"message": "context too long"}}),
    "error_200": (200, {"error": {"message": "out of memory"}}),
}
FAULTS = (
    *stand_in.FAULTS,
    *("hang", "trickle", "broken", "error_200", "no_usage", "null", "white_space", "other_model", "unavailable"),
    *("rejected", "reasoning", "not_json", "copy"),
)


class Misbehaving(stand_in.StandIn):
    """The behaviour of the endpoint."""

    async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
        """The response to a request, with a fault or without one (empty)."""
        if fault in ANSWERS:
            status, value = ANSWERS[fault]
            return web.json_response(value, status=status)
        if fault == "not_json":
            return web.Response(text="<html>bad gateway</html>")
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault in ("broken", "trickle"):
            return await slowly(request, json.dumps(self.completion(body, fault)).encode(), breaks=fault == "broken")
        return await super().respond(request, body, fault)

    def completion(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        """The JSON of an answer, with a fault inside."""
        made = super().completion(body, fault)
        choice = made["choices"][0]
        message, limit = choice["message"], int(body["max_tokens"])
        if fault in ("null", "reasoning"):
            message["content"] = None
        elif fault == "white_space":
            message["content"], choice["finish_reason"] = "\n" * limit, "length"
        elif fault == "copy":
            message["content"] = body["messages"][-1]["content"].partition("\n\n")[2]
        if fault == "reasoning":
            message["reasoning_content"] = "Let me think."
        if fault == "other_model":
            made["model"] = f"{body['model']}-2"
        made["usage"]["completion_tokens"] = len((message["content"] or "").split())
        if fault == "no_usage":
            del made["usage"]
        return made


async def slowly(request: web.Request, data: bytes, *, breaks: bool) -> web.StreamResponse:
    """Send an answer byte by byte for ever, or break off in the middle of it."""
    response = web.StreamResponse(headers={"Content-Length": str(len(data)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(data[: len(data) // 2])
    if breaks:
        assert request.transport is not None
        request.transport.abort()
        return response
    for byte in data[len(data) // 2 :]:
        await asyncio.sleep(5)
        await response.write(bytes([byte]))
    return response
