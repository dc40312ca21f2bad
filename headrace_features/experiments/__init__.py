"""Experiments: which composition of the data makes the better model, and how sure that is.

declaration   what a user writes: variants, budget, seeds, rates, model, held-out sets, evaluations
component     the same in YAML (`type: headrace.Experiment`), and its assets
held_out      the sets, and the documents of the variants equal or near to them, or of their families
reading       the rows of a variant as a model reads them, without those documents; what is in them
experiment    which runs there are, which are done, and doing the others in a process of their own
process       that process: reads, trains, evaluates
training_run  a training run and its result, as values; no torch
training      rows -> weights, loss by offset, digest of the rows; `python -m` trains from a file
evaluation    weights -> bits a byte of documents, probability of right answers
comparison    scores of variants -> who is better on which set, how sure that is, how many seeds it takes
curves        loss curves -> how many tokens a difference is worth
mixes         a search for the best mix of sources, in two rounds, also from a former one (`spark_jobs.mixes`)
mix_report    its proposed mix, and the front of what else could be had
thinning      sources read in part, so that a small run repeats them as often as a large one
report        what came out: verdicts, what differs between the data, a plot
command       `headrace experiment`; what `headrace plan` and `headrace run` say of one
pages         the explorer's pages of them

From `training_run` to `evaluation` NumPy, torch and the standard library are enough, so that a machine with a GPU needs
nothing else of headrace's dependencies. Results are rows of the lake's `system.evaluations`.
"""
