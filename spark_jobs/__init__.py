"""The steps of headrace: how every table of the lake is computed, on Spark.

One folder per domain, in the order data flows: `sources`, `text`, `dedup`, `code`, `packing`; `lake` lies below them
all. A step is a pure function from DataFrames and a config to a DataFrame; `lake` reads its inputs and publishes its
outputs.
"""
