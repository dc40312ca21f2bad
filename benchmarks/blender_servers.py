"""What `bench_blender.py` measures, each a process: Blender, gRPC that sends ready-made bytes, and slow readers.

    python benchmarks/blender_servers.py blender WAREHOUSE
    python benchmarks/blender_servers.py raw MESSAGE_BYTES MESSAGES
    python benchmarks/blender_servers.py readers ADDRESS BLEND STREAMS MESSAGES

A server prints its port, readers that they have read; each stops when its input is closed.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from pyiceberg.catalog import load_catalog

from blender_service.server.process_limits import allow_open_files, use_one_heap
from blender_service.server.server import start
from headrace.blender.v1 import rows_pb2, rows_pb2_grpc

AT_ONCE = 32  # streams that begin together


def serve_blends(warehouse: str) -> None:
    """Serve the blends of a lake."""
    uri = f"sqlite:///{warehouse}/catalog.db?timeout=30"
    catalogue = load_catalog("lake", type="sql", uri=uri, warehouse=warehouse)
    use_one_heap()  # as `headrace serve` does
    allow_open_files()
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


def read_and_wait(address: str, blend: str, streams: str, messages: str) -> None:
    """Take some messages of many streams, each over a connection of its own, then no more."""
    options = (
        ("grpc.use_local_subchannel_pool", 1),
        ("SingleThreadedUnaryStream", 1),
        ("grpc.max_receive_message_length", -1),
    )
    channels = [grpc.insecure_channel(address, options) for _ in range(int(streams))]
    calls: list[Any] = [None] * len(channels)

    def begin(number: int) -> Any:
        request = rows_pb2.ReadBlendRequest(blend=blend, offset=1000 * number)
        return rows_pb2_grpc.RowServiceStub(channels[number]).ReadBlend(request)

    for first in range(0, len(calls), AT_ONCE):
        for number in range(first, min(first + AT_ONCE, len(calls))):
            calls[number] = begin(number)
        for number in range(first, min(first + AT_ONCE, len(calls))):
            while True:
                try:
                    next(calls[number])
                except grpc.RpcError:  # of many that begin at once some are told to come again
                    time.sleep(0.1)
                    calls[number] = begin(number)
                else:
                    break
    for _ in range(int(messages) - 1):
        for call in calls:
            next(call)
    print(len(calls), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    if sys.argv[1] == "blender":
        serve_blends(*sys.argv[2:])
    elif sys.argv[1] == "readers":
        read_and_wait(*sys.argv[2:])
    else:
        serve_bytes(*sys.argv[2:])
