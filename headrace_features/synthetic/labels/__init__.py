"""Labels: a judge behind an endpoint scores a sample spread over a dataset, and a classifier learns from it.

    texts, signals -> sampled (a row a document, its weight, the keys of its requests)
    sampled        -> the endpoint -> answers: landed facts, appended to by each asking
    sampled, answers -> judged (score, or the reason why there is none) -> agreement (of the judge with itself)

No step asks: `sampled`, `judged` and `agreement` are functions of what they read, and an answered key is never
asked again (docs/prepare/labels.md).
"""
