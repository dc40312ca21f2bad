"""Intercept the calls of all services: authenticate, authorise, limit streams, and notify the observers.

Each call goes the same way::

    principal -> bytes -> request -> what it may read -> stream limit -> service -> answers -> observers are notified

A caller is authenticated by the headers before the request is awaited, and that wait is bounded in time and number:
who sends headers alone holds no thread for long, and none that others need.

Observers are notified of the end once, however a call ends: its last answer, an error, a disconnecting client.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

import grpc
from google.protobuf.message import DecodeError

from blender_service.auth.access import AUTHORIZATION, Access
from blender_service.catalogue import is_outage
from blender_service.exceptions import (
    EXHAUSTED,
    BlenderError,
    InternalServerError,
    MalformedRequestError,
    ServerExhaustedError,
    ServerUnavailableError,
)
from blender_service.server.blender import Blender
from blender_service.server.call_context import RUN, RpcCall, call_of, refuse, with_call
from blender_service.server.limits import CallWatch, StreamLimits
from blender_service.server.run_register import check_run_name
from blender_service.wire.status import status_of

GUARDED: Final = "/headrace."
REQUEST_PLACES: Final = 128  # most calls whose request has not come; each takes a thread
HEALTH_PLACES: Final = 16  # most such calls of health and reflection
MOST_LASTING_CALLS: Final = 8  # most calls that watch health or reflect
LASTING_SECONDS: Final = 3600.0
REFUSING_THREADS: Final = 2
NO_REQUEST: Final = "its request did not come"

logger = logging.getLogger(__name__)


class Observer(Protocol):
    """Is notified of calls. It must be quick, and must not raise: no call may fail because a log cannot be written."""

    def began(self, call: RpcCall) -> None:
        """A stream begins: caller, blend and offset are known, its first answer is ready."""

    def answered(self, call: RpcCall, message_bytes: int, seconds: float) -> None:
        """An answer of a stream is ready to be sent, after so many seconds of work or waiting."""

    def ended(self, call: RpcCall) -> None:
        """A call has ended; its status says how."""


class _Malformed(NamedTuple):
    """Bytes outside of the form of a request."""

    problem: str


STREAMS: Final = ("ReadBlend", "PrewarmBlend")  # methods that count as streams


class CallInterceptor(grpc.ServerInterceptor):
    """Guard of the methods of headrace's services; health and reflection are open to every connection."""

    def __init__(
        self,
        access: Access,
        limits: StreamLimits,
        blender: Blender,
        draining: threading.Event,
        observers: Sequence[Observer],
        request_seconds: float,
    ) -> None:
        """Guard a server; a call without its request after `request_seconds` ends."""
        self._access = access
        self._limits = limits
        self._blender = blender
        self._draining = draining
        self._observers = tuple(observers)
        self._arriving = CallWatch(request_seconds, NO_REQUEST, REQUEST_PLACES)
        self._asking = CallWatch(request_seconds, NO_REQUEST, HEALTH_PLACES)
        self._lasting = CallWatch(LASTING_SECONDS, "it asked for health or reflection", MOST_LASTING_CALLS)
        self._refusing = ThreadPoolExecutor(REFUSING_THREADS, thread_name_prefix="blender-refusing")
        self._checking = ThreadPoolExecutor(2 * HEALTH_PLACES, thread_name_prefix="blender-health")
        self._showing = ThreadPoolExecutor(2 * HEALTH_PLACES, thread_name_prefix="blender-watches")

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Wrap the handler of a method; a call with an unknown token takes no serving thread.

        Every request is declared a stream of one message: gRPC would otherwise wait for that message, and hold a
        thread, before the caller is authenticated.
        """
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        path = handler_call_details.method
        if not path.startswith(GUARDED):
            return self._open_to_all(handler)
        method = path.rsplit("/", maxsplit=1)[1]
        behaviour: Any = functools.partial(
            self._stream if handler.response_streaming else self._unary,
            method, handler.unary_stream or handler.unary_unary, handler.response_serializer,
        )  # fmt: skip
        if not self._access.admits(handler_call_details.invocation_metadata):
            behaviour.experimental_thread_pool = self._refusing
        return _handler(behaviour, functools.partial(_parse, handler.request_deserializer, method), handler)

    def close(self) -> None:
        """End the threads for the watch over calls."""
        for watch in (self._arriving, self._asking, self._lasting):
            watch.close()

    def _open_to_all(self, handler: Any) -> Any:
        """Bound the calls without a principal, in threads of their own: health answers however busy others are."""

        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return handler.unary_unary(first_of(requests, context), context)

        def answers(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            first = first_of(requests, context)
            with self._lasting.watching(context):  # watches of health, reflection: each keeps its thread
                if handler.request_streaming:
                    yield from handler.stream_stream(itertools.chain((first,), requests), context)
                else:
                    yield from handler.unary_stream(first, context)

        def first_of(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            try:
                return _request_of(requests, context, self._asking)
            except MalformedRequestError as error:
                context.abort(status_of(error), str(error))

        behaviour: Any = answers if handler.response_streaming else answer
        behaviour.experimental_thread_pool = self._showing if handler.response_streaming else self._checking
        return _handler(behaviour, handler.request_deserializer, handler, handler.response_serializer)

    def _unary(
        self,
        method: str,
        behaviour: Callable[..., Any],
        serialize: Callable[[Any], bytes],
        requests: Iterator[Any],
        context: grpc.ServicerContext,
    ) -> bytes:
        """Answer a unary call."""
        context = self._open(method, context)
        call = call_of(context)
        with _Guard(context, self._end):
            request = self._admit(requests, context)
            response = behaviour(request, context)
            call.blend_id = _blend_of(response)
            answer = serialize(response)
            call.message_bytes = len(answer)
            call.status = "OK"
            return answer
        raise AssertionError("the guard refuses or raises")  # pragma: no cover

    def _stream(
        self,
        method: str,
        behaviour: Callable[..., Iterator[Any]],
        serialize: Callable[[Any], bytes],
        requests: Iterator[Any],
        context: grpc.ServicerContext,
    ) -> Iterator[bytes]:
        """Answer a call with a stream; it ends where its principal may no longer read the blend."""
        context = self._open(method, context)
        call = call_of(context)
        with _Guard(context, self._end):
            request = self._admit(requests, context)
            generation = self._access.generation
            turned_to = time.monotonic()
            began = False
            for message in behaviour(request, context):
                answer = serialize(message)
                if not began:
                    began = True
                    self._notify("began", call)
                call.message_bytes += len(answer)
                self._notify("answered", call, len(answer), time.monotonic() - turned_to)
                if generation != self._access.generation:
                    generation = self._access.generation
                    self._admit_again(context)
                yield answer
                turned_to = time.monotonic()
            call.status = "OK" if context.is_active() else call.status_at_end

    def _open(self, method: str, context: grpc.ServicerContext) -> grpc.ServicerContext:
        """Begin a call: make its context; observers are notified of its end from here on."""
        metadata = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str) and key != AUTHORIZATION
        }
        return with_call(context, RpcCall(method, peer=context.peer(), metadata=metadata))

    def _admit(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """Admit a call and give its request, or raise why it is refused."""
        call = call_of(context)
        call.principal = self._access.principal_of(context)
        call.request = request = _request_of(requests, context, self._arriving)
        call.may_read, call.may_create = self._access.reader(call.principal), self._access.creator(call.principal)
        call.may_append = self._access.appender(call.principal)
        call.team = self._access.team_of(call.principal)
        if call.method in STREAMS:
            if self._draining.is_set():
                raise ServerUnavailableError("server is stopping; connect again, to this or another replica")
            if RUN in call.metadata:
                check_run_name(call.metadata[RUN])
            self._limits.take(call.principal, call.team)
            call.stream_of = (call.principal, call.team)
        return request

    def _admit_again(self, context: grpc.ServicerContext) -> None:
        """Check a running stream against changed tokens and rules."""
        call = call_of(context)
        call.principal = self._access.principal_of(context)
        call.may_read = self._access.reader(call.principal)
        self._blender.within(call.may_read).config(call.blend_id)

    def _end(self, call: RpcCall) -> None:
        """Notify the observers, then count the stream as ended: a stopping server waits until none is left."""
        call.status = call.status_at_end
        try:
            self._notify("ended", call)
        finally:
            if call.stream_of is not None:
                self._limits.give_back(*call.stream_of)

    def _notify(self, event: str, call: RpcCall, *facts: Any) -> None:
        for observer in self._observers:
            getattr(observer, event)(call, *facts)


class _Guard(AbstractContextManager[None]):
    """Ends a call with the status of the error raised inside; a trace never leaves the server.

    The function `end` is called once, however the call ends, also where the client takes no more answers.
    """

    def __init__(self, context: grpc.ServicerContext, end: Callable[[RpcCall], None]) -> None:
        self._context = context
        self._end = end

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._refuse(error)
        finally:
            self._end(call_of(self._context))

    def _refuse(self, error: BaseException | None) -> None:
        """End the call with the status of an error."""
        if error is None or not isinstance(error, Exception) or call_of(self._context).status:
            return  # gRPC's abort raises a bare Exception to end the call, whose status is set by then
        if isinstance(error, grpc.RpcError):
            return  # the call was cancelled before its request came
        if isinstance(error, BlenderError):
            refuse(error, self._context)
        number = uuid.uuid4().hex[:12]
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            logger.warning("error %s in %s", number, call_of(self._context).method, exc_info=error)
            refuse(ServerExhaustedError(f"server: {error.strerror}; free some, or ask another replica"), self._context)
        if is_outage(error):
            logger.warning("error %s in %s", number, call_of(self._context).method, exc_info=error)
            refuse(
                ServerUnavailableError(
                    "server: its lake does not answer; see that the catalogue's database and the store run and take "
                    f"the credentials that this server was started with, and look error {number} up in its log"
                ),
                self._context,
            )
        logger.error("error %s in %s", number, call_of(self._context).method, exc_info=error)
        refuse(
            InternalServerError(f"server: error {number} should not happen; look that number up in the server's log"),
            self._context,
        )


def _handler(behaviour: Any, parse: Any, handler: Any, serialize: Any = None) -> grpc.RpcMethodHandler[Any, Any]:
    """Make a handler to read its request itself, with one answer or a stream of them as `handler` has."""
    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(behaviour, parse, serialize)
    return grpc.stream_unary_rpc_method_handler(behaviour, parse, serialize)


def _request_of(requests: Iterator[Any], context: grpc.ServicerContext, arriving: CallWatch) -> Any:
    """Wait for the request of a call.

    Raises:
        MalformedRequestError: there is none, or it cannot be read.
        grpc.RpcError: the call was cancelled.
    """
    with arriving.watching(context):
        request = next(requests, None)
    if request is None:
        raise MalformedRequestError("request: the call ended without one; send a message after its headers")
    if isinstance(request, _Malformed):
        raise MalformedRequestError(request.problem)
    return request


def _blend_of(response: Any) -> str:
    """Give the id of the blend in an answer, empty if there is none or many."""
    blend_id = getattr(response, "id", "") or getattr(response, "to_id", "")
    return blend_id or getattr(getattr(response, "blend", None), "id", "")


def _parse(deserialize: Callable[[bytes], Any], method: str, content: bytes) -> Any:
    """Read a request; a malformed one is refused later, by a status of its own."""
    try:
        return deserialize(content)
    except DecodeError:
        return _Malformed(
            f"request: {len(content)} bytes are no {method}Request of headrace.blender.v1; use its protos"
        )
