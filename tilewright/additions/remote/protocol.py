"""Constants of the remote protocol that both ends must agree on besides remote.proto."""

from __future__ import annotations

SERVICE = "tilewright.remote.Remote"
METHOD = "Session"
#: Goes up by one whenever a message of remote.proto changes its meaning. Client and server must have the same.
PROTOCOL = 3
DEFAULT_PORT = 7741
#: Metadata with "Bearer TOKEN".
TOKEN_KEY = "authorization"
#: Bytes of one message's data at most.
PIECE_BYTES = 1 << 20
#: Dead peers are noticed within a minute.
OPTIONS = [
    ("grpc.max_receive_message_length", 2 * PIECE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
]
