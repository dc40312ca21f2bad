"""Heuristics of texts: the measures of Gopher, C4, FineWeb and BigCode, and of templates, in compiled passes."""
