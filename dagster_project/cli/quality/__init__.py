"""Commands about quality: policies and benchmarks."""
