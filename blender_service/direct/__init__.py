"""The client's side of a read: each one a gRPC call over a connection of its own, its messages received in place.

gRPC for Python receives a message in pieces and then copies it, which costs a reader of rows more than the network
does. Here a message goes from the socket into the memory that its arrays are views of. On the wire it is gRPC, so any
gRPC server, proxy or balancer can be at the other end. Calls with TLS, over a proxy or to an address of another kind
are left to gRPC itself. Needs NumPy and the standard library, and of gRPC only the statuses.

    targets.py  addresses that a plain connection can be made to
    call.py     a read: a thread that receives ahead, and what its consumer takes
    stream.py   one connection: frames in, messages out, flow control
    status.py   how a call ended
    hpack.py    header blocks

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, RFC 9113, RFC 7541
"""
