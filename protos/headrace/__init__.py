"""Generated gRPC modules of headrace."""
