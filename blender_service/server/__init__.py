"""The gRPC server: services, limits, audit, metrics, processes."""
