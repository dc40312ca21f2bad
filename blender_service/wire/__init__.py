"""What travels between server and client: batches of rows, slices of ranks, errors as gRPC statuses."""
