"""Experiments: does this composition of data make a better model?

training_run   a training run and its result, as values; no torch
network        the transformer and its loss; documents of a packed row do not see each other
training       rows -> weights, loss by offset, digest of the rows; `python -m` trains from a file
evaluation     weights -> bits a byte of documents, probability of right answers
comparison     scores of variants -> who is better on which set, how sure that is, how many seeds it takes
curves         loss curves -> how many tokens a difference is worth
mix_law        losses of small runs of mixes -> a mix that is worth a run of its own

All are pure functions on arrays. The first four need NumPy, torch and the standard library alone, so that a machine
with a GPU needs nothing else of headrace's dependencies; the others need NumPy and SciPy.
"""
