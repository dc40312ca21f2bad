"""Commands about quality: policies, reviews, models, taggers, benchmarks, deduplication."""
