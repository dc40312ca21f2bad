"""The errors of Blender. Every message says what is wrong, where, and how to mend it.

BlenderError
|-- CatalogueError          the lake cannot be opened
|-- InvalidBlendError       a blend was asked for that cannot be; lists every mistake with its field
|   `-- UpdateRefusedError  an update would repeat or skip rows, given its tables or the rows read so far
|-- ExhaustedSourceError    a source that ends the blend has no row left where it should start
|-- ShrunkSourceError       a table has fewer rows than were read of it
|-- BlendNotFoundError      no blend has that id or name
|-- BlendInUseError         a blend goes on from the one that is to be deleted
|-- RunNotFoundError        no training run has that name
|-- BlendNameTakenError     the name already stands for another blend
|-- StoredBlendError        a stored config is damaged or of an unknown order version
|-- SourceChangedError      a table is no longer what the blend pinned
|-- PackedTableError        a packed table breaks its contract
|-- MalformedMessageError   a message of rows breaks off or contradicts itself
|-- InvalidReadError        a read asks for an impossible slice
|-- OffsetOutOfRangeError   a read starts beyond the end of the blend
|-- RowNotThereYetError     a live table did not get its next row in time
|-- WindowMismatchError     tokenizer, window or vocabulary are not what the reader expects
|-- StateError              a training state belongs to another blend, or to no row, or is at its end
|-- UnauthenticatedError    the call has no token, or one that no principal has
|-- NotAllowedError         the caller may read, and not create blends or append rollouts
|-- MalformedRolloutError   a rollout, or an append of some, contradicts itself or its table
|-- MalformedRequestError   a request cannot be parsed by the protos
|-- InternalServerError     a fault of the server itself; its log has the trace
|-- AccessConfigError       a file of tokens or rules is wrong
|-- ServerStartError        the server cannot take its port
`-- ServerUnavailableError  the server cannot be reached, or is stopping
    |-- SlowDownError       as many rollouts wait for the trainer as may
    |-- TooManyStreamsError the caller, or the server, has as many streams as it may
    `-- ServerExhaustedError  the server has no file handle, memory or disk left
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, NamedTuple


class BlenderError(Exception):
    """Base of all errors of Blender."""


class CatalogueError(BlenderError):
    """The lake's catalogue cannot be opened."""


class FieldViolation(NamedTuple):
    """One mistake in a request: the field, and what is wrong with it."""

    field: str
    problem: str


class InvalidBlendError(BlenderError):
    """A blend cannot be created as asked; `violations` holds every mistake found."""

    def __init__(self, message: str, violations: Sequence[FieldViolation] = ()) -> None:
        """Keep the mistakes beside the one-line message."""
        super().__init__(message)
        self.violations = tuple(violations)

    @classmethod
    def from_violations(cls, violations: Sequence[FieldViolation]) -> InvalidBlendError:
        """Report all mistakes at once, in one line."""
        count = "1 mistake" if len(violations) == 1 else f"{len(violations)} mistakes"
        listed = "; ".join(f"{violation.field}: {violation.problem}" for violation in violations)
        return cls(f"blend: {count}: {listed}", violations)


class UpdateRefusedError(InvalidBlendError):
    """An update would repeat or skip rows, because of what its tables are now or of what was read already."""


class ExhaustedSourceError(BlenderError):
    """A source ending the blend has no row left at the first offset of an update."""


class ShrunkSourceError(BlenderError):
    """A table has fewer rows than the blend has read by the end of the epoch it is in."""


class BlendNotFoundError(BlenderError):
    """No blend has that id or name."""


class RunNotFoundError(BlenderError):
    """No training run has that name."""


class BlendNameTakenError(BlenderError):
    """The name already stands for another blend; names are bound once."""


class StoredBlendError(BlenderError):
    """A stored config does not match its id, or was written by a newer version."""


class SourceChangedError(BlenderError):
    """A table is no longer the one, or no longer in the state, that the blend pinned."""


class PackedTableError(BlenderError):
    """A packed table breaks its contract: an array of windows with an explicit dense index."""


class MalformedMessageError(BlenderError):
    """A message of rows breaks off, or its arrays contradict each other."""


class InvalidReadError(BlenderError):
    """A read asks for an impossible slice."""


class OffsetOutOfRangeError(BlenderError):
    """A read starts beyond the end of the blend."""


class RowNotThereYetError(BlenderError):
    """A live table did not get the next row before the read's deadline."""


class WindowMismatchError(BlenderError):
    """Tokenizer, window length or vocabulary are not what the reader expects."""


class StateError(BlenderError):
    """A training state does not belong to this blend, or no step is left after it."""


class UnauthenticatedError(BlenderError):
    """The call has no token, or one without a principal."""


class NotAllowedError(BlenderError):
    """The caller may read the tables, and not create blends of them or append rollouts to them."""


class BlendInUseError(BlenderError):
    """A blend cannot be deleted, since another one goes on from it."""


class MalformedRolloutError(BlenderError):
    """A rollout, or an append of some, contradicts itself or its table; none of the append was taken."""


class MalformedRequestError(BlenderError):
    """The bytes of a request cannot be parsed by the protos."""


class InternalServerError(BlenderError):
    """A fault of the server itself; the message has the number of the trace in the server's log."""


class AccessConfigError(BlenderError):
    """A file (or variable) of tokens or rules is missing or wrong."""


class ServerStartError(BlenderError):
    """The server cannot start, for example because its port is taken."""


class ServerUnavailableError(BlenderError):
    """The server cannot be reached, or is stopping."""


class SlowDownError(ServerUnavailableError):
    """As many rollouts wait for the trainer as may; none of an append was taken, and a later try may be."""


class TooManyStreamsError(ServerUnavailableError):
    """The caller, or the server, has as many streams as it may; another replica or a later try may do."""


EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)


class ServerExhaustedError(ServerUnavailableError):
    """The server has no file handle, memory or disk left for a call; another replica or a later try may do."""
