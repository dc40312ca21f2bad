from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OnExhausted(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_EXHAUSTED_UNSPECIFIED: _ClassVar[OnExhausted]
    ON_EXHAUSTED_END: _ClassVar[OnExhausted]
    ON_EXHAUSTED_CONTINUE: _ClassVar[OnExhausted]
ON_EXHAUSTED_UNSPECIFIED: OnExhausted
ON_EXHAUSTED_END: OnExhausted
ON_EXHAUSTED_CONTINUE: OnExhausted

class SourceSpec(_message.Message):
    __slots__ = ("table", "name", "weight", "snapshot", "max_epochs", "on_exhausted", "live")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ON_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    table: str
    name: str
    weight: str
    snapshot: str
    max_epochs: int
    on_exhausted: OnExhausted
    live: bool
    def __init__(self, table: _Optional[str] = ..., name: _Optional[str] = ..., weight: _Optional[str] = ..., snapshot: _Optional[str] = ..., max_epochs: _Optional[int] = ..., on_exhausted: _Optional[_Union[OnExhausted, str]] = ..., live: _Optional[bool] = ...) -> None: ...

class CreateBlendRequest(_message.Message):
    __slots__ = ("sources", "seed", "name", "block_rows", "group_blocks")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BLOCK_ROWS_FIELD_NUMBER: _ClassVar[int]
    GROUP_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[SourceSpec]
    seed: int
    name: str
    block_rows: int
    group_blocks: int
    def __init__(self, sources: _Optional[_Iterable[_Union[SourceSpec, _Mapping]]] = ..., seed: _Optional[int] = ..., name: _Optional[str] = ..., block_rows: _Optional[int] = ..., group_blocks: _Optional[int] = ...) -> None: ...

class GetBlendRequest(_message.Message):
    __slots__ = ("blend",)
    BLEND_FIELD_NUMBER: _ClassVar[int]
    blend: str
    def __init__(self, blend: _Optional[str] = ...) -> None: ...

class ListBlendsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBlendsResponse(_message.Message):
    __slots__ = ("blends",)
    BLENDS_FIELD_NUMBER: _ClassVar[int]
    blends: _containers.RepeatedCompositeFieldContainer[Blend]
    def __init__(self, blends: _Optional[_Iterable[_Union[Blend, _Mapping]]] = ...) -> None: ...

class WindowFacts(_message.Message):
    __slots__ = ("window_tokens", "tokenizer_sha256", "vocabulary_size", "end_of_document_id", "padding_id")
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_SHA256_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    END_OF_DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    PADDING_ID_FIELD_NUMBER: _ClassVar[int]
    window_tokens: int
    tokenizer_sha256: str
    vocabulary_size: int
    end_of_document_id: int
    padding_id: int
    def __init__(self, window_tokens: _Optional[int] = ..., tokenizer_sha256: _Optional[str] = ..., vocabulary_size: _Optional[int] = ..., end_of_document_id: _Optional[int] = ..., padding_id: _Optional[int] = ...) -> None: ...

class BlendSource(_message.Message):
    __slots__ = ("name", "table", "table_uuid", "snapshot_id", "rows", "weight", "max_epochs", "on_exhausted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_UUID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ON_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    table: str
    table_uuid: str
    snapshot_id: int
    rows: int
    weight: int
    max_epochs: int
    on_exhausted: OnExhausted
    def __init__(self, name: _Optional[str] = ..., table: _Optional[str] = ..., table_uuid: _Optional[str] = ..., snapshot_id: _Optional[int] = ..., rows: _Optional[int] = ..., weight: _Optional[int] = ..., max_epochs: _Optional[int] = ..., on_exhausted: _Optional[_Union[OnExhausted, str]] = ...) -> None: ...

class Blend(_message.Message):
    __slots__ = ("id", "names", "config_json", "window", "sources", "seed", "end")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    id: str
    names: _containers.RepeatedScalarFieldContainer[str]
    config_json: str
    window: WindowFacts
    sources: _containers.RepeatedCompositeFieldContainer[BlendSource]
    seed: int
    end: int
    def __init__(self, id: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., config_json: _Optional[str] = ..., window: _Optional[_Union[WindowFacts, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[BlendSource, _Mapping]]] = ..., seed: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
