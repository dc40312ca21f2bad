from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendRolloutsRequest(_message.Message):
    __slots__ = ("table", "writer", "first_number", "rollouts")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    table: str
    writer: str
    first_number: int
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    def __init__(self, table: _Optional[str] = ..., writer: _Optional[str] = ..., first_number: _Optional[int] = ..., rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ...) -> None: ...

class Rollout(_message.Message):
    __slots__ = ("group", "member", "group_size", "timeout_seconds", "input_ids", "trainable", "log_probabilities", "advantages", "spans", "reward", "failure")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    TRAINABLE_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    ADVANTAGES_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: int
    group_size: int
    timeout_seconds: float
    input_ids: bytes
    trainable: bytes
    log_probabilities: bytes
    advantages: bytes
    spans: _containers.RepeatedCompositeFieldContainer[PolicySpan]
    reward: float
    failure: str
    def __init__(self, group: _Optional[str] = ..., member: _Optional[int] = ..., group_size: _Optional[int] = ..., timeout_seconds: _Optional[float] = ..., input_ids: _Optional[bytes] = ..., trainable: _Optional[bytes] = ..., log_probabilities: _Optional[bytes] = ..., advantages: _Optional[bytes] = ..., spans: _Optional[_Iterable[_Union[PolicySpan, _Mapping]]] = ..., reward: _Optional[float] = ..., failure: _Optional[str] = ...) -> None: ...

class PolicySpan(_message.Message):
    __slots__ = ("token_count", "policy_version")
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    token_count: int
    policy_version: int
    def __init__(self, token_count: _Optional[int] = ..., policy_version: _Optional[int] = ...) -> None: ...

class AppendRolloutsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("status", "reason")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[Outcome.Status]
        ADMITTED: _ClassVar[Outcome.Status]
        FAILED: _ClassVar[Outcome.Status]
        REFUSED: _ClassVar[Outcome.Status]
        SLOW_DOWN: _ClassVar[Outcome.Status]
    STATUS_UNSPECIFIED: Outcome.Status
    ADMITTED: Outcome.Status
    FAILED: Outcome.Status
    REFUSED: Outcome.Status
    SLOW_DOWN: Outcome.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: Outcome.Status
    reason: str
    def __init__(self, status: _Optional[_Union[Outcome.Status, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class AnnounceVersionRequest(_message.Message):
    __slots__ = ("table", "version", "next_ordinal")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    table: str
    version: int
    next_ordinal: int
    def __init__(self, table: _Optional[str] = ..., version: _Optional[int] = ..., next_ordinal: _Optional[int] = ...) -> None: ...

class AnnounceVersionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
