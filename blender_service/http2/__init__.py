"""The server's side of gRPC over HTTP/2: calls come in as with gRPC's own server, rows leave without being copied.

gRPC's server for Python copies each message, and holds it until a slow reader takes it. Here what a service answers
may lie scattered over mapped files: it goes from there into the socket, and nothing is held but the place it has come
to. Any gRPC client can tell no difference. `h2` keeps the protocol's rules, `ssl` those of TLS.

    server.py      accepts connections, runs calls in threads
    connection.py  one connection: frames in, frames out, flow control
    protocol.py    h2 as it is set up here
    rpc.py         one call: request, answers, status; what services know as context
    frames.py      lays a scattered message out as DATA frames
    line.py        the socket below a connection, plain or TLS
    metadata.py    what gRPC writes into headers

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, RFC 9113
"""
