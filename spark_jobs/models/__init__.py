"""Models as assets: classifiers that are trained here, and models of fastText; both score Arrow columns."""
