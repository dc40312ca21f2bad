from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendLossesRequest(_message.Message):
    __slots__ = ("run", "steps", "blend")
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BLEND_FIELD_NUMBER: _ClassVar[int]
    run: str
    steps: _containers.RepeatedCompositeFieldContainer[StepLosses]
    blend: str
    def __init__(self, run: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[StepLosses, _Mapping]]] = ..., blend: _Optional[str] = ...) -> None: ...

class StepLosses(_message.Message):
    __slots__ = ("offset", "segment_counts", "documents", "segment_documents", "token_counts", "sums")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    segment_counts: bytes
    documents: _containers.RepeatedScalarFieldContainer[str]
    segment_documents: bytes
    token_counts: bytes
    sums: bytes
    def __init__(self, offset: _Optional[int] = ..., segment_counts: _Optional[bytes] = ..., documents: _Optional[_Iterable[str]] = ..., segment_documents: _Optional[bytes] = ..., token_counts: _Optional[bytes] = ..., sums: _Optional[bytes] = ...) -> None: ...

class AppendLossesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
