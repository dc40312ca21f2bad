"""A dataset, corpus or packed table in Croissant and SPDX, runs in OpenLineage."""
