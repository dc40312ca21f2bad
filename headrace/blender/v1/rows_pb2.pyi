from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadBlendRequest(_message.Message):
    __slots__ = ("blend", "offset", "rows", "slice", "expected", "max_batch_rows", "wait_seconds", "read_id", "columns", "begins_run")
    BLEND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_RUN_FIELD_NUMBER: _ClassVar[int]
    blend: str
    offset: int
    rows: int
    slice: Slice
    expected: ExpectedWindow
    max_batch_rows: int
    wait_seconds: float
    read_id: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    begins_run: bool
    def __init__(self, blend: _Optional[str] = ..., offset: _Optional[int] = ..., rows: _Optional[int] = ..., slice: _Optional[_Union[Slice, _Mapping]] = ..., expected: _Optional[_Union[ExpectedWindow, _Mapping]] = ..., max_batch_rows: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., read_id: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., begins_run: _Optional[bool] = ...) -> None: ...

class PrewarmBlendRequest(_message.Message):
    __slots__ = ("blend", "offset", "rows", "columns")
    BLEND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    blend: str
    offset: int
    rows: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, blend: _Optional[str] = ..., offset: _Optional[int] = ..., rows: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class PrewarmProgress(_message.Message):
    __slots__ = ("row", "stopped")
    ROW_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    row: int
    stopped: bool
    def __init__(self, row: _Optional[int] = ..., stopped: _Optional[bool] = ...) -> None: ...

class ReportConsumedRequest(_message.Message):
    __slots__ = ("read_id", "row", "last", "digests")
    READ_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    read_id: str
    row: int
    last: bool
    digests: _containers.RepeatedCompositeFieldContainer[StretchDigest]
    def __init__(self, read_id: _Optional[str] = ..., row: _Optional[int] = ..., last: _Optional[bool] = ..., digests: _Optional[_Iterable[_Union[StretchDigest, _Mapping]]] = ...) -> None: ...

class StretchDigest(_message.Message):
    __slots__ = ("stretch", "rows", "digest")
    STRETCH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    stretch: int
    rows: int
    digest: int
    def __init__(self, stretch: _Optional[int] = ..., rows: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class ReportConsumedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Slice(_message.Message):
    __slots__ = ("step_rows", "rank", "world_size", "uneven")
    STEP_ROWS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    UNEVEN_FIELD_NUMBER: _ClassVar[int]
    step_rows: int
    rank: int
    world_size: int
    uneven: bool
    def __init__(self, step_rows: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., uneven: _Optional[bool] = ...) -> None: ...

class ExpectedWindow(_message.Message):
    __slots__ = ("window_tokens", "tokenizer_sha256", "vocabulary_size", "token_bytes")
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_SHA256_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    window_tokens: int
    tokenizer_sha256: str
    vocabulary_size: int
    token_bytes: int
    def __init__(self, window_tokens: _Optional[int] = ..., tokenizer_sha256: _Optional[str] = ..., vocabulary_size: _Optional[int] = ..., token_bytes: _Optional[int] = ...) -> None: ...

class RowBatch(_message.Message):
    __slots__ = ("offset", "rows", "window_tokens", "token_bytes", "input_ids", "token_counts", "source_names", "sources", "epochs", "ordinals", "segments", "end_of_blend", "waiting_for", "columns")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    INPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NAMES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ORDINALS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    END_OF_BLEND_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    rows: int
    window_tokens: int
    token_bytes: int
    input_ids: bytes
    token_counts: bytes
    source_names: _containers.RepeatedScalarFieldContainer[str]
    sources: bytes
    epochs: bytes
    ordinals: bytes
    segments: Segments
    end_of_blend: bool
    waiting_for: str
    columns: _containers.RepeatedCompositeFieldContainer[TokenColumn]
    def __init__(self, offset: _Optional[int] = ..., rows: _Optional[int] = ..., window_tokens: _Optional[int] = ..., token_bytes: _Optional[int] = ..., input_ids: _Optional[bytes] = ..., token_counts: _Optional[bytes] = ..., source_names: _Optional[_Iterable[str]] = ..., sources: _Optional[bytes] = ..., epochs: _Optional[bytes] = ..., ordinals: _Optional[bytes] = ..., segments: _Optional[_Union[Segments, _Mapping]] = ..., end_of_blend: _Optional[bool] = ..., waiting_for: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[TokenColumn, _Mapping]]] = ...) -> None: ...

class TokenColumn(_message.Message):
    __slots__ = ("name", "type", "values")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[TokenColumn.Type]
        BOOL: _ClassVar[TokenColumn.Type]
        FLOAT32: _ClassVar[TokenColumn.Type]
        INT32: _ClassVar[TokenColumn.Type]
    TYPE_UNSPECIFIED: TokenColumn.Type
    BOOL: TokenColumn.Type
    FLOAT32: TokenColumn.Type
    INT32: TokenColumn.Type
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: TokenColumn.Type
    values: bytes
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[TokenColumn.Type, str]] = ..., values: _Optional[bytes] = ...) -> None: ...

class Segments(_message.Message):
    __slots__ = ("counts", "doc_ids", "doc_id_lengths", "document_starts", "token_counts", "window_starts")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DOC_IDS_FIELD_NUMBER: _ClassVar[int]
    DOC_ID_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_STARTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_STARTS_FIELD_NUMBER: _ClassVar[int]
    counts: bytes
    doc_ids: bytes
    doc_id_lengths: bytes
    document_starts: bytes
    token_counts: bytes
    window_starts: bytes
    def __init__(self, counts: _Optional[bytes] = ..., doc_ids: _Optional[bytes] = ..., doc_id_lengths: _Optional[bytes] = ..., document_starts: _Optional[bytes] = ..., token_counts: _Optional[bytes] = ..., window_starts: _Optional[bytes] = ...) -> None: ...
