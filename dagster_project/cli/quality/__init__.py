"""Commands about quality: policies, benchmarks, models."""
