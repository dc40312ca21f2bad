"""Experiments: which composition of the data makes the better model, and how sure that is.

declaration   what a user writes: variants, budget, seeds, rates, model, held-out sets, evaluations
held_out      the sets, and the documents of the variants that are them, nearly them, or of their families
reading       the rows of a variant as a model reads them, without those documents; what is in them
records       `system.evaluations`: a row for each run
experiment    which runs there are, which are done, and doing the others in a process of their own
process       that process: reads, trains, evaluates; the only module that imports torch
report        what came out: verdicts, what differs between the data, a plot
mixes         a law of the loss over mixes of sources, and the mix that it proposes
"""
