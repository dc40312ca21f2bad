"""The steps of headrace: how every table of the lake is computed, on Spark.

One folder per stage, in the order data flows: `sources`, `text`, `dedup`, `code`, `tokens`, `packing`. A step is a pure
function from DataFrames and a config to a DataFrame; `lake`, below all of them, reads its inputs and publishes its
outputs. `lexing` holds the lexers of programming languages, which `dedup` and `code` share.
"""
