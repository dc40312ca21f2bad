"""Commands about quality: policies, reviews, quarantine, benchmarks, models."""
