"""Questions about a corpus or dataset: its funnel, card and versions, what rules and benchmarks do to it."""
