from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Piece(_message.Message):
    __slots__ = ("sha256", "size", "offset", "data")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    size: int
    offset: int
    data: bytes
    def __init__(self, sha256: _Optional[bytes] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Have(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("arena", "size", "offset", "data")
    ARENA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    arena: int
    size: int
    offset: int
    data: bytes
    def __init__(self, arena: _Optional[int] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("arena", "offset", "size")
    ARENA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    arena: int
    offset: int
    size: int
    def __init__(self, arena: _Optional[int] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class Drop(_message.Message):
    __slots__ = ("arena",)
    ARENA_FIELD_NUMBER: _ClassVar[int]
    arena: int
    def __init__(self, arena: _Optional[int] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("sha256", "arena", "size", "offset")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    arena: int
    size: int
    offset: int
    def __init__(self, sha256: _Optional[bytes] = ..., arena: _Optional[int] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("regions", "program_region", "program_offset", "program_length", "watchdog", "timeout", "fingerprint")
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_REGION_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_LENGTH_FIELD_NUMBER: _ClassVar[int]
    WATCHDOG_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    program_region: int
    program_offset: int
    program_length: int
    watchdog: int
    timeout: int
    fingerprint: str
    def __init__(self, regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ..., program_region: _Optional[int] = ..., program_offset: _Optional[int] = ..., program_length: _Optional[int] = ..., watchdog: _Optional[int] = ..., timeout: _Optional[int] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("have", "piece", "write", "read", "drop", "run")
    HAVE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    have: Have
    piece: Piece
    write: Write
    read: Read
    drop: Drop
    run: Run
    def __init__(self, have: _Optional[_Union[Have, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., write: _Optional[_Union[Write, _Mapping]] = ..., read: _Optional[_Union[Read, _Mapping]] = ..., drop: _Optional[_Union[Drop, _Mapping]] = ..., run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "device", "config", "protocol")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    version: str
    device: str
    config: str
    protocol: int
    def __init__(self, version: _Optional[str] = ..., device: _Optional[str] = ..., config: _Optional[str] = ..., protocol: _Optional[int] = ...) -> None: ...

class Missing(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Data(_message.Message):
    __slots__ = ("data", "last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    def __init__(self, data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class Queued(_message.Message):
    __slots__ = ("ahead",)
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    ahead: int
    def __init__(self, ahead: _Optional[int] = ...) -> None: ...

class Running(_message.Message):
    __slots__ = ("seconds",)
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    def __init__(self, seconds: _Optional[float] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("counters",)
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    counters: str
    def __init__(self, counters: _Optional[str] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("message", "code", "engine", "pc", "address")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PC_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    message: str
    code: int
    engine: int
    pc: int
    address: int
    def __init__(self, message: _Optional[str] = ..., code: _Optional[int] = ..., engine: _Optional[int] = ..., pc: _Optional[int] = ..., address: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Response(_message.Message):
    __slots__ = ("welcome", "missing", "data", "queued", "running", "finished", "fault", "refused", "accepted")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    missing: Missing
    data: Data
    queued: Queued
    running: Running
    finished: Finished
    fault: Fault
    refused: Refused
    accepted: Accepted
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., missing: _Optional[_Union[Missing, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., queued: _Optional[_Union[Queued, _Mapping]] = ..., running: _Optional[_Union[Running, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., fault: _Optional[_Union[Fault, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ...) -> None: ...
