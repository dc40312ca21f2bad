"""Servers that `bench_blender.py` measures, each a process: Blender, and gRPC that sends ready-made bytes.

    python benchmarks/blender_servers.py blender WAREHOUSE
    python benchmarks/blender_servers.py raw MESSAGE_BYTES MESSAGES

It prints its port, and stops when its input is closed.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from pyiceberg.catalog import load_catalog

from blender_service.server.server import start, use_one_heap


def serve_blends(warehouse: str) -> None:
    """Serve the blends of a lake."""
    uri = f"sqlite:///{warehouse}/catalog.db?timeout=30"
    catalogue = load_catalog("lake", type="sql", uri=uri, warehouse=warehouse)
    use_one_heap()  # as `headrace serve` does
    with start(catalogue) as server:
        print(server.port, flush=True)
        sys.stdin.read()


def serve_bytes(message_bytes: str, messages: str) -> None:
    """Send some messages in turn, as many as the request says: what gRPC for Python can do at best.

    One that is sent again and again lies in the processor's cache, as no real data does.
    """
    made = [bytes([number]) * int(message_bytes) for number in range(int(messages))]

    def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from itertools.islice(itertools.cycle(made), int(request))

    server = grpc.server(ThreadPoolExecutor(8))
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("raw", {"Stream": handler}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    if sys.argv[1] == "blender":
        serve_blends(*sys.argv[2:])
    else:
        serve_bytes(*sys.argv[2:])
