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

class TextSpec(_message.Message):
    __slots__ = ("tokenizer", "window_tokens", "group_documents", "whole", "text", "doc_id", "trainable", "template", "messages", "tools", "conversations", "objectives")
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROUP_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DOC_ID_FIELD_NUMBER: _ClassVar[int]
    TRAINABLE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CONVERSATIONS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    tokenizer: str
    window_tokens: int
    group_documents: int
    whole: bool
    text: str
    doc_id: str
    trainable: str
    template: str
    messages: str
    tools: str
    conversations: str
    objectives: str
    def __init__(self, tokenizer: _Optional[str] = ..., window_tokens: _Optional[int] = ..., group_documents: _Optional[int] = ..., whole: _Optional[bool] = ..., text: _Optional[str] = ..., doc_id: _Optional[str] = ..., trainable: _Optional[str] = ..., template: _Optional[str] = ..., messages: _Optional[str] = ..., tools: _Optional[str] = ..., conversations: _Optional[str] = ..., objectives: _Optional[str] = ...) -> None: ...

class CreateBlendRequest(_message.Message):
    __slots__ = ("sources", "seed", "name", "block_rows", "group_blocks", "schedule", "allow_repeat", "evals", "texts", "turn_rows")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BLOCK_ROWS_FIELD_NUMBER: _ClassVar[int]
    GROUP_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPEAT_FIELD_NUMBER: _ClassVar[int]
    EVALS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TURN_ROWS_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[SourceSpec]
    seed: int
    name: str
    block_rows: int
    group_blocks: int
    schedule: _containers.RepeatedCompositeFieldContainer[Stage]
    allow_repeat: bool
    evals: str
    texts: TextSpec
    turn_rows: int
    def __init__(self, sources: _Optional[_Iterable[_Union[SourceSpec, _Mapping]]] = ..., seed: _Optional[int] = ..., name: _Optional[str] = ..., block_rows: _Optional[int] = ..., group_blocks: _Optional[int] = ..., schedule: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., allow_repeat: _Optional[bool] = ..., evals: _Optional[str] = ..., texts: _Optional[_Union[TextSpec, _Mapping]] = ..., turn_rows: _Optional[int] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("from_offset", "changes", "align", "window_tokens", "leave_off")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ALIGN_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_OFF_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    changes: _containers.RepeatedCompositeFieldContainer[SourceChange]
    align: bool
    window_tokens: int
    leave_off: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, from_offset: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[SourceChange, _Mapping]]] = ..., align: _Optional[bool] = ..., window_tokens: _Optional[int] = ..., leave_off: _Optional[_Iterable[str]] = ...) -> None: ...

class SourceChange(_message.Message):
    __slots__ = ("name", "remove", "table", "weight", "snapshot", "max_epochs", "on_exhausted", "live")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ON_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    remove: bool
    table: str
    weight: str
    snapshot: str
    max_epochs: int
    on_exhausted: OnExhausted
    live: bool
    def __init__(self, name: _Optional[str] = ..., remove: _Optional[bool] = ..., table: _Optional[str] = ..., weight: _Optional[str] = ..., snapshot: _Optional[str] = ..., max_epochs: _Optional[int] = ..., on_exhausted: _Optional[_Union[OnExhausted, str]] = ..., live: _Optional[bool] = ...) -> None: ...

class UpdateBlendRequest(_message.Message):
    __slots__ = ("parent", "from_offset", "changes", "align", "name", "allow_repeat", "schedule", "evals", "window_tokens", "leave_off")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ALIGN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPEAT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    EVALS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_OFF_FIELD_NUMBER: _ClassVar[int]
    parent: str
    from_offset: int
    changes: _containers.RepeatedCompositeFieldContainer[SourceChange]
    align: bool
    name: str
    allow_repeat: bool
    schedule: _containers.RepeatedCompositeFieldContainer[Stage]
    evals: str
    window_tokens: int
    leave_off: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parent: _Optional[str] = ..., from_offset: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[SourceChange, _Mapping]]] = ..., align: _Optional[bool] = ..., name: _Optional[str] = ..., allow_repeat: _Optional[bool] = ..., schedule: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., evals: _Optional[str] = ..., window_tokens: _Optional[int] = ..., leave_off: _Optional[_Iterable[str]] = ...) -> None: ...

class GetBlendRequest(_message.Message):
    __slots__ = ("blend",)
    BLEND_FIELD_NUMBER: _ClassVar[int]
    blend: str
    def __init__(self, blend: _Optional[str] = ...) -> None: ...

class ListBlendsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListBlendsResponse(_message.Message):
    __slots__ = ("blends", "next_page_token")
    BLENDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    blends: _containers.RepeatedCompositeFieldContainer[Blend]
    next_page_token: str
    def __init__(self, blends: _Optional[_Iterable[_Union[Blend, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DescribeBlendRequest(_message.Message):
    __slots__ = ("blend", "offset")
    BLEND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    blend: str
    offset: int
    def __init__(self, blend: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("name", "table", "table_uuid", "snapshot_id", "rows", "weight", "max_epochs", "on_exhausted", "live", "template", "cells")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_UUID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ON_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    name: str
    table: str
    table_uuid: str
    snapshot_id: int
    rows: int
    weight: int
    max_epochs: int
    on_exhausted: OnExhausted
    live: bool
    template: str
    cells: str
    def __init__(self, name: _Optional[str] = ..., table: _Optional[str] = ..., table_uuid: _Optional[str] = ..., snapshot_id: _Optional[int] = ..., rows: _Optional[int] = ..., weight: _Optional[int] = ..., max_epochs: _Optional[int] = ..., on_exhausted: _Optional[_Union[OnExhausted, str]] = ..., live: _Optional[bool] = ..., template: _Optional[str] = ..., cells: _Optional[str] = ...) -> None: ...

class WindowSpan(_message.Message):
    __slots__ = ("from_offset", "window_tokens", "leave_off")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_OFF_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    window_tokens: int
    leave_off: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, from_offset: _Optional[int] = ..., window_tokens: _Optional[int] = ..., leave_off: _Optional[_Iterable[str]] = ...) -> None: ...

class Blend(_message.Message):
    __slots__ = ("id", "names", "config_json", "window", "sources", "seed", "end", "parent", "from_offset", "warnings", "turn_rows", "length_classes", "windows")
    class LengthClassesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    TURN_ROWS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_CLASSES_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    id: str
    names: _containers.RepeatedScalarFieldContainer[str]
    config_json: str
    window: WindowFacts
    sources: _containers.RepeatedCompositeFieldContainer[BlendSource]
    seed: int
    end: int
    parent: str
    from_offset: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    turn_rows: int
    length_classes: _containers.ScalarMap[str, int]
    windows: _containers.RepeatedCompositeFieldContainer[WindowSpan]
    def __init__(self, id: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., config_json: _Optional[str] = ..., window: _Optional[_Union[WindowFacts, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[BlendSource, _Mapping]]] = ..., seed: _Optional[int] = ..., end: _Optional[int] = ..., parent: _Optional[str] = ..., from_offset: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., turn_rows: _Optional[int] = ..., length_classes: _Optional[_Mapping[str, int]] = ..., windows: _Optional[_Iterable[_Union[WindowSpan, _Mapping]]] = ...) -> None: ...

class BlendDescription(_message.Message):
    __slots__ = ("blend", "offset", "sources", "tokens", "segments")
    BLEND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    blend: Blend
    offset: int
    sources: _containers.RepeatedCompositeFieldContainer[SourceDescription]
    tokens: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentDescription]
    def __init__(self, blend: _Optional[_Union[Blend, _Mapping]] = ..., offset: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourceDescription, _Mapping]]] = ..., tokens: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentDescription, _Mapping]]] = ...) -> None: ...

class SourceDescription(_message.Message):
    __slots__ = ("name", "table", "rows", "tokens", "expected_rows", "share", "expected_share", "epochs", "runs_out_at", "active", "live", "excised_documents", "evals", "unread_rows")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SHARE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    RUNS_OUT_AT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    EXCISED_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    EVALS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_ROWS_FIELD_NUMBER: _ClassVar[int]
    name: str
    table: str
    rows: int
    tokens: int
    expected_rows: float
    share: float
    expected_share: float
    epochs: float
    runs_out_at: int
    active: bool
    live: bool
    excised_documents: int
    evals: str
    unread_rows: int
    def __init__(self, name: _Optional[str] = ..., table: _Optional[str] = ..., rows: _Optional[int] = ..., tokens: _Optional[int] = ..., expected_rows: _Optional[float] = ..., share: _Optional[float] = ..., expected_share: _Optional[float] = ..., epochs: _Optional[float] = ..., runs_out_at: _Optional[int] = ..., active: _Optional[bool] = ..., live: _Optional[bool] = ..., excised_documents: _Optional[int] = ..., evals: _Optional[str] = ..., unread_rows: _Optional[int] = ...) -> None: ...

class SegmentDescription(_message.Message):
    __slots__ = ("start", "end", "names", "weights")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    names: _containers.RepeatedScalarFieldContainer[str]
    weights: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., weights: _Optional[_Iterable[int]] = ...) -> None: ...

class ProveContinuationRequest(_message.Message):
    __slots__ = ("from_blend", "to_blend", "offset")
    FROM_BLEND_FIELD_NUMBER: _ClassVar[int]
    TO_BLEND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    from_blend: str
    to_blend: str
    offset: int
    def __init__(self, from_blend: _Optional[str] = ..., to_blend: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Continuation(_message.Message):
    __slots__ = ("from_id", "to_id", "offset", "differs_from")
    FROM_ID_FIELD_NUMBER: _ClassVar[int]
    TO_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIFFERS_FROM_FIELD_NUMBER: _ClassVar[int]
    from_id: str
    to_id: str
    offset: int
    differs_from: int
    def __init__(self, from_id: _Optional[str] = ..., to_id: _Optional[str] = ..., offset: _Optional[int] = ..., differs_from: _Optional[int] = ...) -> None: ...
