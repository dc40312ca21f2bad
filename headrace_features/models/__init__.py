"""Models: what judges, clusters and compares texts by what was trained; all others may name this feature.

registered      models in the registry: their facts, and their files, read by workers
model_file      the format of headrace's own
classifier..    linear classifiers of texts: features, training, the step to train one on datasets
ngram..         n-gram models, for perplexity
causal_model    transformers over tokens or bytes: losses, perplexity
network         the small transformer that proxies of clusters and experiments train
encoder..       vectors of texts: static tables, transformers
name_model      names in texts, by spaCy or GLiNER
model_scores, vectors, quality    scorers, and the weighted sum of what scorers measured
clusters/       survivors in clusters, and how much a model learns of each
semantic/       survivors whose vectors have nearly the same direction
assets, component, declared, command    `type: headrace.Model`, and `headrace model`

Models of fastText are the core's, which identifies languages by them (`spark_jobs.fasttext`).
"""
